"""CONCATENATION along each axis from both ends, and PACK, whose new axis counts in the result's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.cases.tensor.splitting import apart
from conformance.models import BOTH, Net, Placed, Spec, alone, drawn, filled, net, opsets, tensor

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
REAL = ("float32", "int8", "uint8", "int16")


def cases() -> Iterator[Case]:
    yield from concatenations()
    yield from stacks()


# --- CONCATENATION ----------------------------------------------------------------------------


def joined(
    name: str, parts: Sequence[Spec], axis: int, place: Placed = alone, y: Spec | None = None, **case: Any
) -> Case:
    first = parts[0]
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] or 0 for part in parts)
    options = {"axis": axis, **case.pop("options", {})}
    return place(
        "CONCATENATION",
        name,
        parts,
        (y or Spec(first.shape, first.dtype, first.scale, first.zero_point)).shaped(*shape),
        options=options,
        **case,
    )


def concatenations() -> Iterator[Case]:
    for axis in (0, 1, 2, 3, -1, -2, -3, -4):
        shape = list(IMAGE)
        shape[axis] += 1
        x = tensor(*IMAGE)
        yield joined(f"float32 axis {axis}", [x, x.shaped(*shape)], axis, BOTH[1])
    for dtype in (*REAL, "float16", "int32", "int64", "uint32", "bool"):
        x = tensor(*IMAGE, dtype=dtype)
        yield joined(dtype, [x, x.shaped(2, 5, 7, 4), x], 3, opsets=opsets(dtype))
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        yield joined(f"{dtype} along channels", [x, x.shaped(2, 5, 7, 4)], -1, BOTH[1])
        yield joined(f"{dtype} with a constant", [x, filled(x.shaped(2, 5, 2, 3))], 2, BOTH[1])
        yield joined(f"{dtype}, a constant first", [filled(x.shaped(2, 5, 7, 2)), x], 3, BOTH[1])
    x = tensor(*IMAGE, dtype="uint8")
    parts = [x, x.scaled(0.5, 3), x.scaled(2.0, 200)]
    for place in BOTH:
        yield joined("uint8 of different scales, which are requantized", parts, 3, place, x.scaled(1.3, 90))
    bare = Spec(IMAGE, "uint8")
    yield joined("uint8, of which one has no scale", [x, bare], 3, refused="has no scale")
    yield joined("uint8 without scales", [bare, bare.shaped(2, 5, 7, 4)], 3)
    y = tensor(*IMAGE, dtype="int8")
    yield joined("int8 of different scales", [y, y.scaled(2)], 3, kernel_refuses="params.scale")
    options = {"fused_activation_function": "RELU"}
    refused = "LiteRT refuses a fused RELU here, or XNNPACK ignores it"
    yield joined("RELU", [tensor(*IMAGE)], 3, options=options, refused=refused, kernel_refuses="kTfLiteActNone")
    yield joined("RELU, two operands", [tensor(*IMAGE), tensor(*IMAGE)], 3, options=options, refused=refused)
    yield joined("one operand", [tensor(*IMAGE)], 3)
    yield joined("an operand without elements", [tensor(2, 0, 3), tensor(2, 5, 3)], 1)
    yield joined("rank 1", [tensor(3), tensor(5)], 0)
    yield joined("rank 5", [tensor(2, 3, 1, 5, 7), tensor(2, 3, 4, 5, 7)], 2)
    yield net("CONCATENATION", "one image twice", doubled, transposes=2)


def doubled(model: Net) -> None:
    image = model.plumbed(tensor(*IMAGE))
    model.output(model.drained(model.call("CONCATENATION", [image, image], tensor(2, 5, 7, 6), axis=-1)))


# --- PACK -------------------------------------------------------------------------------------


def packed(name: str, parts: Sequence[Spec], axis: int, **case: Any) -> Case:
    shape, at = parts[0].shape, axis % (len(parts[0].shape) + 1)
    y = replace(parts[0], value=None, name="").shaped(*shape[:at], len(parts), *shape[at:])
    return alone("PACK", name, parts, y, options={"axis": axis, "values_count": len(parts)}, **case)


def stacks() -> Iterator[Case]:
    """A negative axis counts from the end of the result, which is one longer."""
    for axis in (*AXES, 4, -5):
        yield packed(f"axis {axis}", [tensor(*IMAGE), tensor(*IMAGE)], axis)
        yield net("PACK", f"axis {axis} between convolutions", swapped(axis, "float32"), transposes=4)
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        yield packed(dtype, [x, x, x], -2, opsets=opsets(dtype))
        yield packed(f"{dtype} with a constant", [x, filled(x)], 2, dtype=dtype)
        yield net("PACK", f"{dtype} between convolutions", swapped(2, dtype), dtype=dtype, transposes=4)
    for dtype in ("int32", "int64", "uint32"):
        yield packed(dtype, [tensor(5, 3, dtype=dtype)] * 2, 1)
    yield packed("one operand", [tensor(5, 3)], 1)
    yield packed("scalars", [tensor(), tensor(), tensor()], 0)
    yield packed(
        "dynamic sizes", [tensor(None, None)] * 2, 1, given=[{"x0": drawn(n, 3), "x1": drawn(n, 3)} for n in (1, 4)]
    )
    yield packed("bool", [tensor(5, dtype="bool")] * 2, 0, kernel_refuses="not supported by pack")
    x = tensor(5, dtype="int8")
    refuses = "params.zero_point"
    yield packed("int8 of different zero points", [x, x.scaled(1, 40)], 0, kernel_refuses=refuses)


def swapped(axis: int, dtype: str) -> Callable[[Net], None]:
    """Two images are stacked, worked on, taken apart and given in the other order."""

    def draw(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        at = axis % 5
        more = x.shaped(*IMAGE[:at], 2, *IMAGE[at:])
        stack = model.call("PACK", [model.plumbed(x), model.plumbed(x)], more, axis=axis, values_count=2)
        kept = model.call("RELU", [stack], more)
        first, second = apart(model, kept, [x, x], axis)
        model.output(model.drained(second), model.drained(first))

    return draw
