"""What families that move data have in common: axes that keep their place, and operands that hold whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Dims,
    Instance,
    Operator,
    Quantization,
    Refused,
    Tensor,
    Value,
    letters,
    out,
    spelled,
)

PLAIN: dict[str, Any] = {"fused_activation_function": "NONE"}
"""Of a pattern's operator: nothing is applied to its result."""
MOST_AXES = 64  # of a tensor, which ONNX Runtime's kernels have fewer of


def in_place(at: Instance, outputs: int = 1) -> str | None:
    """The outputs have the axes of input 0, of other sizes; ``None`` where the file does not know their rank."""
    names = letters(at.op[0].rank)
    return spelled([names], *[names] * outputs) if at.op[out(0)].rank == len(names) else None


def there(operands: Sequence[Value | None]) -> Mapping[int, Value]:
    """By slot, the operands that are not absent."""
    return {slot: value for slot, value in enumerate(operands) if value is not None}


def unless_bare(*dtypes: str) -> Callable[[Instance], Decline | None]:
    """Not of integers of these dtypes without a scale: the kernels take them to be quantized, and divide by a scale of 0."""

    def accepts(at: Instance) -> Decline | None:
        x = at.op[0]
        if x.dtype not in dtypes or x.quantization is not None:
            return None
        text = f"it computes with {x.dtype} without a scale, which its kernel takes for quantized"
        return Decline(f"{text}; give it a scale, or cast it to int32")

    return accepts


def any_order(axes: Iterable[int]) -> Attribute:
    """Elements may come in any order along these axes of input 0: the operator leaves them as they are."""
    return Attribute(unordered=" ".join(f"a{axis}" for axis in axes))


def whole_numbers(op: Operator, slot: int) -> list[int] | None:
    """A constant operand's elements; ``None`` where they are known at run time only. Raises Refused for other than integers."""
    constant = op.constant(slot)
    if constant is not None and constant.dtype.kind not in "iu":
        raise Refused(f"its operand {op[slot].name!r} is {op[slot].dtype}, where integers are taken")
    return None if constant is None else [int(number) for number in constant.reshape(-1)]


def as_operand(at: Instance) -> Dims:
    """Return the shape of operand 0, which is the result's. Raises Refused if the file does not store its rank."""
    if not at.op[0].has_rank:
        raise Refused("the shape of its operand is not known")
    return at.op[0].dims


def sizes_in(slot: int) -> Callable[[Instance], Dims]:
    """The result's sizes are the numbers in an operand: unknown where they are known at run time only."""

    def sizes(at: Instance) -> Dims:
        constant, operand = whole_numbers(at.op, slot), at.op[slot]
        if constant is not None:
            return tuple(constant)
        return unknown_sizes(at.op, operand) if operand.rank == 1 else (None,) * at.op[out(0)].rank

    return sizes


def unknown_sizes(op: Operator, shape: Tensor) -> Dims:
    """As many as a vector has numbers that are known at run time only. Raises Refused for more than a tensor may have axes."""
    rank = op[out(0)].rank if shape.dims[0] is None else shape.dims[0]
    if rank > MOST_AXES:
        raise Refused(f"its shape has {rank} sizes")
    return (None,) * rank


def as_int64(ctx: Context, slot: int, value: Value) -> Value | Array:
    """An operand as ONNX wants sizes and positions: an int64 array where it is constant, else a value."""
    constant = ctx.constant(slot)
    return ctx.ops.Cast(value, to="int64") if constant is None else constant.astype(np.int64)


def scalar(ctx: Context, slot: int, value: Value) -> Value:
    """A number that may stand in an array. Raises Refused for an array of several."""
    tensor = ctx.op[slot]
    if tensor.static and prod(tensor.shape) != 1:
        raise Refused(f"its operand {tensor.name!r} is of shape {list(tensor.shape)}, where one number is taken")
    return value if tensor.rank == 0 else ctx.ops.Reshape(value, np.zeros(0, np.int64))


def packed_weights(op: Operator, unpacked: Mapping[str, Collection[str]]) -> Decline | None:
    """Why weights of 4 or 2 bits in slot 1 are not taken; ``known``: which the kernel unpacks, by the input's dtype.

    Others it reads as if there were one in a byte, past their end, and what it computes is nothing.
    """
    x, w = op[0], op[1]
    if w.dtype not in ("int4", "int2", "uint4"):
        return None
    if w.dtype not in unpacked.get(x.dtype, ()):
        return Decline(f"its weights are {w.dtype} under {x.dtype}, which LiteRT's kernel does not unpack; use int8")
    if isinstance(w.quantization, Quantization) and any(w.quantization.zero_point):
        text = "LiteRT's kernels refuse, but for XNNPACK's, which reads 4 bits without a sign where it is 8"
        return Decline(f"its {w.dtype} weights have zero points other than 0, which {text}; quantize symmetrically")
    return None


def moved_weights(op: Operator, image: int = 0) -> Decline | None:
    """int8 weights with zero points under float32, which kernels leave out (EvalHybrid), and XNNPACK refuses."""
    w = op[1]
    if (op[image].dtype, w.dtype) != ("float32", "int8") or not isinstance(w.quantization, Quantization):
        return None
    if not any(w.quantization.zero_point):
        return None
    return Decline(
        "its int8 weights have zero points other than 0, which LiteRT leaves out under float32; quantize symmetrically"
    )


def signed_bytes(ctx: Context, slot: int, weight: Value, *, by_row: bool = False) -> Value | Array:
    """A weight as it is; but under float32 activations uint8 is read as int8, its zero point ignored.

    The first dynamic-range files keep signed weights so (EvalHybrid, kernels/conv.cc and fully_connected.cc). Of several scales the
    kernel takes the first, or with ``by_row`` that of each row of [o, k].
    """
    constant, quantization = ctx.constant(slot), ctx.op[slot].quantization
    if (
        ctx.op[slot].dtype != "uint8"
        or ctx.op[0].dtype != "float32"
        or constant is None
        or not isinstance(quantization, Quantization)
    ):
        return weight
    scales = np.asarray(quantization.scale if by_row else quantization.scale[:1], np.float32)
    return constant.view(np.int8).astype(np.float32) * scales.reshape([-1] + [1] * (constant.ndim - 1))


def symmetric(ctx: Context, weight: Value, image: int) -> Value:
    """The weight in slot 1 as kernels take int8: without its zero point (weights_offset = 0, depthwise_conv.cc, transpose_conv.cc).

    ``image``: the slot whose dtype says which kernel it is; that of uint8 subtracts it.
    """
    quantization = ctx.op[1].quantization
    if ctx.op[image].dtype not in ("int8", "int16") or not isinstance(quantization, Quantization):
        return weight
    if not any(quantization.zero_point):
        return weight
    offsets = np.asarray(quantization.scale, np.float32) * np.asarray(quantization.zero_point, np.float32)
    if not quantization.per_axis:
        return ctx.ops.Add(weight, offsets[0])
    return ctx.ops.Add(weight, offsets.reshape([-1 if axis == quantization.axis else 1 for axis in ctx.perm(1)]))


def parameters(tensor: Tensor) -> Quantization:
    """Scale and zero point. Raises Refused where it has none, or one a block."""
    if not isinstance(tensor.quantization, Quantization):
        raise Refused(f"its {tensor.dtype} operand {tensor.name!r} has no scale")
    return tensor.quantization


def unscaled(ctx: Context, y: Value) -> Value:
    """Means of stored values, which the kernel does not rescale: under another output scale they mean another number."""
    before, after = ctx.op[0].quantization, ctx.op[out(0)].quantization
    if before == after or not isinstance(before, Quantization) or not isinstance(after, Quantization):
        return y
    offset = (before.zero_point[0] - after.zero_point[0]) * after.scale[0]
    return ctx.ops.Add(ctx.ops.Mul(y, after.scale[0] / before.scale[0]), offset)


def with_axis(names: list[str], axis: int, new: str = "new") -> list[str]:
    """A new axis at a place counted in the result's axes (negative: from its end)."""
    at = axis % (len(names) + 1)
    return [*names[:at], new, *names[at:]]
