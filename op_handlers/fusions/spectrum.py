"""Real or imaginary parts of spectra, and filters applied to these parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operator,
    Terminate,
    Value,
    emit_projected_rfft,
    emit_rfft,
    fusion,
    is_projected_rfft_faster,
    operands,
)
from op_handlers.math.fourier import row_transform

x, shape = operands("x shape")
lengths, w, bias = operands("lengths w bias", constant=True)


def part_patterns() -> Iterator[Call]:
    """Yield patterns of one part of the result of RFFT2D, perhaps after a SQUEEZE."""
    for part in ("CAST", "REAL", "IMAG"):
        yield Call(part, Call("RFFT2D", x, lengths))
        yield Call(part, Call("SQUEEZE", Call("RFFT2D", x, lengths)))


def operators_by_code(match: Match) -> dict[str, Operator]:
    """Return the operators of a match by code; all codes differ."""
    return {op.code: op for op in match.calls.values()}


def check_part(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of one part of the spectra, or a Decline.

    ``part``: "real" or "imaginary". ``width``: samples of each row. ``points``: length of the transform. ``squeezed``:
    True if the axis of rows is removed.
    """
    op_by_code = operators_by_code(match)
    sizes = row_transform(op_by_code["RFFT2D"])
    if sizes is None:
        return Decline("the transform is not a product with constant matrices")
    cast, squeeze = op_by_code.get("CAST"), op_by_code.get("SQUEEZE")
    if cast is not None and cast.outputs[0] is not None and cast.outputs[0].dtype != "float32":
        return Decline("")
    if squeeze is not None and not _removes_rows(squeeze):
        return Decline("SQUEEZE removes an axis other than the row axis")
    width, points = sizes
    part = "imaginary" if "IMAG" in op_by_code else "real"
    return {"part": part, "width": width, "points": points, "squeezed": squeeze is not None}


def _removes_rows(squeeze: Operator) -> bool:
    rank = squeeze[0].rank
    return [axis % rank for axis in squeeze.options.squeeze_dims or ()] == [rank - 2]


@fusion(
    "RFFT2D_PART",
    pattern=[*part_patterns()],
    inputs=(x, lengths),
    check=check_part,
    layout=Terminate(),
    types="float32, int32 -> float32",
    quantization=NotQuantizable(),
)
def rfft_2d_part(ctx: Context, x: Value, lengths: Value) -> Value:
    """Emit the matrix products that compute one part of each spectrum."""
    options, dims = ctx.options, ctx.op[0].dims
    row_axis: tuple[int, ...] = (1,)
    x = crop_rows(ctx, x)
    if options.squeezed:
        x, row_axis = ctx.ops.Squeeze(x, [len(dims) - 2]), ()
    return emit_rfft(ctx, x, (*dims[:-2], *row_axis, options.width), options.points, options.part)


def crop_rows(ctx: Context, x: Value) -> Value:
    """Return the first row of each image, cropped to the samples of the transform."""
    dims = ctx.op[0].dims
    if dims[-1] != ctx.options.width:
        x = ctx.ops.Slice(x, [0], [ctx.options.width], [-1])
    return x if dims[-2] == 1 else ctx.ops.Slice(x, [0], [1], [-2])


@fusion(
    "RFFT2D_PART_SHAPE",
    pattern=Call("SHAPE", Call("RFFT2D_PART", x, lengths, shared=True)),
    inputs=(x,),
    check=lambda match: {k: v for op in match.calls.values() for k, v in op.options.items()},
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def rfft_2d_part_shape(ctx: Context, x: Value) -> Value:
    """Emit the shape of one part of spectra, computed from the shape of the samples.

    Without this fusion, SHAPE would read the spectra, which would prevent their fusion with filters.
    """
    options, leading_count = ctx.options, len(ctx.op[0].dims) - 2
    sizes = [*([] if options.squeezed else [1]), options.points // 2 + 1]
    shape = ctx.ops.Concat(ctx.ops.Slice(ctx.ops.Shape(x), [0], [leading_count]), sizes, axis=0)
    return ctx.ops.Cast(shape, to=options.out_type.lower())


# --- filters ------------------------------------------------------------------------------------


def filter_patterns() -> Iterator[Call]:
    """Yield patterns of FULLY_CONNECTED that reads one part of spectra.

    The spectra may be reshaped, and there may be a bias.
    """
    part = Call("RFFT2D_PART", x, lengths)
    for spectra in (part, Call("RESHAPE", part, shape), Call("RESHAPE", part)):
        for constants in ((w,), (w, bias)):
            yield Call("FULLY_CONNECTED", spectra, *constants)


def check_filters(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of transform and filters, or a Decline.

    Declines unless each filter has one factor per point of a spectrum, and one product is faster than transform and filters.
    """
    op_by_code = operators_by_code(match)
    dense, spectra = op_by_code["FULLY_CONNECTED"], op_by_code["RFFT2D_PART"].options
    if any(match[operand].dtype != "float32" for operand in (w, bias) if operand in match.tensors):
        return Decline("the filters are quantized")
    units, columns = match[w].shape
    if columns != spectra.points // 2 + 1 or dense.options.keep_num_dims:
        return Decline("the filters are not applied to complete spectra")
    if not is_projected_rfft_faster(spectra.points, spectra.width, spectra.part, units):
        return Decline("the transform followed by the filters takes fewer multiplications")
    return {**spectra, "fused_activation_function": dense.options.fused_activation_function}


@fusion(
    "RFFT2D_FILTERS",
    after=("RFFT2D_PART_SHAPE",),
    pattern=[*filter_patterns()],
    inputs=(x, lengths, w, bias),
    check=check_filters,
    layout=Terminate(),
    types="float32, int32, float32, float32 -> float32",
    quantization=NotQuantizable(),
    activation="fused_activation_function",
)
def rfft_2d_filters(ctx: Context, x: Value, lengths: Value, w: Value, bias: Value | None = None) -> Value:
    """Emit one matrix product that computes both transform and filters."""
    options, filters = ctx.options, ctx.require_constant(2)
    rows = ctx.ops.Reshape(crop_rows(ctx, x), [-1, options.width])
    y = emit_projected_rfft(ctx, rows, options.width, options.points, options.part, filters.T)
    return y if bias is None else ctx.ops.Add(y, bias)
