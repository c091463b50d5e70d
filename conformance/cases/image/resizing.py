"""RESIZE_NEAREST_NEIGHBOR: sizes at which the kernel's float32 arithmetic rounds to a pixel nobody else takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import BOTH, Placed, Spec, alone, constant, drawn, tensor

OP = "RESIZE_NEAREST_NEIGHBOR"
IMAGE = (2, 5, 7, 3)
MODES = {
    "legacy": {},
    "half_pixel_centers": {"half_pixel_centers": True},
    "align_corners": {"align_corners": True},
    "both": {"half_pixel_centers": True, "align_corners": True},
}
# From and to: where floor or round of the float32 product is not that of the exact one.
ROUNDED = {
    "legacy": ((2, 82), (26, 22), (6, 74), (14, 46), (44, 22)),
    "half_pixel_centers": ((2, 41), (6, 37), (4, 55)),
    "align_corners": ((2, 83), (14, 23), (32, 15), (4, 75)),
    "both": ((2, 83), (14, 23)),
}


def cases() -> Iterator[Case]:
    yield from sizes()
    yield from dtypes()
    yield from fast_forms()
    yield from runtime_sizes()


def opsets(dtype: str) -> tuple[int | None, ...]:
    return (None, 26) if dtype == "int16" else EVERY_OPSET


def resized(
    name: str, mode: str, size: Sequence[int], x: Spec | None = None, place: Placed = alone, **case: Any
) -> Case:
    x = x or tensor(*IMAGE)
    n, _, _, c = x.shape
    operands = [x, constant(list(size))]
    made = Spec((n, *size, c), x.dtype, x.scale, x.zero_point)
    return place(OP, f"{mode} {name}", operands, made, options=MODES[mode], **{"dtype": x.dtype, **case})


def sizes() -> Iterator[Case]:
    for mode in MODES:
        for size in ((11, 17), (3, 2), (4, 9), (5, 7), (1, 1), (10, 21), (5, 14)):
            for place in BOTH:
                yield resized(f"to {size[0]}x{size[1]}", mode, size, place=place)
        for dtype in ("float32", "int8"):
            x = tensor(2, 10, 14, 3, dtype=dtype)
            yield resized(f"{dtype} to half the size, between pixels", mode, (5, 7), x, BOTH[1])
        for before, after in ROUNDED[mode]:
            for dtype in ("float32", "int8"):
                yield resized(
                    f"{dtype} {before} to {after}", mode, (after, 3), tensor(1, before, 3, 2, dtype=dtype), BOTH[1]
                )
                yield resized(
                    f"{dtype} {before} to {after} columns", mode, (2, after), tensor(1, 2, before, 1, dtype=dtype)
                )


def dtypes() -> Iterator[Case]:
    for mode in MODES:
        for dtype in ("float32", "int8", "uint8", "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            for place in BOTH:
                yield resized(f"{dtype} to 4x9", mode, (4, 9), x, place, opsets=opsets(dtype))
                yield resized(f"{dtype} to 10x14", mode, (10, 14), x, place, opsets=opsets(dtype))
        for dtype in ("int32", "int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield resized(f"{dtype} without scale to 4x9", mode, (4, 9), x)
            yield resized(f"{dtype} without scale to 10x14", mode, (10, 14), x)
    x = tensor(*IMAGE, dtype="int64")
    yield resized("int64", "legacy", (10, 14), x, kernel_refuses="requires float, uint8, int8 or int16")


def fast_forms() -> Iterator[Case]:
    """Many floats stay channels first and many integers go channels last; so does what Gather moves."""
    for dtype, transposes in (("float32", 2), ("int8", 4)):
        x = tensor(1, 16, 16, 32, dtype=dtype)
        yield resized(
            f"{dtype} of many pixels to twice the size", "legacy", (32, 32), x, BOTH[1], transposes=transposes
        )
        yield resized(
            f"{dtype} of many pixels to an odd size", "half_pixel_centers", (23, 29), x, BOTH[1], transposes=4
        )


def runtime_sizes() -> Iterator[Case]:
    """The same pixels where sizes are known as it runs only."""
    size = tensor(2, dtype="int32", name="size")
    for mode in MODES:
        for dtype in ("float32", "int8", "uint8"):
            x = tensor(*IMAGE, dtype=dtype)
            given = {"size": np.array([4, 9], np.int32)}
            for place in BOTH:
                name = f"{mode} {dtype}, a size known as it runs"
                yield place(OP, name, [x, size], x.shaped(2, 4, 9, 3), options=MODES[mode], given=given)
            before, after = ROUNDED[mode][0]
            given = {"size": np.array([after, 1], np.int32)}
            x = tensor(1, before, 3, 2, dtype=dtype)
            name = f"{mode} {dtype} {before} to {after}, known as it runs"
            yield alone(OP, name, [x, size], x.shaped(1, None, None, 2), options=MODES[mode], given=given)
        steps = [{"x0": drawn(n, h, 7, 3)} for n, h in ((1, 5), (3, 8))]
        operands = [tensor(None, None, 7, 3), constant([4, 14])]
        made = tensor(None, 4, 14, 3)
        yield alone(OP, f"{mode} of an unknown size", operands, made, options=MODES[mode], given=steps)
