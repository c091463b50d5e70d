"""Functions of one operand, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Context, Dequantized, Raw, Transparent, handler, out
from op_handlers.kernels.tables import looked_up, words_by_table
from op_handlers.kernels.widening import widened


@handler("ABS", max_version=5, layout=Transparent(), quantization=Dequantized())
def absolute(ctx: Context, x: Any) -> Any:
    """Abs."""
    return ctx.ops.Abs(x)


@handler("FLOOR", max_version=1, layout=Transparent())
def floor(ctx: Context, x: Any) -> Any:
    """Floor."""
    return widened(ctx, "Floor", x)


@handler("NEG", max_version=1, layout=Transparent(), quantization=Raw())
def neg(ctx: Context, x: Any) -> Any:
    """Neg; the kernel negates the stored value and ignores the zero point (neg.cc)."""
    return ctx.ops.Neg(x)


@handler("SQUARE", max_version=1, layout=Transparent())
def square(ctx: Context, x: Any) -> Any:
    """Itself times itself."""
    return ctx.ops.Mul(x, x)


@handler("EXP", max_version=2, layout=Transparent(), quantization=words_by_table)
def exponential(ctx: Context, x: Any) -> Any:
    """Exp; of int16 a table (exp.cc)."""
    return looked_up(ctx, x, np.exp) if ctx.integers else ctx.ops.Exp(x)


@handler("LOG", max_version=2, layout=Transparent(), quantization=words_by_table)
def logarithm(ctx: Context, x: Any) -> Any:
    """Log, of int16 a table; numbers up to 0 give the quantized dtype's lowest (LogLUTPrepare, elementwise.cc)."""
    made = ctx.quantization(out(0))
    if made is None:
        return ctx.ops.Log(x)
    if not ctx.integers:
        return ctx.ops.Log(ctx.ops.Max(x, 0.0))
    lowest = np.float32(-32768) * np.float32(made.scale[0])
    return looked_up(ctx, x, lambda real: np.where(real > 0, np.log(np.abs(real)), lowest))


@handler("SQRT", max_version=2, layout=Transparent(), quantization=Dequantized())
def square_root(ctx: Context, x: Any) -> Any:
    """Sqrt; the kernel cuts its integers off where others round (SqrtEvalQuantized, elementwise.cc)."""
    root, made = ctx.ops.Sqrt(x), ctx.quantization(out(0))
    return root if made is None else ctx.ops.Mul(ctx.ops.Floor(ctx.ops.Div(root, made.scale[0])), made.scale[0])


@handler("RSQRT", max_version=3, layout=Transparent(), quantization=words_by_table)
def reciprocal_square_root(ctx: Context, x: Any) -> Any:
    """Reciprocal of Sqrt, of int16 a table; a quantized zero gives the dtype's highest, as infinity does."""
    made = ctx.quantization(out(0))
    if made is None or not ctx.integers:
        return ctx.ops.Reciprocal(ctx.ops.Sqrt(x))
    highest = np.float32(32767) * np.float32(made.scale[0])
    return looked_up(ctx, x, lambda real: np.where(real > 0, 1 / np.sqrt(np.abs(real)), highest))
