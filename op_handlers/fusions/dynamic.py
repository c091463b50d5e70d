"""Dynamic quantization: products of float32 activations and int8 weights.

The activations are quantized at runtime, as in LiteRT's kernels. LiteRT uses a scale per row (EvalHybrid,
kernels/fully_connected.cc and conv.cc; XNNPACK's qd8 operators), but DynamicQuantizeLinear uses one scale per tensor.
Integer sums are converted to float32 with the scales of both operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Implicit,
    Integer,
    Match,
    Quantization,
    Value,
    conv_pads,
    fusion,
    operands,
    out,
)
from op_handlers.image.convolution import conv_2d, strides_and_dilations
from op_handlers.kernels.hybrid import is_shallow
from op_handlers.kernels.operands import require_quantization
from op_handlers.matrix.fully_connected import (
    dense_axes,
    dense_layout,
    flatten_bias,
    fully_connected,
    has_dynamic_leading_axes,
    matrix_shapes,
    restore_leading_axes,
)

x, b = operands("x b")
(w,) = operands("w", constant=True)

NO_MATCH = Decline("")
Arrange = Callable[[Value, Value], Value]
"""Function that returns quantized values as the left matrix of a product, given their zero point."""


def has_symmetric_weights(match: Match) -> bool:
    """True for float32 activations and symmetric int8 or int4 weights.

    The weights may have one scale, or a scale per output channel.
    """
    quantization = match[w].quantization
    is_hybrid = match[x].dtype == "float32" and match[w].dtype in ("int8", "int4")
    return (
        is_hybrid
        and isinstance(quantization, Quantization)
        and not any(quantization.zero_point)
        and quantization.axis == 0
    )


def emit_dynamic_product(
    ctx: Context,
    x: Value,
    weights: Array,
    bias: Value | None,
    arrange: Arrange = lambda quantized, _zero_point: quantized,
) -> Value:
    """Emit the product of dynamically quantized ``x`` and weights [k, o].

    ``arrange``: function that returns the quantized values as the left matrix of the product.
    """
    quantization = require_quantization(ctx.op[1])
    quantized, scale, zero_point = ctx.ops.DynamicQuantizeLinear(x)
    sums = ctx.ops.Cast(
        ctx.ops.MatMulInteger(arrange(quantized, zero_point), weights.astype(np.int8), zero_point), to="float32"
    )
    result = ctx.ops.Mul(sums, ctx.ops.Mul(scale, np.asarray(quantization.scale, np.float32)))
    return result if bias is None else ctx.ops.Add(result, bias)


# --- dense layers -----------------------------------------------------------------------------

MIN_PRODUCTS = 2**20
"""Minimum multiplications for which MatMulInteger is faster than a convolution or a float product of several rows."""
MIN_WEIGHTS = 2**17
"""Minimum number of weights for which MatMulInteger is faster than a float product of one row.

Time relative to Gemm with VNNI: 0.97 if the weights are in the processor's cache, 0.66 otherwise. On AVX2: 0.86 and
0.46. For half as many weights with VNNI: 1.15 and 0.93.
"""
MIN_TERMS, MIN_FEATURES, MIN_CHANNELS = 64, 24, 16
"""Minimum terms of a sum, output channels and (unless the kernel is 1 x 1) input channels.

For smaller convolutions, MatMulInteger is not faster than Conv. Time relative to Conv, for 48 x 48 pixels with 16 input
and 96 output channels: 0.87 with VNNI, 1.16 on AVX2. With 256 input and 128 output channels: 0.37 and 0.77. Gathering
patches of 3 channels takes longer than a float32 convolution of them.
"""


def match_large_dense(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of a dense layer for which MatMulInteger is faster."""
    weights = prod(match[w].shape)
    rows = prod(size or 1 for size in match[x].dims) // max(match[w].shape[-1], 1)
    if not has_symmetric_weights(match) or (weights < MIN_WEIGHTS and weights * min(rows, 16) < MIN_PRODUCTS):
        return NO_MATCH
    ((_, dense),) = match.calls.items()
    return dict(dense.options)


@fusion(
    "FULLY_CONNECTED_DYNAMIC",
    pattern=[Call("FULLY_CONNECTED", x, w, b), Call("FULLY_CONNECTED", x, w)],
    inputs=(x, w, b),
    check=match_large_dense,
    trait="fast_dynamic_quantization",
    layout=dense_layout,
    axes=dense_axes,
    reshapes=matrix_shapes,
    quantization=Integer(constants=(1,)),
    activation=fully_connected.activation,
)
def fully_connected_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """Emit MatMulInteger of dynamically quantized rows."""
    depth, b = ctx.op[1].shape[-1], flatten_bias(ctx, b)
    if has_dynamic_leading_axes(ctx):
        y = emit_dynamic_product(ctx, ctx.ops.Reshape(x, [-1, depth]), ctx.require_constant(1).reshape(-1, depth).T, b)
        return restore_leading_axes(ctx, x, y)
    return emit_dynamic_product(ctx, x, ctx.require_constant(1).reshape(-1, depth).T, b)


# --- convolutions -----------------------------------------------------------------------------


def match_large_conv(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of a convolution for which MatMulInteger is faster.

    The options contain explicit pads. All images of a batch share one scale; LiteRT uses one scale per image.
    """
    (conv,) = match.calls.values()
    if not has_symmetric_weights(match) or match[x].rank != 4 or conv[out(0)].rank != 4:
        return NO_MATCH
    (batch, *size, channels), (features, *kernel, filter_channels) = match[x].dims, match[w].shape
    if channels != filter_channels or None in (*size, *conv[out(0)].dims[1:3]):
        return Decline("the convolution has groups, or the image has a dynamic shape")
    weight_count, position_count = prod(match[w].shape), prod(n or 1 for n in conv[out(0)].dims[:3])
    if weight_count < MIN_WEIGHTS and weight_count * position_count < MIN_PRODUCTS:
        return NO_MATCH
    has_few_channels = prod(kernel) > 1 and filter_channels < MIN_CHANNELS
    if has_few_channels or prod(kernel) * filter_channels < MIN_TERMS or features < MIN_FEATURES:
        return NO_MATCH
    if batch is None and is_shallow(match.graphs[conv.subgraph]):
        return Decline("the batch size is dynamic, and LiteRT uses a scale per image")
    if conv.options.get("pads"):
        return dict(conv.options)
    top, left, bottom, right = conv_pads(
        conv.options.padding, tuple(size), kernel, *strides_and_dilations(conv.options, "hw")
    )
    return {**conv.options, "pads": {"h": (top, bottom), "w": (left, right)}}


@fusion(
    "CONV_2D_DYNAMIC",
    pattern=[Call(code, x, w, *bias) for code in ("CONV_2D", "CONV_2D_PADDED") for bias in ((b,), ())],
    inputs=(x, w, b),
    check=match_large_conv,
    trait="fast_dynamic_quantization",
    layout=Implicit(onnx={0: "n h w c", 1: "j k i o", out(0): "n y x o"}),
    axes="n h w c, o j k i, o -> n y x o",
    quantization=Integer(constants=(1,)),
    activation=conv_2d.activation,
)
def conv_2d_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """Emit MatMulInteger of patches, or of pixels if the kernel is 1 x 1."""
    rows, columns = (KernelReach.along(ctx, axis) for axis in (1, 2))
    weights = ctx.require_constant(1)[rows.taps, columns.taps]
    arrange = partial(gather_patches, ctx, rows, columns)
    return emit_dynamic_product(ctx, x, weights.reshape(-1, weights.shape[-1]), b, arrange)


class KernelReach(NamedTuple):
    """The positions that a convolution kernel reads along one axis.

    ``taps``: the elements of the kernel that reach the image. ``positions``: the positions that the taps read,
    [size of the result, taps]. Positions below 0 or from ``size`` on are padding. ``size``: the size of the image.
    """

    taps: slice
    positions: Array
    size: int

    @classmethod
    def along(cls, ctx: Context, axis: int) -> KernelReach:
        """Return the reach along an axis of the image."""
        letter, size, output_size = "_hw"[axis], ctx.op[0].dims[axis] or 0, ctx.op[out(0)].dims[axis] or 0
        (stride,), (dilation,) = strides_and_dilations(ctx.options, letter)
        padding, _ = ctx.options.pads[letter]
        positions = np.add.outer(np.arange(output_size) * stride, np.arange(ctx.op[1].shape[axis]) * dilation) - padding
        inside = np.flatnonzero(((positions >= 0) & (positions < size)).any(axis=0))
        taps = slice(inside[0], inside[-1] + 1) if inside.size else slice(0, 1)
        return cls(taps, positions[:, taps], size)

    @property
    def pads(self) -> tuple[int, int]:
        """The number of padding elements at the beginning and the end."""
        return max(0, -int(self.positions.min(initial=0))), max(0, int(self.positions.max(initial=0)) + 1 - self.size)

    @property
    def is_identity(self) -> bool:
        """True if the kernel reads each element once, in order."""
        return self.positions.shape == (self.size, 1) and not any(self.pads)


def gather_patches(ctx: Context, rows: KernelReach, columns: KernelReach, image: Value, zero_point: Value) -> Value:
    """Return the pixels that the kernel reads for each pixel of the result.

    The image has shape [n, h, w, i], the result [n, y, x, j * k * i].
    """
    if rows.is_identity and columns.is_identity:
        return image
    (top, bottom), (left, right) = rows.pads, columns.pads
    if any((top, bottom, left, right)):
        image = ctx.ops.Pad(image, [0, top, left, 0, 0, bottom, right, 0], zero_point)
    row_starts = (rows.positions + top) * (left + columns.size + right)
    indices = row_starts[:, None, :, None] + (columns.positions + left)[:, None, :]  # [y, x, j, k]
    height, width, *_ = indices.shape
    pixels = ctx.ops.Reshape(image, [0, -1, ctx.op[1].shape[-1]])
    patches = ctx.ops.Gather(pixels, indices.reshape(height * width, -1).astype(np.int32), axis=1)
    return ctx.ops.Reshape(patches, [0, height, width, -1])
