"""Rotary embeddings spelled out: the halves of each row as one vector, turned by an angle of its position."""

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


def turned() -> Call:
    """``(a cos - b sin, b cos + a sin)`` of the halves a and b."""
    a, b = Call("SLICE", x, begin, length), Call("SLICE", x, middle, rest)

    def times(half: Call, factor: Operand) -> Call:
        return Call("MUL", half, factor, commutes=True, **NO_ACTIVATION)

    real = Call("SUB", times(a, cos), times(b, sin), **NO_ACTIVATION)
    imaginary = Call("ADD", times(b, cos), times(a, sin), commutes=True, **NO_ACTIVATION)
    return Call("CONCATENATION", real, imaginary, **NO_ACTIVATION)


def halves_of_rows(match: Match) -> Mapping[str, Any] | Decline:
    """The angles are those of the rows: one for each place along the axis before the last and each pair of elements."""
    whole = match[x]
    if whole.rank != 4 or None in whole.dims[2:] or (whole.dims[-1] or 1) % 2:
        return Decline("it turns no rows of four axes")
    rows, half = whole.dims[2], (whole.dims[-1] or 0) // 2
    (joined, *_) = (op for call, op in match.calls.items() if call.code == "CONCATENATION")
    if joined.options.axis % whole.rank != 3:
        return Decline("its halves are not joined along the last axis")
    wanted = ((begin, [0, 0, 0, 0]), (middle, [0, 0, 0, half]))
    if any(list(match[place].array.reshape(-1)) != start for place, start in wanted):
        return Decline("it turns other parts than the halves of the last axis")
    if not _reaches(whole, match[length], [half]) or not _reaches(whole, match[rest], [half, -1]):
        return Decline("it turns a part of the rows only")
    if any(_without_ones(match[factor]) != _without_ones_of((rows, half)) for factor in (cos, sin)):
        return Decline("its angles are not one for each row and pair of elements")
    return {}


def _reaches(whole: Tensor, size: Tensor, part: Sequence[int]) -> bool:
    """Whether a slice takes all of the first three axes, and one of these sizes of the last."""
    *others, last = (int(n) for n in size.array.reshape(-1))
    return last in part and all(n in (-1, axis) for n, axis in zip(others, whole.dims, strict=False))


def _without_ones(tensor: Tensor) -> list[int | None]:
    alone = tensor.rank <= 4 and set(tensor.dims[:-2]) <= {1}
    return _without_ones_of(tensor.dims[-2:]) if alone else [None]


def _without_ones_of(dims: tuple[int | None, ...]) -> list[int | None]:
    """Leading sizes of 1 left out."""
    return [n for k, n in enumerate(dims) if n != 1 or k == len(dims) - 1]


@fusion(
    "ROTARY_EMBEDDING",
    pattern=turned(),
    inputs=(x, cos, sin),
    where=halves_of_rows,
    trait="rotates_embeddings",
    layout=Terminate(),
    types="float32, float32, float32",
    quantization=NotQuantizable(),
)
def rotary_embedding(ctx: Context, x: Value, cos: Value, sin: Value) -> Value:
    """RotaryEmbedding of ONNX Runtime's own domain, of every row at the place that it has: the angles are computed already."""
    half = (ctx.op[0].dims[-1] or 0) // 2
    tables = (table if ctx.op[k].rank == 2 else ctx.ops.Reshape(table, [-1, half]) for k, table in ((1, cos), (2, sin)))
    y: Value = ctx.ops.domain("com.microsoft").RotaryEmbedding(x, np.zeros(1, np.int64), *tables)
    return y
