"""Compute a quantized ConvTranspose by a convolution.

ONNX Runtime has no integer kernel for ConvTranspose. With stride s, each input position yields s x s output positions. A
convolution with s * s times as many output channels computes them, and a Transpose of quantized values interleaves them.
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
    """Spatial axis of the convolution that replaces a transposed convolution.

    The result has ``block_count`` blocks of ``stride`` positions. Position ``stride * q + p`` (block q, phase p) is the sum
    of ``x[q - j] * w[stride * j + p + pad_begin]`` over the offsets ``j`` from ``first_offset`` to ``last_offset``.

    Attributes:
        stride: stride of the transposed convolution; the number of phases.
        pad_begin: padding of the transposed convolution at the beginning of the axis.
        kernel_size: size of w.
        block_count: number of blocks in the result.
        first_offset: smallest j.
        last_offset: largest j; also the padding of the new convolution at the beginning of x.
        end_padding: padding of the new convolution at the end of x.
    """

    stride: int
    pad_begin: int
    kernel_size: int
    block_count: int
    first_offset: int
    last_offset: int
    end_padding: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, pads: tuple[int, int], output_padding: int) -> Self | None:
        """Return the axis for a transposed convolution.

        Return None if the output size is not a multiple of the stride, or if the convolution would need a negative
        padding.
        """
        block_count, remainder = divmod(stride * (size - 1) + kernel - sum(pads) + output_padding, stride)
        first_offset, last_offset = -((stride - 1 + pads[0]) // stride), (kernel - 1 - pads[0]) // stride
        end_padding = block_count - size - first_offset
        if remainder or last_offset < 0 or end_padding < 0:
            return None
        return cls(stride, pads[0], kernel, block_count, first_offset, last_offset, end_padding)

    @property
    def taps(self) -> int:
        """Return the kernel size of the new convolution."""
        return self.last_offset - self.first_offset + 1

    def weight_indices(self) -> Array:
        """Return the index into w of each new weight, [stride, taps].

        The index is -1 where a phase has no weight.
        """
        offsets = self.last_offset - np.arange(self.taps)
        indices = self.stride * offsets + np.arange(self.stride)[:, None] + self.pad_begin
        return np.where((indices >= 0) & (indices < self.kernel_size), indices, -1)


class Match(NamedTuple):
    """A quantized transposed convolution with its spatial axes."""

    conv: QuantizedConv
    rows: Axis
    columns: Axis


def check(node: ir.Node) -> Match:
    """Return the match if the transposed convolution is quantized and static in size."""
    conv = require_match(
        QuantizedConv.of(node), "the transposed convolution is not quantized, or its weights are not constant"
    )
    shape = require_match(sizes(conv.data.inputs[0]), "the rank of the image is unknown")
    weights = require_match(conv.weights.integers)
    require(weights.ndim == 4 and None not in shape[2:], "the operand is not an image, or a size is dynamic")
    require(integer(node, "group", 1) == 1, "the convolution is grouped")
    require({*ints(node, "dilations", [1, 1])} == {1}, "the convolution is dilated")
    has_explicit_pads = "output_shape" not in node.attributes and "auto_pad" not in node.attributes
    require(has_explicit_pads, "the pads are computed (auto_pad or output_shape)")
    pads, strides = ints(node, "pads", [0] * 4), ints(node, "strides", [1, 1])
    output_padding = ints(node, "output_padding", [0, 0])
    rows, columns = (
        require_match(
            Axis.of(shape[2 + k] or 0, weights.shape[2 + k], strides[k], (pads[k], pads[2 + k]), output_padding[k]),
            "the size of the result is not a multiple of the stride, or a padding would be negative",
        )
        for k in range(2)
    )
    return Match(conv, rows, columns)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the convolution, and Transposes that interleave its channels."""
    conv, rows, columns = match
    weights = convolution_weights(conv.weights, rows, columns)
    assert weights.integers is not None
    features, phase_count = len(weights.integers) // (rows.stride * columns.stride), rows.stride * columns.stride
    with editor.replacing(conv.node):
        operands = [editor.dequantize(weights)]
        if conv.bias is not None:
            operands.append(editor.dequantize(conv.bias.tile(phase_count)))
        value = editor.emit(
            "Conv", conv.data.outputs[0], *operands, kernel_shape=[rows.taps, columns.taps],
            pads=[rows.last_offset, columns.last_offset, rows.end_padding, columns.end_padding],
        )  # fmt: skip
        value = editor.clone_on(conv.quantize, value)
        value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
        phase_shape = [rows.block_count, columns.block_count, rows.stride, columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *phase_shape]), perm=[0, 1, 3, 2, 4, 5])
        image_shape = [rows.block_count * rows.stride, columns.block_count * columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *image_shape]), perm=CHANNELS_FIRST)
    editor.replace_value(conv.quantize.outputs[0], value)


conv_transpose_to_conv = RewriteRule(nodes("ConvTranspose"), check, rewrite)


def convolution_weights(weights: Affine, rows: Axis, columns: Axis) -> Affine:
    """Return the weights of the convolution.

    ``weights``: the weights of the transposed convolution, ``[c, o, y, x]``. The result has shape
    ``[row phases * column phases * o, c, row taps, column taps]``.
    """
    assert weights.integers is not None
    zero = weights.zero_point.reshape((1, -1, 1, 1) if weights.zero_point.ndim else ())
    centered = np.pad(weights.integers.astype(np.int32) - zero.astype(np.int32), ((0, 0), (0, 0), (0, 1), (0, 1)))
    y, x = rows.weight_indices(), columns.weight_indices()  # index -1 selects the row or column of zeros
    phases = centered[:, :, y[:, None, :, None], x[None, :, None, :]]
    stored = phases.transpose(2, 3, 1, 0, 4, 5) + zero.astype(np.int32).reshape((-1, 1, 1, 1) if zero.ndim else ())
    integers = stored.reshape(-1, len(centered), rows.taps, columns.taps).astype(weights.integers.dtype)
    return weights.tile(rows.stride * columns.stride, integers)
