"""GATHER_ND and WHERE, which deal in places, and BROADCAST_TO, which repeats what has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import BOTH, Placed, alone, constant, drawn, tensor

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from gathered()
    yield from nonzero()
    yield from broadcast()


# --- GATHER_ND --------------------------------------------------------------------------------


def gather_nd(
    name: str,
    rows: Sequence[int],
    depth: int,
    dtype: str = "float32",
    kind: str = "int32",
    held: bool = True,
    place: Placed = alone,
    **case: Any,
) -> Case:
    """``rows`` places of the first ``depth`` axes of an image: a constant, or ``held`` back until it runs."""
    x = tensor(*IMAGE, dtype=dtype)
    each = [drawn(*rows, 1, dtype="int32", seed=f"{axis}", low=0, high=IMAGE[axis] - 1) for axis in range(depth)]
    numbers = np.concatenate(each, axis=-1).astype(kind)
    places = constant(numbers) if held else tensor(*numbers.shape, dtype=kind, scale=0, name="places")
    y = replace(x, name="").shaped(*rows, *IMAGE[depth:])
    given = {} if held else {"given": {"places": numbers}}
    return place("GATHER_ND", name, [x, places], y, **{"dtype": dtype, **given, **case})


def gathered() -> Iterator[Case]:
    for depth in (1, 2, 3, 4):
        yield gather_nd(f"the first {depth} axes", (11,), depth, opsets=EVERY_OPSET)
        yield gather_nd(f"places of rank 3, {depth} axes", (3, 2), depth)
    yield gather_nd("places of rank 3, 2 axes", (3, 2), 2, place=BOTH[-1], transposes=4)
    for dtype in ("int8", "uint8", "int16", "int32", "int64"):
        yield gather_nd(dtype, (11,), 2, dtype=dtype)
    for kind in ("int16", "int64"):
        yield gather_nd(f"{kind} places", (11,), 3, kind=kind)
        yield gather_nd(f"{kind} places known as it runs", (11,), 3, kind=kind, held=False)
    yield gather_nd("int32 places known as it runs", (11,), 2, held=False)


# --- WHERE ------------------------------------------------------------------------------------


def nonzero() -> Iterator[Case]:
    for dtype in ("bool", "float32", "int32", "int64", "uint32", "int8", "uint8"):
        for shape in ((13,), (5, 7), (2, 5, 7, 3)):
            held = drawn(*shape, dtype="int32", seed="held", low=0, high=2).astype(dtype)
            x = tensor(*shape, dtype=dtype, scale=0, name="held")
            y = tensor(None, len(shape), dtype="int64")
            every = EVERY_OPSET if shape == (5, 7) and dtype == "float32" else (None,)
            yield alone(
                "WHERE", f"{dtype} of rank {len(shape)}", [x], y, dtype=dtype, given={"held": held}, opsets=every
            )
    x, none = tensor(5, 7, dtype="bool", name="held"), np.zeros((5, 7), bool)
    y, refuses = tensor(None, 2, dtype="int64"), "Invalid tensor size"
    yield alone("WHERE", "nowhere", [x], y, dtype="bool", given={"held": none}, kernel_refuses=refuses)


# --- BROADCAST_TO -----------------------------------------------------------------------------


def broadcast_to(
    name: str, before: Sequence[int], after: Sequence[int], dtype: str = "float32", kind: str = "int32", **case: Any
) -> Case:
    place: Placed = case.pop("place", alone)
    held: bool = case.pop("held", True)
    x = tensor(*before, dtype=dtype)
    sizes = np.asarray(after, kind)
    shape = constant(sizes) if held else tensor(len(after), dtype=kind, scale=0, name="shape")
    given = {} if held else {"given": {"shape": sizes}}
    y = replace(x, name="").shaped(*(after if held else [None] * len(after)))
    return place("BROADCAST_TO", name, [x, shape], y, **{"dtype": dtype, **given, **case})


def broadcast() -> Iterator[Case]:
    for before in ((3,), (7, 1), (5, 1, 3), (1, 5, 1, 1), IMAGE, (1, 1, 7, 3)):
        text = "x".join(map(str, before))
        yield broadcast_to(f"{text} to an image", before, IMAGE, opsets=EVERY_OPSET)
    for place in BOTH:
        yield broadcast_to("rows and columns of an image", (2, 1, 1, 3), IMAGE, place=place)
    yield broadcast_to("batches of an image between convolutions", (1, 5, 7, 3), IMAGE, place=BOTH[-1])
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool"):
        yield broadcast_to(dtype, (5, 1, 3), IMAGE, dtype=dtype)
    yield broadcast_to("a shape of int64", (5, 1, 3), IMAGE, kind="int64")
    yield broadcast_to("one number", (), (5, 7))
    yield broadcast_to("a shape known as it runs", (5, 1, 3), IMAGE, held=False)
