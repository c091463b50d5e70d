"""Compute a quantized ConvTranspose, which has no integer kernel, by a convolution.

With stride s, every input position gives s x s output positions. A convolution computes them as s * s times the channels, and a
Transpose of quantized values interleaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Affine,
    QuantizedConv,
    integer,
    ints,
    sizes,
)
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array


@dataclass(frozen=True)
class Axis:
    """One spatial axis of the convolution.

    The last of its ``taps`` reads ``last`` positions before the output position. Position ``s * q + p`` of the result
    is the sum of ``x[q - j] * w[s * j + p + pad]`` over all j with a weight.
    """

    stride: int
    pad: int
    kernel: int
    blocks: int
    first: int
    last: int
    after: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, pads: tuple[int, int], output_padding: int) -> Self | None:
        """Return the axis of a transposed convolution.

        Return ``None`` if the result is not a multiple of the stride, or pads cannot express it.
        """
        blocks, remainder = divmod(stride * (size - 1) + kernel - sum(pads) + output_padding, stride)
        first, last = -((stride - 1 + pads[0]) // stride), (kernel - 1 - pads[0]) // stride
        after = blocks - size - first
        if remainder or last < 0 or after < 0:
            return None
        return cls(stride, pads[0], kernel, blocks, first, last, after)

    @property
    def taps(self) -> int:
        return self.last - self.first + 1

    def sources(self) -> Array:
        """Return the index of each weight along the kernel axis, [stride, taps].

        The index is -1 where a phase has no weight.
        """
        indices = self.stride * (self.last - np.arange(self.taps)) + np.arange(self.stride)[:, None] + self.pad
        return np.where((indices >= 0) & (indices < self.kernel), indices, -1)


class Match(NamedTuple):
    """A quantized transposed convolution, with both spatial axes."""

    unit: QuantizedConv
    rows: Axis
    columns: Axis


def check(node: ir.Node) -> Match:
    """Return the match if the transposed convolution is quantized and its sizes are static."""
    unit = require_match(QuantizedConv.of(node), "the convolution is not quantized, or its weights are not constant")
    shape = require_match(sizes(unit.data.inputs[0]), "the rank of the image is unknown")
    weights = require_match(unit.weights.integers)
    require(weights.ndim == 4 and None not in shape[2:], "the operand is not an image, or a size is dynamic")
    require(integer(node, "group", 1) == 1, "the convolution is grouped")
    require({*ints(node, "dilations", [1, 1])} == {1}, "the convolution is dilated")
    has_explicit_pads = "output_shape" not in node.attributes and "auto_pad" not in node.attributes
    require(has_explicit_pads, "the pads are not given as numbers")
    pads, strides = ints(node, "pads", [0] * 4), ints(node, "strides", [1, 1])
    output_padding = ints(node, "output_padding", [0, 0])
    rows, columns = (
        require_match(
            Axis.of(shape[2 + k] or 0, weights.shape[2 + k], strides[k], (pads[k], pads[2 + k]), output_padding[k]),
            "the size of the result is not a multiple of the stride, or pads cannot express it",
        )
        for k in range(2)
    )
    return Match(unit, rows, columns)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the convolution, and the Transpose that interleaves its channels."""
    unit, rows, columns = match
    weights = convolution_weights(unit.weights, rows, columns)
    assert weights.integers is not None
    features, phase_count = len(weights.integers) // (rows.stride * columns.stride), rows.stride * columns.stride
    with editor.replacing(unit.conv):
        operands = [editor.dequantize(weights)]
        if unit.bias is not None:
            operands.append(editor.dequantize(unit.bias.tile(phase_count)))
        value = editor.emit(
            "Conv", unit.data.outputs[0], *operands, kernel_shape=[rows.taps, columns.taps],
            pads=[rows.last, columns.last, rows.after, columns.after],
        )  # fmt: skip
        value = editor.clone_on(unit.quantize, value)
        value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
        phase_shape = [rows.blocks, columns.blocks, rows.stride, columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *phase_shape]), perm=[0, 1, 3, 2, 4, 5])
        image_shape = [rows.blocks * rows.stride, columns.blocks * columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *image_shape]), perm=CHANNELS_FIRST)
    editor.replace_value(unit.quantize.outputs[0], value)


conv_transpose_to_conv = RewriteRule(nodes("ConvTranspose"), check, rewrite)


def convolution_weights(weights: Affine, rows: Axis, columns: Axis) -> Affine:
    """Return weights ``[c, o, y, x]`` as ``[row phases * column phases * o, c, row taps, column taps]``."""
    assert weights.integers is not None
    zero = weights.zero_point.reshape((1, -1, 1, 1) if weights.zero_point.ndim else ())
    centered = np.pad(weights.integers.astype(np.int32) - zero.astype(np.int32), ((0, 0), (0, 0), (0, 1), (0, 1)))
    y, x = rows.sources(), columns.sources()  # -1 is the row or column of zeros
    phases = centered[:, :, y[:, None, :, None], x[None, :, None, :]]
    stored = phases.transpose(2, 3, 1, 0, 4, 5) + zero.astype(np.int32).reshape((-1, 1, 1, 1) if zero.ndim else ())
    integers = stored.reshape(-1, len(centered), rows.taps, columns.taps).astype(weights.integers.dtype)
    return weights.tile(rows.stride * columns.stride, integers)
