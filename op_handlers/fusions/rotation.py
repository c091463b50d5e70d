"""Decomposed rotary embeddings.

A rotary embedding rotates pairs of elements, one from each half of a row, by angles that depend on the position. For a
row x with the halves a and b, one decomposition is ``(a cos - b sin, b cos + a sin)``. Another is
``x cos + (-b, a) sin``, with tables that contain each angle twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Implicit,
    Instance,
    Match,
    NotQuantizable,
    Operand,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
    out,
)
from op_handlers.kernels.operands import NO_ACTIVATION
from op_handlers.kernels.views import Producers, has_distinguishable_sizes, positions, producers_of, view_of

x, cos, sin = operands("x cos sin")
begin, half_size, middle, remaining_size, minus_one = operands(
    "begin half_size middle remaining_size minus_one", constant=True
)


def rotation_pattern() -> Call:
    """Return the pattern ``(a cos - b sin, b cos + a sin)`` of the halves a and b."""
    a, b = Call("SLICE", x, begin, half_size), Call("SLICE", x, middle, remaining_size)

    def times(half: Call, factor: Operand) -> Call:
        return Call("MUL", half, factor, commutes=True, **NO_ACTIVATION)

    real = Call("SUB", times(a, cos), times(b, sin), **NO_ACTIVATION)
    imaginary = Call("ADD", times(b, cos), times(a, sin), commutes=True, **NO_ACTIVATION)
    return Call("CONCATENATION", real, imaginary, **NO_ACTIVATION)


def check_rotation(match: Match) -> Mapping[str, Any] | Decline:
    """Return a Decline unless each pair in a row is rotated by one angle per position."""
    tensor = match[x]
    if None in tensor.dims[2:]:
        return Decline("the number or the size of rows is dynamic")
    if reason := _describe_mismatch(match):
        return Decline(reason)
    rows, half = tensor.dims[2], (tensor.dims[-1] or 0) // 2
    if any(_matrix_dims(match[factor]) != _drop_leading_ones((rows, half)) for factor in (cos, sin)):
        return Decline("the cosines and sines are not one value per position and pair of elements")
    return {}


def _describe_mismatch(match: Match) -> str:
    """Return why slices and concatenation do not split and join halves of rows, or ""."""
    tensor = match[x]
    if tensor.rank != 4 or (tensor.dims[-1] or 1) % 2:
        return "the input does not have four axes with rows of even size"
    half = (tensor.dims[-1] or 0) // 2
    (concatenation, *_) = (op for call, op in match.calls.items() if call.code == "CONCATENATION")
    if concatenation.options.axis % tensor.rank != 3:
        return "the halves are not concatenated along the last axis"
    slice_starts = ((begin, [0, 0, 0, 0]), (middle, [0, 0, 0, half]))
    if any(list(match[operand].array.reshape(-1)) != start for operand, start in slice_starts):
        return "the slices do not begin at the halves of the last axis"
    if not _covers(tensor, match[half_size], [half]) or not _covers(tensor, match[remaining_size], [half, -1]):
        return "the slices do not cover the rows"
    return ""


def _covers(tensor: Tensor, size: Tensor, last_sizes: Sequence[int]) -> bool:
    """True if a slice spans all axes but the last.

    The slice's size on the last axis must be in ``last_sizes``.
    """
    *leading_sizes, last_size = (int(n) for n in size.array.reshape(-1))
    return last_size in last_sizes and all(
        slice_size in (-1, dim) for slice_size, dim in zip(leading_sizes, tensor.dims, strict=False)
    )


def _matrix_dims(tensor: Tensor) -> list[int | None]:
    """Return the dimensions of a matrix of angles, without leading ones.

    Return ``[None]`` if an axis other than the last two is larger than 1.
    """
    is_matrix = tensor.rank <= 4 and set(tensor.dims[:-2]) <= {1}
    return _drop_leading_ones(tensor.dims[-2:]) if is_matrix else [None]


def _drop_leading_ones(dims: tuple[int | None, ...]) -> list[int | None]:
    """Return dimensions without leading ones."""
    return [n for k, n in enumerate(dims) if n != 1 or k == len(dims) - 1]


@fusion(
    "ROTARY_EMBEDDING",
    pattern=rotation_pattern(),
    inputs=(x, cos, sin),
    check=check_rotation,
    trait="rotates_embeddings",
    layout=Terminate(),
    types="float32, float32, float32",
    quantization=NotQuantizable(),
)
def rotary_embedding(ctx: Context, x: Value, cos: Value, sin: Value) -> Value:
    """Emit RotaryEmbedding of ONNX Runtime (com.microsoft), with computed angles."""
    half = (ctx.op[0].dims[-1] or 0) // 2
    tables = (table if ctx.op[k].rank == 2 else ctx.ops.Reshape(table, [-1, half]) for k, table in ((1, cos), (2, sin)))
    y: Value = ctx.ops.domain("com.microsoft").RotaryEmbedding(x, np.zeros(1, np.int64), *tables)
    return y


def table_patterns() -> Iterator[Call]:
    """Yield patterns of ``x cos + (-b, a) sin`` for rows x with the halves a and b."""
    a, b = Call("SLICE", x, begin, half_size), Call("SLICE", x, middle, remaining_size)
    for negated in (Call("MUL", b, minus_one, commutes=True, **NO_ACTIVATION), Call("NEG", b)):
        swapped = Call("CONCATENATION", negated, a, **NO_ACTIVATION)
        terms = (Call("MUL", *pair, commutes=True, **NO_ACTIVATION) for pair in ((x, cos), (swapped, sin)))
        yield Call("ADD", *terms, commutes=True, **NO_ACTIVATION)


def check_tables(match: Match) -> Mapping[str, Any] | Decline:
    """Return the axis letters of the input, or a Decline.

    Declines unless the tables have one row per position, with each angle in both halves of the row.
    """
    tensor = match[x]
    if reason := _describe_mismatch(match):
        return Decline(reason)
    if tensor.dims[0] != 1:
        return Decline("the batch size is not 1")
    if minus_one in match.tensors and (match[minus_one].array.size != 1 or match[minus_one].array.reshape(()) != -1):
        return Decline("a half is multiplied by a factor other than -1")
    axis = _position_axis(tensor, match[cos])
    if axis is None or axis != _position_axis(tensor, match[sin]):
        return Decline("the cosines and sines are not one value per position and pair of elements")
    (addition, *_) = match.calls.values()
    producers = producers_of(match.graphs[addition.subgraph].operators)
    if not all(_repeats_angles(match[table], producers) for table in (cos, sin)):
        return Decline("the halves of the tables may differ")
    return {"letters": "bnth" if axis == 2 else "btnh"}


def _position_axis(rows: Tensor, table: Tensor) -> int | None:
    """Return the axis of positions, 1 or 2, along which a table has angles, or None."""
    sizes = (*[1] * (rows.rank - table.rank), *table.dims)
    if len(sizes) != rows.rank or sizes[0] != 1 or sizes[-1] != rows.dims[-1]:
        return None
    for axis in (2, 1):
        if sizes[3 - axis] == 1 and sizes[axis] == rows.dims[axis]:
            return axis
    return None


def _repeats_angles(table: Tensor, producers: Producers) -> bool:
    """True if both halves of each row are equal.

    The rows may be repeated angles, or the sine or cosine of repeated angles.
    """
    while has_distinguishable_sizes(table):
        view = view_of(table, producers)
        half = view.positions.shape[-1] // 2
        if (view.positions[..., :half] == view.positions[..., half:]).all():
            return True
        op = producers.get(view.source)
        keeps_positions = (
            view.source.shape[-1:] == table.shape[-1:]
            and (view.positions.reshape(-1) == positions(table).reshape(-1)).all()
        )
        if op is None or op.code not in ("COS", "SIN") or not keeps_positions:
            return False
        table = op[0]
    return False


def table_axes(instance: Instance) -> str:
    """Return the axes of batch, position, head and element."""
    letters = " ".join(instance.op.options.letters)
    return f"{letters}, _, _ -> {letters}"


@fusion(
    "ROTARY_EMBEDDING_TABLES",
    pattern=tuple(table_patterns()),
    inputs=(x, cos, sin),
    check=check_tables,
    trait="rotates_embeddings",
    layout=Implicit({0: "b t n h", out(0): "b t n h"}),
    axes=table_axes,
    value_dependent_slots={1, 2},
    types="float32, float32, float32",
    quantization=NotQuantizable(),
)
def rotary_embedding_tables(ctx: Context, x: Value, cos: Value, sin: Value) -> Value:
    """Emit RotaryEmbedding of ONNX Runtime (com.microsoft), with half of each table."""
    letters, dims = ctx.options.letters, ctx.op[0].dims
    heads, size = (dims[letters.index(letter)] or 0 for letter in "nh")
    tables = (ctx.ops.Slice(ctx.ops.Reshape(table, [-1, size]), [0], [size // 2], [1]) for table in (cos, sin))
    rows = ctx.ops.Reshape(x, [1, -1, heads * size])
    y = ctx.ops.domain("com.microsoft").RotaryEmbedding(rows, np.zeros(1, np.int64), *tables)
    return ctx.reshape_to_slot(y, out(0))
