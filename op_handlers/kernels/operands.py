"""Axes, layouts and constants of operands, and checks of weights."""

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
    Refusal,
    Tensor,
    Value,
    axis_names,
    format_axes,
    out,
)

NO_ACTIVATION: dict[str, Any] = {"fused_activation_function": "NONE"}
"""Options of an operator in a pattern, without a fused activation."""
MAX_AXES = 64  # more than any kernel of ONNX Runtime supports


def rank_preserving_axes(at: Instance, outputs: int = 1) -> str | None:
    """Return axes that input 0 shares with the outputs; None if their ranks differ."""
    names = axis_names(at.op[0].rank)
    return format_axes([names], *[names] * outputs) if at.op[out(0)].rank == len(names) else None


def present_operands(operands: Sequence[Value | None]) -> Mapping[int, Value]:
    """Return slot -> operand, for the operands that are present."""
    return {slot: value for slot, value in enumerate(operands) if value is not None}


def require_scale(*dtypes: str) -> Callable[[Instance], Decline | None]:
    """Return an ``accepts`` function that declines operand 0 without a scale.

    ``dtypes``: dtypes that the kernels treat as quantized. Without a scale, the kernels divide by 0.
    """

    def accepts(at: Instance) -> Decline | None:
        x = at.op[0]
        if x.dtype not in dtypes or x.quantization is not None:
            return None
        fact = f"the {x.dtype} operand has no scale, but the kernel treats it as quantized"
        return Decline(f"{fact}; give it a scale, or cast it to int32")

    return accepts


def unordered_layout(axes: Iterable[int]) -> Attribute:
    """Return a layout that may permute the elements of input 0 along ``axes``."""
    return Attribute(unordered=" ".join(f"a{axis}" for axis in axes))


def constant_integers(op: Operator, slot: int) -> list[int] | None:
    """Return the elements of a constant operand, or ``None`` for a runtime value.

    Raises Refusal if the constant does not have an integer dtype.
    """
    constant = op.constant(slot)
    if constant is not None and constant.dtype.kind not in "iu":
        raise Refusal(f"operand {op[slot].name!r} has dtype {op[slot].dtype}, expected integers")
    return None if constant is None else [int(number) for number in constant.reshape(-1)]


def operand_shape(at: Instance) -> Dims:
    """Return the shape of operand 0, which is also the shape of the result.

    Raises Refusal if the file does not store its rank.
    """
    if not at.op[0].has_rank:
        raise Refusal("the shape of the operand is unknown; set it with --input-shape")
    return at.op[0].dims


def shape_from_operand(slot: int) -> Callable[[Instance], Dims]:
    """Return a ``sizes`` function that reads the output shape from an operand.

    Sizes of a runtime value are dynamic.
    """

    def sizes(at: Instance) -> Dims:
        constant, operand = constant_integers(at.op, slot), at.op[slot]
        if constant is not None:
            return tuple(constant)
        return dynamic_shape(at.op, operand) if operand.rank == 1 else (None,) * at.op[out(0)].rank

    return sizes


def dynamic_shape(op: Operator, shape: Tensor) -> Dims:
    """Return a shape of dynamic dimensions, one per element of a vector.

    Raises Refusal if there are too many.
    """
    rank = op[out(0)].rank if shape.dims[0] is None else shape.dims[0]
    if rank > MAX_AXES:
        raise Refusal(f"the shape has {rank} sizes")
    return (None,) * rank


def cast_to_int64(ctx: Context, slot: int, value: Value) -> Value | Array:
    """Return sizes or indices in int64; a constant is returned as an array."""
    constant = ctx.constant(slot)
    return ctx.ops.Cast(value, to="int64") if constant is None else constant.astype(np.int64)


def reshape_to_scalar(ctx: Context, slot: int, value: Value) -> Value:
    """Return an operand of one element as a scalar.

    Raises Refusal for several elements.
    """
    tensor = ctx.op[slot]
    if tensor.is_static and prod(tensor.shape) != 1:
        raise Refusal(f"operand {tensor.name!r} has shape {list(tensor.shape)}, expected a scalar")
    return value if tensor.rank == 0 else ctx.ops.Reshape(value, np.zeros(0, np.int64))


def check_packed_weights(op: Operator, unpacked: Mapping[str, Collection[str]]) -> Decline | None:
    """Return a Decline for 4-bit or 2-bit weights that the kernel does not unpack.

    The weights are in slot 1. ``unpacked``: input dtype -> weight dtypes that the kernel unpacks. For other dtypes, the
    kernel reads one weight per byte, and so reads beyond the end of the data.
    """
    x, w = op[0], op[1]
    if w.dtype not in ("int4", "int2", "uint4"):
        return None
    if w.dtype not in unpacked.get(x.dtype, ()):
        return Decline(
            f"the weights are {w.dtype} with {x.dtype} activations, which LiteRT's kernel does not unpack; use int8"
        )
    if isinstance(w.quantization, Quantization) and any(w.quantization.zero_point):
        reason = "LiteRT's kernels refuse (XNNPACK reads 4 bits as unsigned here)"
        return Decline(f"the {w.dtype} weights have nonzero zero points, which {reason}; quantize symmetrically")
    return None


def check_weight_zero_points(op: Operator, image_slot: int = 0) -> Decline | None:
    """Return a Decline for int8 weights with zero points and float32 activations.

    Kernels ignore the zero points (EvalHybrid), and XNNPACK refuses them.
    """
    w = op[1]
    if (op[image_slot].dtype, w.dtype) != ("float32", "int8") or not isinstance(w.quantization, Quantization):
        return None
    if not any(w.quantization.zero_point):
        return None
    return Decline(
        "the int8 weights have nonzero zero points, which LiteRT ignores with float32 activations; quantize symmetrically"
    )


def reinterpret_uint8_weights(ctx: Context, slot: int, weight: Value, *, by_row: bool = False) -> Value:
    """Return the weight in ``slot``, with uint8 read as int8 for float32 activations.

    The first dynamic-range files store signed weights as uint8, with a zero point that the kernel ignores (EvalHybrid,
    kernels/conv.cc and fully_connected.cc). The kernel uses only the first scale; with ``by_row``, the scale of each
    row of ``[o, k]``.
    """
    tensor = ctx.op[slot]
    is_constant, quantization = ctx.op.constant(slot) is not None, tensor.quantization
    if (ctx.op[0].dtype, tensor.dtype) != ("float32", "uint8") or not is_constant:
        return weight
    if not isinstance(quantization, Quantization):
        return weight
    scale = quantization.scale if by_row else quantization.scale[:1]
    return ctx.reinterpret_constant(slot, "int8", Quantization(scale, (0,) * len(scale)))


def drop_weight_zero_point(ctx: Context, weight: Value, image_slot: int) -> Value:
    """Return the weight in slot 1, without its zero point if the kernel ignores it.

    ``image_slot``: slot of the image. Its dtype selects the kernel. Only the uint8 kernel subtracts the zero point
    (weights_offset = 0, depthwise_conv.cc, transpose_conv.cc).
    """
    quantization = ctx.op[1].quantization
    if ctx.op[image_slot].dtype not in ("int8", "int16") or not isinstance(quantization, Quantization):
        return weight
    if not any(quantization.zero_point):
        return weight
    offsets = np.asarray(quantization.scale, np.float32) * np.asarray(quantization.zero_point, np.float32)
    if not quantization.per_axis:
        return ctx.ops.Add(weight, offsets[0])
    return ctx.ops.Add(weight, offsets.reshape([-1 if axis == quantization.axis else 1 for axis in ctx.perm(1)]))


def require_quantization(tensor: Tensor) -> Quantization:
    """Return scale and zero point of a tensor.

    Raises Refusal if the tensor has no scale, or one scale per block.
    """
    if not isinstance(tensor.quantization, Quantization):
        raise Refusal(f"the {tensor.dtype} operand {tensor.name!r} has no scale")
    return tensor.quantization


def reinterpret_scale(ctx: Context, y: Value) -> Value:
    """Return ``y`` with the error of a kernel that does not rescale its result.

    The kernel stores the mean of the operand's quantized values. If the output has a different scale and zero point,
    that integer stands for a different real value than ``y``, the exact mean.
    """
    source, result = ctx.op[0].quantization, ctx.op[out(0)].quantization
    if source == result or not isinstance(source, Quantization) or not isinstance(result, Quantization):
        return y
    offset = (source.zero_point[0] - result.zero_point[0]) * result.scale[0]
    return ctx.ops.Add(ctx.ops.Mul(y, result.scale[0] / source.scale[0]), offset)


def insert_axis(names: list[str], axis: int, new: str = "new") -> list[str]:
    """Return axis names with ``new`` inserted at position ``axis`` of the result."""
    position = axis % (len(names) + 1)
    return [*names[:position], new, *names[position:]]
