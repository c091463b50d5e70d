"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Attribute,
    Behaviour,
    Context,
    Decline,
    Dequantized,
    Handler,
    Instance,
    Raw,
    Refused,
    constant_axes,
    handler,
    out,
    reduced_by,
)


def along(onnx: str) -> Any:
    """The emitted operator runs along the axes that slot 1 holds."""

    def found(at: Instance) -> Along | None:
        reduced = constant_axes(at.op, 1, at.op[0].rank)
        return None if reduced is None else Along(onnx, " ".join(f"a{axis}" for axis in reduced))

    return found


def reduction(
    code: str,
    onnx: str,
    *,
    max_version: int,
    quantization: Behaviour,
    accepts: Callable[[Instance], Decline | None] | None = None,
) -> Callable[[Callable[..., Any]], Handler]:
    """A reduction over the axes that slot 1 holds, in any order."""
    return handler(
        code,
        max_version=max_version,
        layout=Attribute(unordered="*"),
        axes=reduced_by(1),
        along=along(onnx),
        holds_axes={1},
        quantization=quantization,
        accepts=accepts,
    )


def summed(at: Instance) -> Decline | None:
    """The kernel takes bare 8 and 16 bit integers to be quantized, and divides by their scale of 0."""
    op = at.op
    if op[0].dtype in ("float32", "int32", "int64") or op[0].quantization is not None:
        return None
    return Decline(f"it sums {op[0].dtype} without a scale, which no kernel does; give it a scale, or cast it to int32")


@reduction("MEAN", "ReduceMean", max_version=3, quantization=Dequantized())
def mean(ctx: Context, x: Any, axes: Any) -> Any:
    """ReduceMean; over all trailing axes GlobalAveragePool, which fuses. Integers are divided towards zero."""
    over = held_axes(ctx)
    if not over:
        return reduced(ctx, "ReduceMean", x, axes)
    if ctx.op[0].dtype in ("int32", "int64"):
        total = reduced(ctx, "ReduceSum", x, axes)
        return ctx.ops.Div(total, np.asarray(prod(ctx.shape(0)[a] or 1 for a in over), ctx.op[0].dtype))
    if ctx.target.fuses_global_average_pool and over == list(range(2, ctx.op[0].rank)):
        pooled = ctx.quantize(ctx.ops.GlobalAveragePool(x), like=out(0))
        return pooled if ctx.options.keep_dims else ctx.ops.Squeeze(pooled, over)
    return reduced(ctx, "ReduceMean", x, axes)


@reduction("SUM", "ReduceSum", max_version=2, quantization=Dequantized(), accepts=summed)
def total(ctx: Context, x: Any, axes: Any) -> Any:
    """ReduceSum; the sum of integers is rescaled to the output's parameters."""
    return reduced(ctx, "ReduceSum", x, axes)


@reduction("REDUCE_MAX", "ReduceMax", max_version=3, quantization=Raw(shift_safe=True))
def reduce_max(ctx: Context, x: Any, axes: Any) -> Any:
    """ReduceMax; quantized elements are compared as stored, whatever the output's parameters."""
    return extreme(ctx, "ReduceMax", x, axes)


@reduction("REDUCE_MIN", "ReduceMin", max_version=3, quantization=Raw(shift_safe=True))
def reduce_min(ctx: Context, x: Any, axes: Any) -> Any:
    """ReduceMin; as ReduceMax."""
    return extreme(ctx, "ReduceMin", x, axes)


def extreme(ctx: Context, onnx: str, x: Any, axes: Any) -> Any:
    """In a wider dtype where ONNX has none of the operand's own."""
    if 0 in (ctx.shape(0)[a] for a in held_axes(ctx) or ()):
        raise Refused("it seeks the extreme of no elements; give sizes above 0 with --input-shape")
    narrow = ctx.dtype(0)
    wide = {"int16": "int32", "bool": "uint8"}.get(narrow)
    if wide is None:
        return reduced(ctx, onnx, x, axes)
    return ctx.ops.Cast(reduced(ctx, onnx, ctx.ops.Cast(x, to=wide), axes), to=narrow)


def held_axes(ctx: Context) -> list[int] | None:
    """The axes a constant operand holds, each once, in planned order; a scalar input has none."""
    held = ctx.constant(1) if ctx.op[0].rank else np.zeros(0, np.int64)
    return None if held is None else sorted({int(axis) for axis in held.reshape(-1)})


def reduced(ctx: Context, onnx: str, x: Any, axes: Any) -> Any:
    """``Reduce*``; no axes are the identity. An input from opset 18 on (ReduceSum: 13), an attribute before."""
    over, keep = held_axes(ctx), int(bool(ctx.options.keep_dims))
    if over == []:
        return x
    if ctx.opset >= (13 if onnx == "ReduceSum" else 18):
        operand = ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64") if over is None else over
        return getattr(ctx.ops, onnx)(x, operand, keepdims=keep, noop_with_empty_axes=1)
    if over is None:
        raise Refused(f"axes known only at run time need opset 18 for {onnx}; try --opset 18")
    return getattr(ctx.ops, onnx)(x, axes=over, keepdims=keep)


@handler(
    "ARG_MAX",
    max_version=3,
    layout=Attribute(),
    axes=reduced_by(1, keep=lambda at: False),
    along=along("ArgMax"),
    holds_axes={1},
    requires_constant={1},
    quantization=Raw(shift_safe=True, onnx="ArgMax"),
)
def arg_max(ctx: Context, x: Any, _axis: Any) -> Any:
    """ArgMax; the first of equals, as the kernel does."""
    axis = ctx.constant(1)
    assert axis is not None
    if ctx.op[0].dtype == "bool":
        x = ctx.ops.Cast(x, to="uint8")
    found = ctx.ops.ArgMax(x, axis=int(axis.reshape(-1)[0]), keepdims=0)
    return found if ctx.op[out(0)].dtype == "int64" else ctx.ops.Cast(found, to=ctx.op[out(0)].dtype)
