"""Concatenation along an existing or a new axis."""

from __future__ import annotations

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Attribute,
    Context,
    Decline,
    Dims,
    FusedActivation,
    Instance,
    Raw,
    Refusal,
    SameScale,
    Value,
    axis_names,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import insert_axis, unordered_layout


def check_ranks(at: Instance) -> Decline | None:
    ranks = {tensor.rank for tensor in (*at.op.inputs, at.op[out(0)]) if tensor is not None and tensor.has_rank}
    return Decline(f"operands and result have ranks {sorted(ranks)}, expected equal ranks") if len(ranks) > 1 else None


def check_operands(at: Instance) -> Decline | None:
    """Return a Decline if only some uint8 tensors have a scale.

    The kernel multiplies by ratios of scales (ConcatenationWithScaling).
    """
    tensors = [tensor for tensor in (*at.op.inputs, *at.op.outputs) if tensor is not None]
    with_scale = [tensor for tensor in tensors if tensor.quantization is not None]
    if at.op[0].dtype == "uint8" and 0 < len(with_scale) < len(tensors):
        without_scale = next(tensor for tensor in tensors if tensor.quantization is None)
        return Decline(
            f"{without_scale.name!r} has no scale but {with_scale[0].name!r} has one; LiteRT's kernel needs both to rescale"
        )
    return check_ranks(at)


def concat_shape(at: Instance) -> Dims:
    """Return the operands' shape with the sum of their sizes along the axis."""
    shapes = [tensor.dims for tensor in at.op.inputs if tensor is not None and tensor.has_rank]
    axis = at.op.options.axis
    if len(shapes) < len(at.op.inputs) or not -len(shapes[0]) <= axis < len(shapes[0]):
        raise Refusal("the shape of the result cannot be derived")
    sizes = [next((n for n in axis_sizes if n is not None), None) for axis_sizes in zip(*shapes, strict=True)]
    sizes_along_axis = [shape[axis] for shape in shapes]
    sizes[axis] = None if None in sizes_along_axis else sum(n or 0 for n in sizes_along_axis)
    return tuple(sizes)


@handler(
    "CONCATENATION",
    max_version=7,
    layout=Attribute(),
    # The kernel copies quantized int16 regardless of scales (concatenation.cc).
    quantization=lambda at: SameScale(onnx="Concat", unequal="refuse" if at.op[0].dtype == "int16" else "dequantize"),
    types="T...",
    activation=FusedActivation(ActivationKernel.UNFUSED),
    accepts=check_operands,
    result_shape=concat_shape,
)
def concatenation(ctx: Context, *xs: Value) -> Value:
    """Emit Concat; uint8 operands with a different scale are requantized."""
    return ctx.ops.Concat(*xs, axis=ctx.axis(ctx.options.axis))


def pack_axes(at: Instance) -> str:
    op = at.op
    names = axis_names(op[0].rank)
    return format_axes([names] * len(op.inputs), insert_axis(names, op.options.axis))


@handler(
    "PACK",
    max_version=5,
    layout=lambda at: unordered_layout(range(at.op[0].rank)),
    axes=pack_axes,
    quantization=Raw(shift_safe=True, onnx="Concat"),
    types="T...",
)
def pack(ctx: Context, *xs: Value) -> Value:
    """Emit Unsqueeze and Concat along the new axis.

    The option ``axis`` counts axes of the result.
    """
    axis = ctx.axis(ctx.options.axis, out(0))
    return ctx.ops.Concat(*(ctx.ops.Unsqueeze(x, [axis]) for x in xs), axis=axis)
