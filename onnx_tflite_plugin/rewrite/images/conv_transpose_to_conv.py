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
    """One spatial axis of the convolution that replaces a transposed one.

    The result has ``blocks`` blocks of ``stride`` positions. Position ``stride * q + p`` (block q, phase p) is the sum of
    ``x[q - j] * w[stride * j + p + pad]`` over ``j`` from ``first`` to ``last``. ``kernel``: the size of w. ``after``: the
    padding at the end of x; the padding at its beginning is ``last``.
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
        """Return the axis for a transposed convolution.

        The result is ``None`` if the output size is not a multiple of the stride, or the convolution would need a
        negative padding.
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

    def weight_indices(self) -> Array:
        """Return the index of each weight along the original kernel axis, [stride, taps].

        The index is -1 where a phase has no weight.
        """
        indices = self.stride * (self.last - np.arange(self.taps)) + np.arange(self.stride)[:, None] + self.pad
        return np.where((indices >= 0) & (indices < self.kernel), indices, -1)


class Match(NamedTuple):
    """A quantized transposed convolution with its spatial axes."""

    unit: QuantizedConv
    rows: Axis
    columns: Axis


def check(node: ir.Node) -> Match:
    """Return the match if the transposed convolution is quantized and static in size."""
    unit = require_match(
        QuantizedConv.of(node), "the transposed convolution is not quantized, or its weights are not constant"
    )
    shape = require_match(sizes(unit.data.inputs[0]), "the rank of the image is unknown")
    weights = require_match(unit.weights.integers)
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
    return Match(unit, rows, columns)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the convolution, and Transposes that interleave its channels."""
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
    """Return the weights of the convolution.

    ``weights``: those of the transposed convolution, ``[c, o, y, x]``. The result has shape
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
