"""Rotary embeddings that are decomposed: the halves of each row as one vector, rotated by an angle of its position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operand,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
)
from op_handlers.kernels.operands import NO_ACTIVATION

x, cos, sin = operands("x cos sin")
begin, length, middle, rest = operands("begin length middle rest", constant=True)


def rotation_pattern() -> Call:
    """Return ``(a cos - b sin, b cos + a sin)`` of the halves a and b."""
    a, b = Call("SLICE", x, begin, length), Call("SLICE", x, middle, rest)

    def times(half: Call, factor: Operand) -> Call:
        return Call("MUL", half, factor, commutes=True, **NO_ACTIVATION)

    real = Call("SUB", times(a, cos), times(b, sin), **NO_ACTIVATION)
    imaginary = Call("ADD", times(b, cos), times(a, sin), commutes=True, **NO_ACTIVATION)
    return Call("CONCATENATION", real, imaginary, **NO_ACTIVATION)


def check_rotation(match: Match) -> Mapping[str, Any] | Decline:
    """Return a Decline unless whole rows are rotated, by one angle per position and pair of elements."""
    input = match[x]
    if input.rank != 4 or None in input.dims[2:] or (input.dims[-1] or 1) % 2:
        return Decline("the input does not have four axes with rows of even size")
    rows, half = input.dims[2], (input.dims[-1] or 0) // 2
    (joined, *_) = (op for call, op in match.calls.items() if call.code == "CONCATENATION")
    if joined.options.axis % input.rank != 3:
        return Decline("the halves are not concatenated along the last axis")
    expected = ((begin, [0, 0, 0, 0]), (middle, [0, 0, 0, half]))
    if any(list(match[place].array.reshape(-1)) != start for place, start in expected):
        return Decline("the slices do not begin at the halves of the last axis")
    if not _covers(input, match[length], [half]) or not _covers(input, match[rest], [half, -1]):
        return Decline("the slices do not cover the rows")
    if any(_matrix_dims(match[factor]) != _drop_leading_ones((rows, half)) for factor in (cos, sin)):
        return Decline("the angles are not one per position and pair of elements")
    return {}


def _covers(whole: Tensor, size: Tensor, part: Sequence[int]) -> bool:
    """True if a slice covers the first three axes and has one of these sizes along the last."""
    *others, last = (int(n) for n in size.array.reshape(-1))
    return last in part and all(n in (-1, axis) for n, axis in zip(others, whole.dims, strict=False))


def _matrix_dims(tensor: Tensor) -> list[int | None]:
    """Return the dimensions of a matrix of angles without leading ones; ``[None]`` if other axes are larger than 1."""
    alone = tensor.rank <= 4 and set(tensor.dims[:-2]) <= {1}
    return _drop_leading_ones(tensor.dims[-2:]) if alone else [None]


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
    """Emit com.microsoft's RotaryEmbedding with computed angles, each row at its own position."""
    half = (ctx.op[0].dims[-1] or 0) // 2
    tables = (table if ctx.op[k].rank == 2 else ctx.ops.Reshape(table, [-1, half]) for k, table in ((1, cos), (2, sin)))
    y: Value = ctx.ops.domain("com.microsoft").RotaryEmbedding(x, np.zeros(1, np.int64), *tables)
    return y
