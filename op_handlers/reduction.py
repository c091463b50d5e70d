"""Reductions over axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Attribute,
    Context,
    Dequantized,
    Operator,
    Raw,
    Refused,
    handler,
    out,
    reduced_by,
)
from onnx_tflite_plugin.api.axes import constant_axes


def along(onnx: str) -> Any:
    """The emitted operator runs along the axes that slot 1 holds."""

    def found(op: Operator) -> Along | None:
        reduced = constant_axes(op, 1, op[0].rank)
        return None if reduced is None else Along(onnx, " ".join(f"a{axis}" for axis in reduced))

    return found


@handler(
    "MEAN",
    max_version=3,
    layout=Attribute(unordered="*"),
    axes=reduced_by(1),
    along=along("ReduceMean"),
    holds_axes={1},
    quantization=Dequantized(),
)
def mean(ctx: Context, x: Any, axes: Any) -> Any:
    """ReduceMean; over all trailing axes GlobalAveragePool, which fuses. Integers are divided towards zero."""
    held, keep = ctx.constant(1), bool(ctx.options.keep_dims)
    if held is None:
        return reduced(ctx, "ReduceMean", x, axes, keep)
    over = sorted({int(a) for a in held.reshape(-1)})
    if not over:
        return x
    if ctx.op[0].dtype in ("int32", "int64"):
        total = reduced(ctx, "ReduceSum", x, np.asarray(over), keep)
        return ctx.ops.Div(total, np.asarray(prod(ctx.shape(0)[a] or 1 for a in over), ctx.op[0].dtype))
    if ctx.target.fuses_global_average_pool and len(over) >= 1 and over == list(range(2, ctx.op[0].rank)):
        pooled = ctx.quantize(ctx.ops.GlobalAveragePool(x), like=out(0))
        return pooled if keep else ctx.ops.Squeeze(pooled, over)
    return reduced(ctx, "ReduceMean", x, np.asarray(over), keep)


def reduced(ctx: Context, onnx: str, x: Any, axes: Any, keep: bool) -> Any:
    """``Reduce*``: axes are an input from opset 18 on (ReduceSum: 13), an attribute before; none are the identity."""
    if ctx.opset >= (13 if onnx == "ReduceSum" else 18):
        operand = axes.astype(np.int64) if isinstance(axes, np.ndarray) else ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64")
        return getattr(ctx.ops, onnx)(x, operand, keepdims=int(keep), noop_with_empty_axes=1)
    if not isinstance(axes, np.ndarray):
        raise Refused(f"axes known only at run time need opset 18 for {onnx}; try --opset 18")
    return getattr(ctx.ops, onnx)(x, axes=list(axes), keepdims=int(keep))


@handler(
    "ARG_MAX",
    max_version=3,
    layout=Attribute(),
    axes=reduced_by(1, keep=lambda op: False),
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
