"""Dtypes that TFLite's kernels take and runtimes have no kernel for."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context

WIDER = {"int16": "int32", "bfloat16": "float32"}
CHOSEN_AS = {"bool": "uint8", "int16": "int32", "uint16": "int32", "bfloat16": "float32"}


def widened(ctx: Context, onnx: str, *operands: Any) -> Any:
    """An ONNX operator, in a wider dtype where the file's is one that runtimes have no kernel for."""
    dtype, emit = ctx.dtype(0), getattr(ctx.ops, onnx)
    wide = WIDER.get(dtype)
    if wide is None or (ctx.quantized and not ctx.integers):
        return emit(*operands)
    return ctx.ops.Cast(emit(*(ctx.ops.Cast(operand, to=wide) for operand in operands)), to=dtype)


def where(ctx: Context, dtype: str, condition: Any, x: Any, y: Any) -> Any:
    """``Where`` of two values of ``dtype``, in a wider one where runtimes have no kernel for it."""
    ops, wide = ctx.ops, CHOSEN_AS.get(dtype)
    if wide is None:
        return ops.Where(condition, x, y)
    return ops.Cast(ops.Where(condition, ops.Cast(x, to=wide), ops.Cast(y, to=wide)), to=dtype)
