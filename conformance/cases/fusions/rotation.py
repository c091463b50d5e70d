"""Decomposed rotary embeddings, and similar patterns that must not be fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import Net, constant, net, tensor

OP = "SUB"  # the support table counts these cases for the operator that computes the first half
OP_WITH_TABLES = "ADD"  # likewise for the sum of both products
SHAPE = (2, 3, 5, 14)  # batch, heads, positions, channels
NODE = "com.microsoft.RotaryEmbedding"


def cases() -> Iterator[Case]:
    yield rotary_case("basic", opsets=(None, 13, 26))
    yield rotary_case("target generic", targets=("generic",), nodes={NODE: 0})
    yield rotary_case("one position", (2, 3, 1, 14))
    yield rotary_case("one position, angles of higher rank", (2, 3, 1, 14), angles=(1, 1, 7))
    yield rotary_case("one pair of channels", (2, 3, 5, 2))
    yield rotary_case("angles of higher rank", angles=(1, 1, 5, 7))
    yield rotary_case("dynamic batch", (None, 3, 5, 14))
    yield rotary_case("inferred size of the second half", second_size=-1)
    yield unfused_case("same angles for all positions", angles=(7,))
    yield unfused_case("angles per head", (2, 5, 1, 14), angles=(5, 1, 7))
    yield unfused_case("one angle per position", angles=(5, 1))
    yield unfused_case("swapped halves", starts=(7, 0))
    yield unfused_case("unrotated channels", (2, 3, 5, 17))
    yield unfused_case("rank 3", (3, 5, 14))
    yield unfused_case("halves joined in reverse order", join_order=(1, 0))
    yield from table_cases()


def table_cases() -> Iterator[Case]:
    """Yield cases of embeddings with tables of cosines and sines.

    An embedding is x times a cosine table, plus x with swapped halves times a sine table.
    """
    yield table_case("basic")
    yield table_case("target generic", targets=("generic",), nodes={NODE: 0})
    yield table_case("opset 13", opsets=(13,))
    yield table_case("one position", (1, 3, 1, 14))
    yield table_case("positions before heads", (1, 5, 3, 14), table_shape=(1, 5, 1, 14))
    yield table_case("negation by NEG", negation="NEG")
    yield table_case("angles per head", table_shape=(1, 3, 1, 14))
    yield table_case("not fused, batch of 2", (2, 3, 5, 14), nodes={NODE: 0})
    yield table_case("not fused, different angles in the second half", repeats_angles=False, nodes={NODE: 0})
    yield table_case("not fused, swapped halves", starts=(7, 0), nodes={NODE: 0})
    yield table_case("not fused, factor -2 instead of -1", negation=-2.0, nodes={NODE: 0})
    yield table_case("not fused, angles per head and position", table_shape=(1, 3, 5, 14), nodes={NODE: 0})


def table_case(
    name: str,
    shape: tuple[int, int, int, int] = (1, 3, 5, 14),
    *,
    table_shape: Sequence[int] = (),
    starts: Sequence[int] | None = None,
    negation: str | float = -1.0,
    repeats_angles: bool = True,
    **case_fields: Any,
) -> Case:
    """Return a case of a rotary embedding by tables of cosines and sines.

    ``shape``: batch, heads, positions, channels. ``table_shape``: by default positions and channels. ``starts``: start
    indices of the halves of x. ``negation``: operator or factor that negates the second half. ``repeats_angles``: both
    halves of the tables have the same angles.
    """
    half = shape[-1] // 2
    sizes = tuple(table_shape) or (1, shape[2], shape[3])

    def build(model: Net) -> None:
        x = model.input(tensor(*shape))
        half_starts = (0, half) if starts is None else starts
        half_spec = tensor(*shape[:-1], half)
        angles = [model.input(tensor(*sizes[:-1], half)) for _ in range(1 if repeats_angles else 2)]
        all_angles = model.call("CONCATENATION", [angles[0], angles[-1]], tensor(*sizes), axis=len(sizes) - 1)
        cos, sin = (model.call(code, [all_angles], tensor(*sizes)) for code in ("COS", "SIN"))
        a, b = (
            model.call("SLICE", [x, constant([0, 0, 0, start]), constant([*shape[:-1], half])], half_spec)
            for start in half_starts
        )
        factor = [] if isinstance(negation, str) else [constant(np.float32(negation))]
        negated = model.call(negation if isinstance(negation, str) else "MUL", [b, *factor], half_spec)
        swapped = model.call("CONCATENATION", [negated, a], tensor(*shape), axis=3)
        terms = [model.call("MUL", [values, table], tensor(*shape)) for values, table in ((x, cos), (swapped, sin))]
        model.output(model.call("ADD", terms, tensor(*shape)))

    return net(
        OP_WITH_TABLES,
        f"rotary embedding by tables, {name}",
        build,
        **{"targets": ("onnxruntime",), "nodes": {NODE: 1}, **case_fields},
    )


def rotary_case(
    name: str,
    shape: tuple[int | None, ...] = SHAPE,
    *,
    angles: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
    second_size: int | None = None,
    join_order: Sequence[int] = (0, 1),
    **case_fields: Any,
) -> Case:
    """Return a case of a rotary embedding.

    Both halves of the channels are rotated and joined.

    ``shape``: batch, heads, positions, channels. ``angles``: shape of the cosines and sines, by default positions and
    half of the channels. ``starts``: start indices of the halves of x. ``second_size``: size of the second half in the
    file; -1 is up to the end. ``join_order``: order in which the halves are joined.
    """
    half = (shape[-1] or 0) // 2
    half_spec = tensor(*shape[:-1], half)
    half_starts = (0, half) if starts is None else starts
    positions = shape[-2] or 1

    def build(model: Net) -> None:
        x = model.input(tensor(*shape))
        factors = tensor(*(angles or (positions, half)))
        cos, sin = model.input(factors), model.input(factors)
        leading_starts = [0] * (len(shape) - 1)
        leading_sizes = [-1 if n is None else n for n in shape[:-1]]

        def slice_half(start: int, size: int) -> TensorRef:
            bounds = constant([*leading_starts, start], "int32"), constant([*leading_sizes, size], "int32")
            return model.call("SLICE", [x, *bounds], half_spec)

        a = slice_half(half_starts[0], half)
        b = slice_half(half_starts[1], half if second_size is None else second_size)

        def multiply(left: TensorRef, right: TensorRef) -> TensorRef:
            return model.call("MUL", [left, right], half_spec)

        real = model.call("SUB", [multiply(a, cos), multiply(b, sin)], half_spec)
        imaginary = model.call("ADD", [multiply(b, cos), multiply(a, sin)], half_spec)
        halves = [(real, imaginary)[k] for k in join_order]
        model.output(model.call("CONCATENATION", halves, tensor(*shape[:-1], 2 * half), axis=len(shape) - 1))

    return net(
        OP, f"rotary embedding, {name}", build, **{"targets": ("onnxruntime",), "nodes": {NODE: 1}, **case_fields}
    )


def unfused_case(name: str, *shape: Any, **case_fields: Any) -> Case:
    """Return a case of a similar pattern that must not be fused."""
    return rotary_case(f"not fused, {name}", *shape, nodes={NODE: 0}, **case_fields)
