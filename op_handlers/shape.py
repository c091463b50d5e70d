"""Operators that rename, regroup or report axes and move no element."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Attribute, Context, Raw, handler, out, permuted_by, reshaped

COPIED = Raw(shift_safe=True)


@handler("RESHAPE", max_version=1, layout=Attribute(unordered="*"), axes=reshaped, quantization=COPIED)
def reshape(ctx: Context, x: Any, shape: Any = None) -> Any:
    """Reshape to the planned shape; a shape known only at run time is taken as it comes, in source order."""
    if shape is None or ctx.op[1].constant or sum(d is None for d in ctx.op[out(0)].dims) <= 1:
        return ctx.reshaped(x, out(0))
    return ctx.ops.Reshape(x, ctx.ops.Cast(shape, to="int64"), allowzero=1 if ctx.opset >= 14 else None)


@handler("SQUEEZE", max_version=2, layout=Attribute(unordered="*"), axes=reshaped, quantization=COPIED)
def squeeze(ctx: Context, x: Any) -> Any:
    """The same elements in the planned shape."""
    return ctx.reshaped(x, out(0))


@handler(
    "TRANSPOSE",
    max_version=9,
    layout=Attribute(unordered="*"),
    axes=permuted_by(1),
    requires_constant={1},
    quantization=COPIED,
)
def transpose(ctx: Context, x: Any, _perm: Any) -> Any:
    """Only renames axes; where elements must move, the plan has put a Transpose at one of its edges."""
    return ctx.reshaped(x, out(0))


@handler("SHAPE", max_version=1, layout=Attribute(unordered="*"), indexed_by_axis={out(0): 0}, quantization=COPIED)
def shape(ctx: Context, x: Any) -> Any:
    """Shape of the planned order, which the host brings back to the file's; a constant where all sizes are known."""
    dtype = ctx.op[out(0)].dtype
    if ctx.op[0].static:
        return ctx.constant_value(np.asarray(ctx.shape(0), dtype))
    sizes = ctx.ops.Shape(x)
    return sizes if dtype == "int64" else ctx.ops.Cast(sizes, to=dtype)
