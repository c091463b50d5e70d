"""Lookups for rewrite rules: constants, producers, users, shapes, quantized nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.source.model import Array

CHANNELS_FIRST, CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
BLOCK = 16  # channels per block of the blocked layout with AVX-512
DIVISOR = 4  # pad_channels rounds channel counts up to a multiple of this, as the blocked layout requires
_DEQUANTIZE_OPERATORS = ("Cast", "DequantizeLinear", "Mul", "Sub")
"""Operators that dequantize stored weights, at most three in a row."""


def constant(value: ir.Value | None) -> Array | None:
    """Return the array of a stored constant, or ``None`` for any other value."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return np.asarray(value.const_value.numpy())


def constant_shape(value: ir.Value | None, depth: int = 3) -> tuple[int, ...] | None:
    """Return the shape of a stored or dequantized constant, else ``None``.

    ``depth``: maximum number of consecutive nodes that dequantize it.
    """
    array, node = constant(value), producer(value, *_DEQUANTIZE_OPERATORS)
    if array is not None or node is None or not depth:
        return None if array is None else array.shape
    shapes = [constant_shape(operand, depth - 1) for operand in node.inputs]
    constant_shapes = [shape for shape in shapes if shape is not None]
    if len(constant_shapes) < len(shapes):
        return None
    return constant_shapes[0] if node.op_type == "DequantizeLinear" else np.broadcast_shapes(*constant_shapes)


def captured_values(model: ir.Model, _: object) -> list[ir.Value]:
    """Return the computed values that inner graphs capture, sorted by name.

    Rules for captured values use this function as their pattern.
    """
    captured = {
        value
        for node in model.graph.all_nodes()
        for value in node.inputs
        if value is not None
        and (producer_node := value.producer()) is not None
        and producer_node.graph is not node.graph
    }
    return sorted(captured, key=lambda value: value.name or "")


def nodes_of(nodes: Iterable[ir.Node], *op_types: str) -> list[ir.Node]:
    """Return the nodes with one of these operators of the standard domain."""
    return [node for node in nodes if node.domain == "" and node.op_type in op_types]


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the producer of a value if it is a given standard operator; else None."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def only_user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """Return the only user of a value if it is a given standard operator; else None.

    The user must be in the same graph.
    """
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    producer_node = value.producer()
    same_graph = producer_node is None or node.graph is producer_node.graph
    return node if same_graph and node.domain == "" and node.op_type in op_types else None


def ints(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute that is a list of integers, or the default."""
    attribute = node.attributes.get(name)
    return list(default) if attribute is None else list(attribute.as_ints())


def integer(node: ir.Node, name: str, default: int) -> int:
    """Return an attribute that is an integer, or the default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def sizes(value: ir.Value | None) -> list[int | None] | None:
    """Return a value's shape with ``None`` for dynamic dimensions.

    If the value has no shape, infer it from the operand of an operator such as Relu. Return ``None`` if the rank is unknown.
    """
    if value is None or value.shape is None:
        node = producer(value, "Clip", "DequantizeLinear", "GlobalAveragePool", "QuantizeLinear", "Relu")
        shape = None if node is None else sizes(node.inputs[0])
        is_pool = node is not None and node.op_type == "GlobalAveragePool"
        return [*shape[:2], *[1] * len(shape[2:])] if shape and is_pool else shape
    return [size if isinstance(size, int) else None for size in value.shape]


class Affine(NamedTuple):
    """Scale and zero point of a tensor, with the quantized values of a constant.

    ``integers``: the quantized values; ``None`` for a computed tensor.
    """

    integers: Array | None
    scale: Array
    zero_point: Array

    @classmethod
    def of(cls, node: ir.Node | None) -> Self | None:
        """Return the parameters of a QuantizeLinear or DequantizeLinear.

        Return ``None`` for parameters that are computed or per block.
        """
        if node is None:
            return None
        scale = constant(node.inputs[1])
        zero_point = constant(node.inputs[2]) if len(node.inputs) > 2 else None
        if scale is None or zero_point is None or (scale.ndim and "block_size" in node.attributes):
            return None
        return cls(constant(node.inputs[0]), scale, zero_point)

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1

    def tile(self, repeats: int, integers: Array | None = None) -> Affine:
        """Return the constant with first axis and per-axis parameters repeated.

        ``integers``: if given, the quantized values of the result.
        """
        if integers is None:
            assert self.integers is not None
            integers = np.concatenate([self.integers] * repeats)
        if self.per_tensor:
            return self._replace(integers=integers)
        return Affine(integers, np.tile(self.scale, repeats), np.tile(self.zero_point, repeats))

    @property
    def floats(self) -> Array:
        """The dequantized constant in float64 (per-tensor parameters only)."""
        assert self.integers is not None
        centered = self.integers.astype(np.float64) - float(self.zero_point.reshape(-1)[0])
        return np.asarray(centered * float(self.scale.reshape(-1)[0]))


class QuantizedConv(NamedTuple):
    """A Conv or ConvTranspose of dequantized operands with a quantized result.

    ``data``: the DequantizeLinear of the image. ``quantize``: the QuantizeLinear of the result. ``weights`` and
    ``bias`` are constants.
    """

    data: ir.Node
    node: ir.Node
    quantize: ir.Node
    weights: Affine
    bias: Affine | None

    @classmethod
    def of(cls, conv: ir.Node) -> Self | None:
        """Return the quantized convolution of a node, or ``None`` if it is not quantized.

        Also return ``None`` if scales, zero points, weights or bias are computed, or if data or result have per-channel
        scales. The weights may have scales along the output channels, but along no other axis.
        """
        data, weights = (producer(value, "DequantizeLinear") for value in conv.inputs[:2])
        axis = 0 if conv.op_type == "Conv" else 1
        quantize = only_user(conv.outputs[0], "QuantizeLinear")
        has_bias = len(conv.inputs) > 2 and conv.inputs[2] is not None
        bias = Affine.of(producer(conv.inputs[2], "DequantizeLinear")) if has_bias else None
        weight_affine, data_affine, result_affine = Affine.of(weights), Affine.of(data), Affine.of(quantize)
        if data is None or quantize is None or weight_affine is None or data_affine is None or result_affine is None:
            return None
        if weight_affine.integers is None or (has_bias and (bias is None or bias.integers is None)):
            return None
        has_supported_axis = weight_affine.per_tensor or (weights is not None and integer(weights, "axis", 1) == axis)
        is_supported = data_affine.per_tensor and result_affine.per_tensor and has_supported_axis
        return cls(data, conv, quantize, weight_affine, bias) if is_supported else None


def label_of(node: ir.Node) -> str:
    """Return the label of the TFLite operator in a node's name, such as ``op3``."""
    return (node.name or "").rpartition("/")[0]


def first_node(nodes: Iterable[ir.Node]) -> ir.Node:
    """Return the first of several nodes of one graph."""
    node_set = {*nodes}
    (graph,) = {node.graph for node in node_set}
    assert graph is not None
    return next(node for node in graph if node in node_set)
