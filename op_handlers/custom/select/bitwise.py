"""Bitwise operators on integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Handler, Raw, Transparent, Value, handler
from op_handlers.custom.select.nodedef import PREFIX
from op_handlers.custom.select.rewriting import acceptance_check, make_kernel, rewrite_to, uniform_types
from op_handlers.math import arithmetic as builtin

INTEGERS = "int8 uint8 int16 uint16 int32 uint32"
ALL_INTEGERS = f"{INTEGERS} int64 uint64"


def bitwise_handler(name: str, onnx: str, operands: int, function: Callable[..., Any]) -> Handler:
    """Return the handler of an operator that ONNX also has, under the name ``onnx``."""

    def lower(ctx: Context, *inputs: Value) -> Value:
        result: Value = ctx.ops.named(onnx)(*inputs)
        return result

    lower.__name__, lower.__doc__ = name, f"Emit {onnx}."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        quantization=Raw(),
        min_opset=18,
        types=uniform_types(ALL_INTEGERS, operands),
        accepts=acceptance_check(operands),
        kernel=make_kernel(function),
    )(lower)


bitwise_and = bitwise_handler("BitwiseAnd", "BitwiseAnd", 2, np.bitwise_and)
bitwise_or = bitwise_handler("BitwiseOr", "BitwiseOr", 2, np.bitwise_or)
bitwise_xor = bitwise_handler("BitwiseXor", "BitwiseXor", 2, np.bitwise_xor)
invert = bitwise_handler("Invert", "BitwiseNot", 1, np.invert)


def clip_shift(x: Array, y: Array) -> Array:
    """Return y clipped to the valid shifts of x, 0 ... bits - 1 (bitwise_ops.h)."""
    return np.clip(y, 0, np.iinfo(x.dtype).bits - 1).astype(x.dtype)


right_shift = rewrite_to(
    "RightShift",
    builtin.right_shift,
    make_kernel(lambda x, y: np.right_shift(x, clip_shift(x, y))),
    operands=2,
    types=uniform_types(INTEGERS, 2),
)


@handler(
    PREFIX + "LeftShift",
    max_version=1,
    layout=Transparent(),
    quantization=Raw(),
    types=uniform_types(f"{INTEGERS} int64", 2),
    accepts=acceptance_check(2),
    kernel=make_kernel(lambda x, y: np.left_shift(x, clip_shift(x, y))),
)
def left_shift(ctx: Context, x: Value, y: Value) -> Value:
    """Emit a product with a power of two, because BitShift has no signed integers.

    The product is computed in int64. The Cast drops the bits beyond the dtype, as the kernel does.
    """
    ops, dtype = ctx.ops, ctx.op[0].dtype
    bits = np.iinfo(dtype).bits
    powers = np.left_shift(np.int64(1), np.arange(bits, dtype=np.int64))
    shift = ops.Min(ops.Max(ops.Cast(y, to="int64"), np.int64(0)), np.int64(bits - 1))
    product = ops.Mul(ops.Cast(x, to="int64"), ops.Gather(powers, shift))
    return ops.Cast(product, to=dtype)
