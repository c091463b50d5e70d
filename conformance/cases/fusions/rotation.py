"""Decomposed rotary embeddings, and similar patterns that must not be fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import Net, constant, net, tensor

OP = "SUB"  # the support table counts these cases for the operator of the first half
OP_OF_TABLES = "ADD"
ROWS = (2, 3, 5, 14)
NODE = "com.microsoft.RotaryEmbedding"


def cases() -> Iterator[Case]:
    yield rotary_case("of rows", opsets=(None, 13, 26))
    yield rotary_case("of rows, for any runtime", targets=("generic",), nodes={NODE: 0})
    yield rotary_case("of one row", (2, 3, 1, 14))
    yield rotary_case("of one row, angles of higher rank", (2, 3, 1, 14), angles=(1, 1, 7))
    yield rotary_case("of one pair", (2, 3, 5, 2))
    yield rotary_case("by angles of higher rank", angles=(1, 1, 5, 7))
    yield rotary_case("of dynamic batch", (None, 3, 5, 14))
    yield rotary_case("with an inferred split size", rest=-1)
    yield similar_cases("by angles for all rows", angles=(7,))
    yield similar_cases("by angles of each head", (2, 5, 1, 14), angles=(5, 1, 7))
    yield similar_cases("by one angle a row", angles=(5, 1))
    yield similar_cases("of swapped halves", starts=(7, 0))
    yield similar_cases("of part of the channels", (2, 3, 5, 17))
    yield similar_cases("of three axes", (3, 5, 14))
    yield similar_cases("backwards", joined=(1, 0))
    yield from table_cases()


def table_cases() -> Iterator[Case]:
    """Yield rows and rows of swapped halves times tables that repeat the angles, and what resembles them."""
    yield table_case("of heads")
    yield table_case("of heads, for any runtime", targets=("generic",), nodes={NODE: 0})
    yield table_case("of heads, opset 13", opsets=(13,))
    yield table_case("of one row", (1, 3, 1, 14))
    yield table_case("of positions before heads", (1, 5, 3, 14), table=(1, 5, 1, 14))
    yield table_case("of heads, negated by NEG", negation="NEG")
    yield table_case("by angles of each head", table=(1, 3, 1, 14))
    yield table_case("not fused, of a batch", (2, 3, 5, 14), nodes={NODE: 0})
    yield table_case("not fused, by different angles in the second half", repeats=False, nodes={NODE: 0})
    yield table_case("not fused, of swapped halves", starts=(7, 0), nodes={NODE: 0})
    yield table_case("not fused, by a half times -2", negation=-2.0, nodes={NODE: 0})
    yield table_case("not fused, by angles of heads and positions", table=(1, 3, 5, 14), nodes={NODE: 0})


def table_case(
    name: str,
    shape: tuple[int, int, int, int] = (1, 3, 5, 14),
    *,
    table: Sequence[int] = (),
    starts: Sequence[int] | None = None,
    negation: str | float = -1.0,
    repeats: bool = True,
    **case: Any,
) -> Case:
    """Return a case. ``table``: shape of the angles. ``repeats``: their halves are equal. ``negation``: an operator or a factor."""
    half = shape[-1] // 2
    sizes = tuple(table) or (1, shape[2], shape[3])

    def build(model: Net) -> None:
        x = model.input(tensor(*shape))
        begins = (0, half) if starts is None else starts
        part = tensor(*shape[:-1], half)
        angles = [model.input(tensor(*sizes[:-1], half)) for _ in range(1 if repeats else 2)]
        whole = model.call("CONCATENATION", [angles[0], angles[-1]], tensor(*sizes), axis=len(sizes) - 1)
        cos, sin = (model.call(code, [whole], tensor(*sizes)) for code in ("COS", "SIN"))
        a, b = (
            model.call("SLICE", [x, constant([0, 0, 0, start]), constant([*shape[:-1], half])], part)
            for start in begins
        )
        factor = [] if isinstance(negation, str) else [constant(np.float32(negation))]
        negated = model.call(negation if isinstance(negation, str) else "MUL", [b, *factor], part)
        swapped = model.call("CONCATENATION", [negated, a], tensor(*shape), axis=3)
        terms = [model.call("MUL", [left, right], tensor(*shape)) for left, right in ((x, cos), (swapped, sin))]
        model.output(model.call("ADD", terms, tensor(*shape)))

    return net(
        OP_OF_TABLES,
        f"rotary embedding by tables {name}",
        build,
        **{"targets": ("onnxruntime",), "nodes": {NODE: 1}, **case},
    )


def rotary_case(
    name: str,
    shape: tuple[int | None, ...] = ROWS,
    *,
    angles: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
    rest: int | None = None,
    joined: Sequence[int] = (0, 1),
    **case: Any,
) -> Case:
    """Return a case. ``starts``: of both halves; ``rest``: requested size of the second; ``joined``: order of concatenation."""
    half = (shape[-1] or 0) // 2
    part = tensor(*shape[:-1], half)
    begins = (0, half) if starts is None else starts
    rows = shape[-2] or 1

    def build(model: Net) -> None:
        x = model.input(tensor(*shape))
        factors = tensor(*(angles or (rows, half)))
        cos, sin = model.input(factors), model.input(factors)
        lead, lengths = [0] * (len(shape) - 1), [-1 if n is None else n for n in shape[:-1]]

        def piece(start: int, size: int) -> TensorRef:
            places = constant([*lead, start], "int32"), constant([*lengths, size], "int32")
            return model.call("SLICE", [x, *places], part)

        a, b = piece(begins[0], half), piece(begins[1], half if rest is None else rest)

        def times(left: TensorRef, right: TensorRef) -> TensorRef:
            return model.call("MUL", [left, right], part)

        real = model.call("SUB", [times(a, cos), times(b, sin)], part)
        imaginary = model.call("ADD", [times(b, cos), times(a, sin)], part)
        both = [(real, imaginary)[k] for k in joined]
        whole = tensor(*shape[:-1], 2 * half)
        model.output(model.call("CONCATENATION", both, whole, axis=len(shape) - 1))

    return net(OP, f"rotary embedding {name}", build, **{"targets": ("onnxruntime",), "nodes": {NODE: 1}, **case})


def similar_cases(name: str, *shape: Any, **case: Any) -> Case:
    """Yield patterns similar to a rotation of a matrix's rows that must not be fused."""
    return rotary_case(f"not fused, {name}", *shape, nodes={NODE: 0}, **case)
