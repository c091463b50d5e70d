"""Dynamic quantization: float32 activations times int8 weights, the activations quantized at run time as the kernels do.

LiteRT's kernels give each row a scale (EvalHybrid, kernels/fully_connected.cc and conv.cc; XNNPACK's qd8 operators),
DynamicQuantizeLinear one to the whole tensor. The sums are integers, and become float32 by both scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Implicit,
    Integer,
    Match,
    Operator,
    Options,
    Quantization,
    Value,
    conv_pads,
    fusion,
    operands,
    out,
)
from op_handlers.image.convolution import steps
from op_handlers.kernels.operands import parameters
from op_handlers.matrix.fully_connected import contracted, dense_axes, in_rows, leads, with_leading

x, b = operands("x b")
(w,) = operands("w", constant=True)
FUSED = "fused_activation_function"


NOT_MEANT = Decline("")
Rows = Callable[[Value, Value], Value]
"""The rows of a product from stored integers and their zero point."""


def symmetric(match: Match) -> bool:
    """Int8 or int4 weights without zero points, with one scale or one per output channel, under float32 activations."""
    quantization = match[w].quantization
    hybrid = match[x].dtype == "float32" and match[w].dtype in ("int8", "int4")
    return (
        hybrid
        and isinstance(quantization, Quantization)
        and not any(quantization.zero_point)
        and quantization.axis == 0
    )


def product(
    ctx: Context, x: Value, weights: Array, bias: Value | None, rows: Rows = lambda stored, _zero: stored
) -> Value:
    """What is quantized of ``x``, as ``rows``, times weights [k, o]; dequantized by its scale and those of the operator's weight."""
    quantization = parameters(ctx.op[1])
    stored, scale, zero = ctx.ops.DynamicQuantizeLinear(x)
    sums = ctx.ops.Cast(ctx.ops.MatMulInteger(rows(stored, zero), weights.astype(np.int8), zero), to="float32")
    real = ctx.ops.Mul(sums, ctx.ops.Mul(scale, np.asarray(quantization.scale, np.float32)))
    return real if bias is None else ctx.ops.Add(real, bias)


# --- dense layers -----------------------------------------------------------------------------

LARGE = 2**20
"""Products from which many rows are faster so, or the patches of a convolution."""
WEIGHTS = 2**17
"""Weights from which a single row is: 0.97 of the time of Gemm with weights in the cache, 0.66 without, with VNNI; 0.86 and
0.46 on AVX2. Half as many take 1.15 and 0.93.
"""


def large(match: Match) -> Mapping[str, Any] | Decline:
    """Whether reading the weights, or the number of rows, is what takes the time."""
    weights = prod(match[w].shape)
    rows = prod(size or 1 for size in match[x].dims) // max(match[w].shape[-1], 1)
    if not symmetric(match) or (weights < WEIGHTS and weights * min(rows, 16) < LARGE):
        return NOT_MEANT
    ((_, dense),) = match.calls.items()
    return dict(dense.options)


@fusion(
    "FULLY_CONNECTED_DYNAMIC",
    pattern=[Call("FULLY_CONNECTED", x, w, b), Call("FULLY_CONNECTED", x, w)],
    inputs=(x, w, b),
    where=large,
    trait="multiplies_dynamically",
    layout=contracted,
    axes=dense_axes,
    reshapes=in_rows,
    quantization=Integer(),
    activation=FUSED,
)
def fully_connected_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """MatMulInteger of what DynamicQuantizeLinear makes of the rows."""
    depth = ctx.op[1].shape[-1]
    if leads(ctx):
        y = product(ctx, ctx.ops.Reshape(x, [-1, depth]), ctx.required(1).reshape(-1, depth).T, b)
        return with_leading(ctx, x, y)
    return product(ctx, x, ctx.required(1).reshape(-1, depth).T, b)


# --- convolutions -----------------------------------------------------------------------------


def worthwhile(match: Match) -> Mapping[str, Any] | Decline:
    """Whether there are products enough for what the quantization and the patches cost."""
    ((_, conv),) = match.calls.items()
    if not symmetric(match) or match[x].rank != 4 or conv[out(0)].rank != 4:
        return NOT_MEANT
    (_, *size, channels), (outputs, *kernel, depth) = match[x].dims, match[w].shape
    if channels != depth or None in size or None in conv[out(0)].dims:
        return Decline("it has groups, or sizes known only at run time")
    products = prod(kernel) * depth * outputs * prod(n or 1 for n in conv[out(0)].dims[:3])
    if products < LARGE or prod(kernel) * depth < 64 or outputs < 24:
        return NOT_MEANT
    if conv.options.get("pads"):
        return dict(conv.options)
    top, left, bottom, right = conv_pads(conv.options.padding, tuple(size), kernel, *steps(conv.options, "hw"))
    return {**conv.options, "pads": {"h": (top, bottom), "w": (left, right)}}


def of_pixels(match: Match) -> Mapping[str, Any] | Decline:
    """As ``worthwhile``, where each row of the product is one pixel as it stands."""
    options = worthwhile(match)
    if isinstance(options, Decline):
        return options
    plain = match[w].shape[1:3] == (1, 1) and steps(Options("", options), "hw")[0] == [1, 1]
    return options if plain and not any(map(any, options["pads"].values())) else NOT_MEANT


CHANNELS_LAST = Implicit(onnx={0: "n h w c", 1: "j k i o", out(0): "n y x o"})
AXES = "n h w c, o j k i, o -> n y x o"


@fusion(
    "POINTWISE_CONV_2D_DYNAMIC",
    pattern=[Call("CONV_2D", x, w, b), Call("CONV_2D", x, w)],
    inputs=(x, w, b),
    where=of_pixels,
    trait="multiplies_dynamically",
    layout=CHANNELS_LAST,
    axes=AXES,
    quantization=Integer(),
    activation=FUSED,
)
def pointwise_conv_2d_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """MatMulInteger of what DynamicQuantizeLinear makes of the pixels."""
    return product(ctx, x, kernel_rows(ctx), b)


@fusion(
    "CONV_2D_DYNAMIC",
    pattern=[Call(code, x, w, *bias) for code in ("CONV_2D", "CONV_2D_PADDED") for bias in ((b,), ())],
    inputs=(x, w, b),
    where=worthwhile,
    exact=False,
    trait="multiplies_dynamically",
    layout=CHANNELS_LAST,
    axes=AXES,
    quantization=Integer(),
    activation=FUSED,
)
def conv_2d_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """MatMulInteger of the patches under the kernel; two to three times as fast as Conv in float32."""
    return product(ctx, x, kernel_rows(ctx), b, rows=partial(patches, ctx))


def kernel_rows(ctx: Context) -> Array:
    """The weight as [(j k i), o]."""
    weights = ctx.required(1)
    return weights.reshape(-1, weights.shape[-1])


def patches(ctx: Context, image: Value, zero: Value) -> Value:
    """[n, y, x, (j k i)] of [n, h, w, i]: for each place of the kernel the image shifted so, side by side."""
    kernel, (height, width) = ctx.op[1].shape[1:3], output_size(ctx.op)
    strides, dilations = steps(ctx.options, "hw")
    (top, bottom), (left, right) = (ctx.options.pads[axis] for axis in "hw")
    if any((top, bottom, left, right)):
        image = ctx.ops.Pad(image, [0, top, left, 0, 0, bottom, right, 0], zero)
    reach = [(height - 1) * strides[0] + 1, (width - 1) * strides[1] + 1]
    shifted = []
    for j, k in np.ndindex(*kernel):
        start = [int(j) * dilations[0], int(k) * dilations[1]]
        end = [first + size for first, size in zip(start, reach, strict=True)]
        shifted.append(ctx.ops.Slice(image, start, end, [1, 2], strides))
    return shifted[0] if len(shifted) == 1 else ctx.ops.Concat(*shifted, axis=-1)


def output_size(op: Operator) -> tuple[int, int]:
    _, height, width, _ = op[out(0)].dims
    return height or 0, width or 0
