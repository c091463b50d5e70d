"""Repeat a squeeze-and-excitation scale over the image that it multiplies.

In the blocked layout, ONNX Runtime multiplies only tensors of equal shape. It converts the image to the plain layout to multiply it
by a scale per channel. This rule emits a Resize that repeats the scale over all pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import BLOCK, DIVISOR, constant_shape, ints, nodes_of, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match

BatchSizes = Mapping[ir.Value, int | ir.SymbolicDim]
"""The batch size of each value. A dynamic size is the symbolic dimension of a graph input."""

_FUSED_WITH_CONV = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_BATCH_PRESERVING = _FUSED_WITH_CONV | {"AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Resize"}
"""Operators that preserve the batch size of their first operand."""
_BROADCASTING = frozenset({"Add", "Mul", "Sub"})


class Match(NamedTuple):
    """A Mul of ``image`` by ``scale``, which is the operand at index ``slot``."""

    mul: ir.Node
    slot: int
    image: ir.Value
    scale: ir.Value
    batch: int | ir.SymbolicDim


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Node, BatchSizes]]:
    """Return the Mul nodes of the main graph, with the batch sizes of its values."""
    batch_sizes = _batch_sizes(model.graph)
    return [(node, batch_sizes) for node in nodes_of(model.graph, "Mul")]


def check(place: tuple[ir.Node, BatchSizes]) -> Match:
    """Return the match if a Mul scales an image between float convolutions.

    Convolutions must compute the image and the scale, and read the product.
    """
    mul, batch_sizes = place
    shape = require_match(sizes(mul.outputs[0]), "the rank of the product is unknown")
    require(len(shape) == 4 and shape[2:] != [1, 1])
    require(None not in shape[1:], "a size of the image is dynamic")
    channels = shape[1] or 0
    slots = [k for k, value in enumerate(mul.inputs) if (sizes(value) or [])[1:] == [channels, 1, 1]]
    require(len(slots) == 1)
    require(
        channels >= BLOCK and channels % DIVISOR == 0,
        f"the number of channels is below {BLOCK} or not a multiple of {DIVISOR}",
    )
    convolutions = [_activated_convolution(value) for value in mul.inputs]
    require(all(convolutions), "the image or the scale does not come from a convolution")
    require(all(conv and _is_float(conv.inputs[0]) for conv in convolutions), "a convolution is quantized")
    require(any(use.node.op_type == "Conv" for use in mul.outputs[0].uses()), "no convolution reads the product")
    scale, image = require_match(mul.inputs[slots[0]]), require_match(mul.inputs[1 - slots[0]])
    require(
        scale in batch_sizes and batch_sizes[scale] == batch_sizes.get(image),
        "the batch sizes of image and scale may differ",
    )
    return Match(mul, slots[0], image, scale, batch_sizes[scale])


def rewrite(editor: Editor, match: Match) -> None:
    """Emit a Resize of the scale to the size of the image."""
    mul, slot, image, scale, batch = match
    channels, height, width = (size or 0 for size in (sizes(mul.outputs[0]) or [])[1:])
    with editor.replacing(mul):
        repeats = np.array([1, 1, height, width], np.float32)
        repeated_scale = editor.emit(
            "Resize", scale, None, repeats, mode="nearest", coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )  # fmt: skip
    # Shape inference loses a dynamic batch size at Resize. ONNX Runtime multiplies in the blocked layout only if shapes are equal.
    for value in (repeated_scale, image):
        value.shape = ir.Shape([batch, channels, height, width])
    repeated_scale.type = scale.type
    mul.replace_input_with(slot, repeated_scale)


squeeze_excite_blocks = RewriteRule(pattern, check, rewrite)


def _batch_sizes(graph: ir.Graph) -> BatchSizes:
    batch_sizes = {value: value.shape[0] for value in graph.inputs if value.shape}
    for node in graph:
        operands = node.inputs if node.op_type in _BROADCASTING else node.inputs[:1]
        operand_batches = {
            batch_sizes.get(value) for value in operands if value is not None and constant_shape(value) is None
        }
        keeps_batch = node.op_type in _BATCH_PRESERVING | _BROADCASTING or _keeps_batch_axis(node)
        batch_size = operand_batches.pop() if keeps_batch and len(operand_batches) == 1 else None
        for value in node.outputs:
            size = value.shape[0] if value.shape else None
            size = size if isinstance(size, int) else batch_size
            if size is not None:
                batch_sizes[value] = size
    return batch_sizes


def _keeps_batch_axis(node: ir.Node) -> bool:
    """True for a Transpose, Reshape or Squeeze that keeps axis 0 as the batch.

    For Reshape and Squeeze, the other sizes must be static, and their product must not change.
    """
    if node.op_type == "Transpose":
        return ints(node, "perm", [1])[0] == 0
    if node.op_type not in ("Reshape", "Squeeze"):
        return False
    before, after = (sizes(value) or [None] for value in (node.inputs[0], node.outputs[0]))
    inner_shapes = [[size or 0 for size in shape[1:]] for shape in (before, after)]
    is_static = all(0 not in inner_shape for inner_shape in inner_shapes)
    return is_static and len(before) > 1 and prod(inner_shapes[0]) == prod(inner_shapes[1])


def _is_float(value: ir.Value | None) -> bool:
    """True for a float value that is not dequantized."""
    return value is not None and value.dtype == ir.DataType.FLOAT and producer(value, "DequantizeLinear") is None


def _activated_convolution(value: ir.Value | None) -> ir.Node | None:
    """Return the convolution that computes a value, with or without an activation.

    The activation may be SiLU: x * Sigmoid(x).
    """
    mul = producer(value, "Mul")
    if mul is not None:
        value = next((x for x, factor in permutations(mul.inputs) if _is_sigmoid(factor, x)), None)
        return producer(value, "Conv")
    activation = producer(value, *_FUSED_WITH_CONV)
    return producer(activation.inputs[0] if activation else value, "Conv")


def _is_sigmoid(value: ir.Value | None, x: ir.Value | None) -> bool:
    node = producer(value, "Sigmoid")
    return node is not None and node.inputs[0] is x
