"""Helpers that match: constants, producers and users, shapes, and quantized units of a finished model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.source.model import Array

CHANNELS_FIRST, CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
BLOCK = 16  # channels that kernels of AVX-512 work on at a time
DIVISOR = 4  # channel counts in the blocked layout are multiples of this; pad_channels rounds up to it
_DEQUANTIZING = ("Cast", "DequantizeLinear", "Mul", "Sub")  # how stored weights become float, in three nodes at most


def constant(value: ir.Value | None) -> Array | None:
    """Return the array of a stored constant; ``None`` for a computed value or a graph input."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return np.asarray(value.const_value.numpy())


def constant_shape(value: ir.Value | None, depth: int = 3) -> tuple[int, ...] | None:
    """Return the shape of a constant, stored or dequantized by nodes; ``None`` for a computed value or a graph input."""
    array, node = constant(value), producer(value, *_DEQUANTIZING)
    if array is not None or node is None or not depth:
        return None if array is None else array.shape
    shapes = [constant_shape(operand, depth - 1) for operand in node.inputs]
    of_constants = [shape for shape in shapes if shape is not None]
    if len(of_constants) < len(shapes):
        return None
    return of_constants[0] if node.op_type == "DequantizeLinear" else np.broadcast_shapes(*of_constants)


def captured_values(model: ir.Model, _: object) -> list[ir.Value]:
    """Return the values that a node computes and an inner graph reads, by name; a pattern of rules."""
    captured = {
        value
        for node in model.graph.all_nodes()
        for value in node.inputs
        if value is not None and (maker := value.producer()) is not None and maker.graph is not node.graph
    }
    return sorted(captured, key=lambda value: value.name or "")


def nodes_of(nodes: Iterable[ir.Node], *op_types: str) -> list[ir.Node]:
    """Return the nodes that are one of these standard operators."""
    return [node for node in nodes if node.domain == "" and node.op_type in op_types]


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the producer of a value if it is one of these standard operators."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def only_user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """Return the only user of a value, in the same graph, if it is one of these standard operators."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    maker = value.producer()
    same_graph = maker is None or node.graph is maker.graph
    return node if same_graph and node.domain == "" and node.op_type in op_types else None


def ints(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute of several integers."""
    attribute = node.attributes.get(name)
    return list(default) if attribute is None else list(attribute.as_ints())


def integer(node: ir.Node, name: str, default: int) -> int:
    """Return an attribute of one integer."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def sizes(value: ir.Value | None) -> list[int | None] | None:
    """Return a value's shape with ``None`` for dynamic dimensions; ``None`` if the rank is unknown."""
    if value is None or value.shape is None:
        same = producer(value, "Clip", "DequantizeLinear", "GlobalAveragePool", "QuantizeLinear", "Relu")
        shape = None if same is None else sizes(same.inputs[0])
        pooled = same is not None and same.op_type == "GlobalAveragePool"
        return [*shape[:2], *[1] * len(shape[2:])] if shape and pooled else shape
    return [size if isinstance(size, int) else None for size in value.shape]


class Affine(NamedTuple):
    """Quantized integers of a constant with scale and zero point; ``integers`` is ``None`` for a computed tensor."""

    integers: Array | None
    scale: Array
    zero_point: Array

    @classmethod
    def of(cls, node: ir.Node | None) -> Self | None:
        """Return the constant parameters of a QuantizeLinear or DequantizeLinear; ``None`` if they are computed or per block."""
        if node is None:
            return None
        scale = constant(node.inputs[1])
        point = constant(node.inputs[2]) if len(node.inputs) > 2 else None
        if scale is None or point is None or (scale.ndim and "block_size" in node.attributes):
            return None
        return cls(constant(node.inputs[0]), scale, point)

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1

    def tile(self, times: int, integers: Array | None = None) -> Affine:
        """Repeat a constant along its first axis, or give other integers of that size; per-channel parameters are repeated."""
        if integers is None:
            assert self.integers is not None
            integers = np.concatenate([self.integers] * times)
        if self.per_tensor:
            return self._replace(integers=integers)
        return Affine(integers, np.tile(self.scale, times), np.tile(self.zero_point, times))

    @property
    def floats(self) -> Array:
        """The dequantized constant in float64 (per-tensor parameters only)."""
        assert self.integers is not None
        shifted = self.integers.astype(np.float64) - float(self.zero_point.reshape(-1)[0])
        return np.asarray(shifted * float(self.scale.reshape(-1)[0]))


class QuantizedConv(NamedTuple):
    """A quantized convolution: DequantizeLinear of data, weights and bias, Conv or ConvTranspose, QuantizeLinear."""

    data: ir.Node
    conv: ir.Node
    quantize: ir.Node
    weights: Affine
    bias: Affine | None

    @classmethod
    def of(cls, conv: ir.Node) -> Self | None:
        """Return the unit around a node; ``None`` if a part is missing or not constant."""
        data, weights = (producer(value, "DequantizeLinear") for value in conv.inputs[:2])
        axis = 0 if conv.op_type == "Conv" else 1
        quantize = only_user(conv.outputs[0], "QuantizeLinear")
        with_bias = len(conv.inputs) > 2 and conv.inputs[2] is not None
        bias = Affine.of(producer(conv.inputs[2], "DequantizeLinear")) if with_bias else None
        weight_affine, data_affine, result_affine = Affine.of(weights), Affine.of(data), Affine.of(quantize)
        if data is None or quantize is None or weight_affine is None or data_affine is None or result_affine is None:
            return None
        if weight_affine.integers is None or (with_bias and (bias is None or bias.integers is None)):
            return None
        per_channel = weight_affine.per_tensor or (weights is not None and integer(weights, "axis", 1) == axis)
        whole = data_affine.per_tensor and result_affine.per_tensor and per_channel
        return cls(data, conv, quantize, weight_affine, bias) if whole else None


def label_of(node: ir.Node) -> str:
    """Return the first part of a node's name, the name of the TFLite operator that it was lowered from."""
    return (node.name or "").rpartition("/")[0]


def first_node(nodes: Iterable[ir.Node]) -> ir.Node:
    """Return the node that comes first in the graph of these nodes."""
    among = {*nodes}
    (graph,) = {node.graph for node in among}
    assert graph is not None
    return next(node for node in graph if node in among)
