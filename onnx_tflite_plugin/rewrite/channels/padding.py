"""Padding of channels (axis 1), and its propagation through operators.

The added channels have finite values, which convolutions multiply by weights of zero. No result depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.matching import Affine, QuantizedConv, constant_shape, integer, producer, sizes
from onnx_tflite_plugin.source.model import Array

# Elementwise operators and pools of one operand that keep the channels, and whose result for 0 is finite.
CHANNELWISE = frozenset({
    "AveragePool", "Clip", "DequantizeLinear", "Elu", "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "MaxPool", "QuantizeLinear", "Relu", "Sigmoid", "Tanh",
})  # fmt: skip
MIN_MULTIPLICATIONS = 100_000
"""Heuristic: a convolution of fewer multiplications saves less time than an additional tensor costs."""
BROADCASTING = frozenset({"Add", "Max", "Min", "Mul", "PRelu", "Sub"})


class Padding(NamedTuple):
    """Padding of a tensor to ``size`` channels.

    ``positions``: indices of the original channels in the padded tensor. ``rank``: rank of the tensor. ``origins``: the
    widened convolutions from which the padding was propagated.
    """

    positions: tuple[int, ...]
    size: int
    rank: int
    origins: frozenset[ir.Node] = frozenset()

    @property
    def is_at_end(self) -> bool:
        return self.positions == tuple(range(len(self.positions)))

    def has_equal_padding(self, other: Padding) -> bool:
        return (self.positions, self.size, self.rank) == (other.positions, other.size, other.rank)

    def pad(self, array: Array, axis: int, fill: float = 0) -> Array:
        """Return the array padded by ``fill`` along an axis, unless that axis has size 1."""
        if array.shape[axis] == 1 < len(self.positions):
            return array
        shape = list(array.shape)
        shape[axis] = self.size
        padded = np.full(shape, fill, array.dtype)
        padded[(slice(None),) * axis + (list(self.positions),)] = array
        return padded


class Convolution(NamedTuple):
    """A convolution with constant weights and bias.

    ``shape``: the shape of the weights. ``quantized``: an integer kernel runs the convolution. ``symmetric``: the zero
    points of the weights are 0, or the weights are float.
    """

    node: ir.Node
    shape: tuple[int, ...]
    quantized: bool
    symmetric: bool

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        """Return the convolution of a node.

        Return ``None`` if weights or bias are computed, or if per-channel zero points are not 0.
        """
        shapes = [constant_shape(value) for value in node.inputs[1:] if value is not None]
        if any(shape is None for shape in shapes) or not shapes[0] or len(shapes[0]) < 3:
            return None
        weights = Affine.of(producer(node.inputs[1], "DequantizeLinear"))
        symmetric = weights is None or not weights.zero_point.any()
        if not symmetric and weights is not None and not weights.per_tensor:
            return None
        return cls(node, shapes[0], QuantizedConv.of(node) is not None, symmetric)

    @property
    def features(self) -> int:
        return self.shape[0]

    @property
    def group(self) -> int:
        return integer(self.node, "group", 1)

    @property
    def depthwise(self) -> bool:
        """True if output channel i is computed from input channel i only, for all i."""
        return self.group > 1 and self.shape[:2] == (self.group, 1)

    def multiplications(self, result: ir.Value | None = None) -> float:
        """Return the number of multiplications, or infinity for a dynamic shape.

        ``result``: a value with the shape of the result, if the shape of the node's own output is unknown.
        """
        shape = sizes(result or self.node.outputs[0])
        if shape is None or None in shape[2:]:
            return math.inf
        return math.prod(size or 0 for size in shape[2:]) * math.prod(self.shape)


@dataclass
class PaddingFlow:
    """The paddings of a graph's values, propagated from widened convolutions.

    ``convolutions``: all convolutions of the graph. ``widened``: widened convolution -> new number of
    output channels. ``padded``: padded value -> padding. ``far_reaching``: widened convolutions
    whose padding propagates through a depthwise convolution or a Concat.
    """

    convolutions: Mapping[ir.Node, Convolution]
    widened: Mapping[ir.Node, int] = field(default_factory=dict)
    padded: dict[ir.Value, Padding] = field(default_factory=dict)
    far_reaching: set[ir.Node] = field(default_factory=set)

    def propagate(self, graph: ir.Graph, widened: Mapping[ir.Node, int]) -> None:
        """Set the paddings that result from the ``widened`` convolutions."""
        self.widened, self.padded, self.far_reaching = widened, {}, set()
        for node in graph:
            padding = self._result_padding(node, self.operands(node), widened)
            if padding is not None:
                self.padded[node.outputs[0]] = padding
                if node in self.convolutions or node.op_type == "Concat":
                    self.far_reaching |= padding.origins - {node}

    def connected_convolutions(self, nodes: set[ir.Node]) -> set[ir.Node]:
        """Return ``nodes`` and all convolutions that must be padded together with them.

        The results of such convolutions are combined, for example added.
        """
        shared_origins = [padding.origins for padding in self.padded.values() if len(padding.origins) > 1]
        while added := {node for origins in shared_origins if origins & nodes for node in origins} - nodes:
            nodes = nodes | added
        return nodes

    def operands(self, node: ir.Node) -> list[Padding | None]:
        """Return the padding of each operand."""
        return [None if value is None else self.padded.get(value) for value in node.inputs]

    def supports_padding(self, node: ir.Node) -> bool:
        """True if a node propagates padding, or is a convolution with weights to pad."""
        convolution = self.convolutions.get(node)
        is_dense = convolution is not None and convolution.group == 1
        return is_dense or any(value in self.padded for value in node.outputs)

    def unpadded_uses(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the uses of a padded value for which the padding must be cut off."""
        return [(use.node, use.idx) for use in value.uses() if not self.supports_padding(use.node)]

    def _result_padding(
        self, node: ir.Node, operands: Sequence[Padding | None], widened: Mapping[ir.Node, int]
    ) -> Padding | None:
        """Return the padding of a node's result, or ``None`` if it is not padded."""
        convolution = self.convolutions.get(node)
        if convolution is not None and node in widened:
            positions = tuple(range(convolution.features))
            return Padding(positions, widened[node], len(convolution.shape), frozenset({node}))
        if node.domain or len(node.outputs) != 1 or not any(operands):
            return None
        if convolution is not None:
            return operands[0] if convolution.depthwise else None
        if node.op_type in CHANNELWISE:
            return operands[0] if is_per_tensor(node) else None
        if node.op_type in BROADCASTING:
            return _broadcast_padding(node, operands)
        if node.op_type == "Concat" and integer(node, "axis", 0) == 1:
            return _concat_padding(node, operands)
        return None


def is_per_tensor(node: ir.Node) -> bool:
    """True unless a node quantizes or dequantizes per axis."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return True
    parameters = Affine.of(node)
    return parameters is not None and parameters.per_tensor


def _broadcast_padding(node: ir.Node, operands: Sequence[Padding | None]) -> Padding | None:
    """Return the padding of all padded operands of a broadcasting operator.

    Return ``None`` if their paddings differ, or if another operand is neither broadcast along the channels nor a
    per-channel constant.
    """
    padded = [padding for padding in operands if padding is not None]
    first = padded[0]
    for value, padding in zip(node.inputs, operands, strict=True):
        stored_shape = constant_shape(value)
        shape = sizes(value) if stored_shape is None else stored_shape
        if padding is None and shape is not None and len(shape) <= first.rank:
            channels = ([1] * (first.rank - len(shape)) + list(shape))[1]
            if channels != 1 and (stored_shape is None or channels != len(first.positions)):
                return None
        elif padding is None or not padding.has_equal_padding(first):
            return None
    return first._replace(origins=_origins(padded))


def _concat_padding(node: ir.Node, operands: Sequence[Padding | None]) -> Padding | None:
    positions: list[int] = []
    size = 0
    for value, padding in zip(node.inputs, operands, strict=True):
        channels = (sizes(value) or [None, None])[1]
        if padding is None and channels is None:
            return None
        positions += [size + position for position in (padding.positions if padding else range(channels or 0))]
        size += padding.size if padding else channels or 0
    padded = [padding for padding in operands if padding is not None]
    return Padding(tuple(positions), size, padded[0].rank, _origins(padded))


def _origins(paddings: Sequence[Padding]) -> frozenset[ir.Node]:
    return frozenset().union(*(padding.origins for padding in paddings))
