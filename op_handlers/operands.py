"""What families that move data have in common: axes that keep their place, and operands that hold whole numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Attribute, Context, Operator, Quantization, Value, out, spelled
from onnx_tflite_plugin.api.axes import letters


def in_place(op: Operator, outputs: int = 1) -> str | None:
    """The outputs have the axes of input 0, of other sizes; ``None`` where the file does not know their rank."""
    names = letters(op[0].rank)
    return spelled([names], *[names] * outputs) if op[out(0)].rank == len(names) else None


def any_order(op: Operator, axes: Iterable[int]) -> Attribute:
    """Elements may come in any order along these axes of input 0: the operator leaves them as they are."""
    return Attribute(unordered=" ".join(f"a{axis}" for axis in axes))


def whole_numbers(op: Operator, slot: int) -> list[int] | None:
    """A constant operand's elements; ``None`` where they are known at run time only."""
    held = op.constant(slot)
    return None if held is None else [int(number) for number in held.reshape(-1)]


def as_int64(ctx: Context, slot: int, value: Value) -> Any:
    """An operand as ONNX wants sizes and positions: an int64 array where it is constant, else a value."""
    constant = ctx.constant(slot)
    return ctx.ops.Cast(value, to="int64") if constant is None else constant.astype(np.int64)


def signed_bytes(ctx: Context, slot: int, weight: Value) -> Any:
    """A weight as it is; but under real activations uint8 is read as int8, its zero point ignored.

    The first dynamic-range files keep signed weights so (EvalHybrid, kernels/conv.cc and fully_connected.cc).
    """
    held, quantization = ctx.constant(slot), ctx.op[slot].quantization
    if (
        ctx.op[slot].dtype != "uint8"
        or ctx.op[0].dtype != "float32"
        or held is None
        or not isinstance(quantization, Quantization)
    ):
        return weight
    return held.view(np.int8).astype(np.float32) * np.float32(quantization.scale[0])
