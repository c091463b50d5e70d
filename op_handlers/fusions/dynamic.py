"""Dynamic quantization: float32 activations times int8 weights, the activations quantized at run time as the kernels do.

LiteRT's kernels give each row a scale (EvalHybrid, kernels/fully_connected.cc and conv.cc; XNNPACK's qd8 operators),
DynamicQuantizeLinear one to the whole tensor. The sums are integers, and become float32 by both scales.
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
from op_handlers.image.convolution import conv_2d, steps
from op_handlers.kernels.hybrid import is_shallow
from op_handlers.kernels.operands import require_quantization
from op_handlers.matrix.fully_connected import (
    bias_of_rows,
    contracted,
    dense_axes,
    fully_connected,
    in_rows,
    leads,
    with_leading,
)

x, b = operands("x b")
(w,) = operands("w", constant=True)

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
    quantization = require_quantization(ctx.op[1])
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
TERMS, FEATURES, CHANNELS = 64, 24, 16
"""Terms of a sum, sums of a pixel and, for patches, channels under which a convolution is no faster so, on one kind of
processor or both: 16 to 96 channels of 48 x 48 pixels take 0.87 of the time of Conv with VNNI, 1.16 on AVX2; patches of 3 channels
take longer to gather than to multiply as float32. Of 256 to 128 channels: 0.37 and 0.77.
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
    activation=fully_connected.activation,
)
def fully_connected_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """MatMulInteger of what DynamicQuantizeLinear makes of the rows."""
    depth, b = ctx.op[1].shape[-1], bias_of_rows(ctx, b)
    if leads(ctx):
        y = product(ctx, ctx.ops.Reshape(x, [-1, depth]), ctx.required(1).reshape(-1, depth).T, b)
        return with_leading(ctx, x, y)
    return product(ctx, x, ctx.required(1).reshape(-1, depth).T, b)


# --- convolutions -----------------------------------------------------------------------------


def worthwhile(match: Match) -> Mapping[str, Any] | Decline:
    """Whether there are products enough for what the quantization and the patches cost.

    A scale serves all images of a batch, where LiteRT has one for each.
    """
    ((_, conv),) = match.calls.items()
    if not symmetric(match) or match[x].rank != 4 or conv[out(0)].rank != 4:
        return NOT_MEANT
    (batch, *size, channels), (outputs, *kernel, depth) = match[x].dims, match[w].shape
    if channels != depth or None in (*size, *conv[out(0)].dims[1:3]):
        return Decline("it has groups, or an image whose size is known only at run time")
    weights, pixels = prod(match[w].shape), prod(n or 1 for n in conv[out(0)].dims[:3])
    if weights < WEIGHTS and weights * pixels < LARGE:
        return NOT_MEANT
    if prod(kernel) * depth < TERMS or outputs < FEATURES or (prod(kernel) > 1 and depth < CHANNELS):
        return NOT_MEANT
    if batch is None and is_shallow(match.graphs[conv.subgraph]):
        return Decline("its images may be several, which have scales of their own")
    if conv.options.get("pads"):
        return dict(conv.options)
    top, left, bottom, right = conv_pads(conv.options.padding, tuple(size), kernel, *steps(conv.options, "hw"))
    return {**conv.options, "pads": {"h": (top, bottom), "w": (left, right)}}


@fusion(
    "CONV_2D_DYNAMIC",
    pattern=[Call(code, x, w, *bias) for code in ("CONV_2D", "CONV_2D_PADDED") for bias in ((b,), ())],
    inputs=(x, w, b),
    where=worthwhile,
    trait="multiplies_dynamically",
    layout=Implicit(onnx={0: "n h w c", 1: "j k i o", out(0): "n y x o"}),
    axes="n h w c, o j k i, o -> n y x o",
    quantization=Integer(),
    activation=conv_2d.activation,
)
def conv_2d_dynamic(ctx: Context, x: Value, _w: Value, b: Value | None = None) -> Value:
    """MatMulInteger of the patches under the kernel, or of the pixels as they are."""
    rows, columns = (Reach.along(ctx, axis) for axis in (1, 2))
    weights = ctx.required(1)[rows.taps, columns.taps]
    image = partial(patches, ctx, rows, columns)
    return product(ctx, x, weights.reshape(-1, weights.shape[-1]), b, rows=image)


class Reach(NamedTuple):
    """What a kernel reads along one axis: its ``taps`` that reach the image at all, and the ``places`` that they read.

    ``places``: [size of the result, taps], counted from the first of ``size`` elements; those outside are padding.
    """

    taps: slice
    places: Array
    size: int

    @classmethod
    def along(cls, ctx: Context, axis: int) -> Reach:
        letter, size, result = "_hw"[axis], ctx.op[0].dims[axis] or 0, ctx.op[out(0)].dims[axis] or 0
        (stride,), (dilation,) = steps(ctx.options, letter)
        before, _ = ctx.options.pads[letter]
        places = np.add.outer(np.arange(result) * stride, np.arange(ctx.op[1].shape[axis]) * dilation) - before
        reaching = np.flatnonzero(((places >= 0) & (places < size)).any(axis=0))
        taps = slice(reaching[0], reaching[-1] + 1) if reaching.size else slice(0, 1)
        return cls(taps, places[:, taps], size)

    @property
    def pads(self) -> tuple[int, int]:
        """Elements of padding before and behind."""
        return max(0, -int(self.places.min(initial=0))), max(0, int(self.places.max(initial=0)) + 1 - self.size)

    @property
    def plain(self) -> bool:
        """Whether each element is read once, as it stands."""
        return self.places.shape == (self.size, 1) and not any(self.pads)


def patches(ctx: Context, rows: Reach, columns: Reach, image: Value, zero: Value) -> Value:
    """[n, y, x, (j k i)] of [n, h, w, i]: for each place of the kernel the pixel under it, side by side."""
    if rows.plain and columns.plain:
        return image
    (top, bottom), (left, right) = rows.pads, columns.pads
    if any((top, bottom, left, right)):
        image = ctx.ops.Pad(image, [0, top, left, 0, 0, bottom, right, 0], zero)
    starts = (rows.places + top) * (left + columns.size + right)
    taken = starts[:, None, :, None] + (columns.places + left)[:, None, :]  # [y, x, j, k]
    height, width, *_ = taken.shape
    pixels = ctx.ops.Reshape(image, [0, -1, ctx.op[1].shape[-1]])
    under = ctx.ops.Gather(pixels, taken.reshape(height * width, -1).astype(np.int32), axis=1)
    return ctx.ops.Reshape(under, [0, height, width, -1])
