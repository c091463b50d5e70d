"""Where the channels of a padded tensor lie, and which operators carry the padding on.

``places`` are the positions of the real channels (axis 1) in the padded tensor; what stands between is finite, and no
result depends on it: convolutions that read it get weights of zero there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.targets.passes.graph import Affine, QuantizedConv, constant_shape, integer, producer, sizes

# One tensor in, one of the same channels out, in which 0 gives a finite number.
CARRIERS = frozenset({
    "AveragePool", "Clip", "DequantizeLinear", "Elu", "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "MaxPool", "QuantizeLinear", "Relu", "Sigmoid", "Tanh",
})  # fmt: skip
BROADCASTING = frozenset({"Add", "Max", "Min", "Mul", "PRelu", "Sub"})


@dataclass(frozen=True)
class Padding:
    """A padded tensor: ``size`` channels, the real ones at ``places``; ``origins`` are the convolutions that were padded."""

    places: tuple[int, ...]
    size: int
    origins: frozenset[ir.Node] = frozenset()

    @classmethod
    def behind(cls, channels: int, size: int, *origins: ir.Node) -> Self:
        return cls(tuple(range(channels)), size, frozenset(origins))

    @property
    def is_behind(self) -> bool:
        return self.places == tuple(range(len(self.places)))

    def alike(self, other: Padding) -> bool:
        return (self.places, self.size) == (other.places, other.size)

    def spread(self, array: Array, axis: int, fill: float = 0) -> Array:
        """A constant's numbers along an axis at their places, ``fill`` in between; one number for all stays one."""
        if array.shape[axis] == 1 < len(self.places):
            return array
        shape = list(array.shape)
        shape[axis] = self.size
        spread = np.full(shape, fill, array.dtype)
        spread[(slice(None),) * axis + (list(self.places),)] = array
        return spread


@dataclass(frozen=True)
class Convolution:
    """A convolution whose weights (of this shape) and bias are constants.

    ``quantized``: an integer kernel runs it; ``symmetric``: its weights have zero points of 0.
    """

    node: ir.Node
    shape: tuple[int, ...]
    quantized: bool
    symmetric: bool

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        """``None`` where weights or bias are not constant, or weights have a zero point per channel."""
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
        """One channel of the result for each channel."""
        return self.group > 1 and self.shape[:2] == (self.group, 1)


@dataclass
class Flow:
    """Every padded value with its padding, and the convolutions that read or make them.

    ``blockwise``: origins of what is read as it comes, by depthwise convolutions or into a Concat.
    """

    convolutions: Mapping[ir.Node, Convolution]
    padded: dict[ir.Value, Padding] = field(default_factory=dict)
    blockwise: set[ir.Node] = field(default_factory=set)

    def follow(self, graph: ir.Graph, widened: Mapping[ir.Node, int]) -> None:
        """Follow the padding of ``widened`` convolutions, to so many channels each, through the graph."""
        self.padded, self.blockwise = {}, set()
        for node in graph:
            made = self._made(node, self.taken(node), widened)
            if made is not None:
                self.padded[node.outputs[0]] = made
                if node in self.convolutions or node.op_type == "Concat":
                    self.blockwise |= made.origins - {node}

    def bound_to(self, nodes: set[ir.Node]) -> set[ir.Node]:
        """These convolutions and those whose results meet theirs: they are padded alike or not at all."""
        met = [padding.origins for padding in self.padded.values() if len(padding.origins) > 1]
        while more := {node for origins in met if origins & nodes for node in origins} - nodes:
            nodes = nodes | more
        return nodes

    def taken(self, node: ir.Node) -> list[Padding | None]:
        """The padding of each operand."""
        return [None if value is None else self.padded.get(value) for value in node.inputs]

    def reads(self, node: ir.Node) -> bool:
        """Whether a node can take padded operands: it carries them on, or its weights are zero for them."""
        convolution = self.convolutions.get(node)
        dense = convolution is not None and convolution.group == 1
        return dense or any(value in self.padded for value in node.outputs)

    def whole(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Who needs a padded value without its padding."""
        return [(use.node, use.idx) for use in value.uses() if not self.reads(use.node)]

    def _made(self, node: ir.Node, taken: Sequence[Padding | None], widened: Mapping[ir.Node, int]) -> Padding | None:
        """The padding of a node's result; ``None`` where it has none, or the node cannot carry that of its operands."""
        convolution = self.convolutions.get(node)
        if convolution is not None and node in widened:
            return Padding.behind(convolution.features, widened[node], node)
        if node.domain or len(node.outputs) != 1 or not any(taken):
            return None
        if convolution is not None:
            return taken[0] if convolution.depthwise else None
        if node.op_type in CARRIERS:
            return taken[0] if _per_tensor(node) else None
        if node.op_type in BROADCASTING:
            return _broadcast(node, taken)
        if node.op_type == "Concat" and integer(node, "axis", 0) == 1:
            return _joined(node, taken)
        return None


def _per_tensor(node: ir.Node) -> bool:
    """Whether what quantizes or dequantizes has one scale for all channels."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return True
    parameters = Affine.of(node)
    return parameters is not None and parameters.per_tensor


def _broadcast(node: ir.Node, taken: Sequence[Padding | None]) -> Padding | None:
    found = [padding for padding in taken if padding is not None]
    shapes = [constant_shape(value) or sizes(value) for value in node.inputs]
    rank = max((len(shape) for shape in shapes if shape is not None), default=0)
    if rank < 3 or not all(padding.alike(found[0]) for padding in found):
        return None
    for value, padding, shape in zip(node.inputs, taken, shapes, strict=True):
        channels = None if shape is None else ([1] * (rank - len(shape)) + list(shape))[1]
        per_channel = constant_shape(value) is not None and channels == len(found[0].places)
        if padding is None and channels != 1 and not per_channel:
            return None
    return Padding(found[0].places, found[0].size, frozenset().union(*(padding.origins for padding in found)))


def _joined(node: ir.Node, taken: Sequence[Padding | None]) -> Padding | None:
    parts: list[Padding] = []
    for value, padding in zip(node.inputs, taken, strict=True):
        channels = (sizes(value) or [None, None])[1]
        if padding is None and channels is None:
            return None
        parts.append(padding or Padding.behind(channels or 0, channels or 0))
    starts = np.cumsum([0, *(part.size for part in parts)])
    places = [int(start) + place for start, part in zip(starts, parts, strict=False) for place in part.places]
    return Padding(tuple(places), int(starts[-1]), frozenset().union(*(part.origins for part in parts)))
