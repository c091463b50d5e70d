"""Dtypes that TFLite's kernels take and runtimes have no kernel for."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context

WIDER = {"int16": "int32", "bfloat16": "float32"}
CHOSEN_AS = {"bool": "uint8", "int16": "int32", "uint16": "int32", "bfloat16": "float32"}


def widened(ctx: Context, onnx: str, *operands: Any) -> Any:
    """An ONNX operator, in a wider dtype where the file's is one that runtimes have no kernel for."""
    dtype = ctx.dtype(0)
    real = ctx.quantized and not ctx.integers
    return computed_in(ctx, None if real else WIDER.get(dtype), dtype, onnx, *operands)


def computed_in(ctx: Context, wide: str | None, dtype: str, onnx: str, *operands: Any) -> Any:
    """An ONNX operator on operands of ``dtype`` in another one, or as they are where ``wide`` is ``None``."""
    emit = getattr(ctx.ops, onnx)
    if wide is None:
        return emit(*operands)
    return ctx.ops.Cast(emit(*(ctx.ops.Cast(operand, to=wide) for operand in operands)), to=dtype)


def where(ctx: Context, dtype: str, condition: Any, x: Any, y: Any) -> Any:
    """``Where`` of two values of ``dtype``, in a wider one where runtimes have no kernel for it."""
    ops, wide = ctx.ops, CHOSEN_AS.get(dtype)
    if wide is None:
        return ops.Where(condition, x, y)
    return ops.Cast(ops.Where(condition, ops.Cast(x, to=wide), ops.Cast(y, to=wide)), to=dtype)
