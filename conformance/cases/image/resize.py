"""RESIZE_BILINEAR: three ways to place pixels, odd sizes up and down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import BOTH, Placed, alone, constant, drawn, tensor

IMAGE = (2, 5, 7, 3)
MODES = {"legacy": {}, "half_pixel_centers": {"half_pixel_centers": True}, "align_corners": {"align_corners": True}}
UP, DOWN, MIXED = (11, 17), (3, 2), (4, 9)


def cases() -> Iterator[Case]:
    for mode in MODES:
        for size in (UP, DOWN, MIXED, (5, 7), (1, 1), (10, 14)):
            yield resized(
                f"float32 {mode} to {size[0]}x{size[1]}", mode, size, opsets=EVERY_OPSET if size == UP else (None,)
            )
        for size in (UP, DOWN):
            yield resized(f"float32 {mode} to {size[0]}x{size[1]}", mode, size, place=BOTH[1])
        for dtype in ("int8", "uint8", "int16"):
            for place in BOTH:
                yield resized(f"{dtype} {mode} to {MIXED[0]}x{MIXED[1]}", mode, MIXED, dtype, place)
            yield resized(f"{dtype} {mode} to 10x14", mode, (10, 14), dtype)
        yield resized(f"one pixel {mode}", mode, (3, 5), shape=(1, 1, 1, 3))
    for place in BOTH:
        given = {"size": np.array([4, 9], np.int32)}
        options = {"half_pixel_centers": True}
        asked = tensor(2, dtype="int32", name="size")
        yield place(
            "RESIZE_BILINEAR",
            "a size known as it runs",
            [tensor(*IMAGE), asked],
            tensor(2, 4, 9, 3),
            options=options,
            given=given,
        )
    steps = [{"x0": drawn(n, h, 7, 3)} for n, h in ((1, 5), (3, 8))]
    yield alone(
        "RESIZE_BILINEAR",
        "an image of unknown size",
        [tensor(None, None, 7, 3), constant([4, 9])],
        tensor(None, 4, 9, 3),
        given=steps,
    )


def resized(
    name: str,
    mode: str,
    size: Sequence[int],
    dtype: str = "float32",
    place: Placed = alone,
    *,
    shape: Sequence[int] = IMAGE,
    **case: Any,
) -> Case:
    x = tensor(*shape, dtype=dtype)
    return place(
        "RESIZE_BILINEAR",
        name,
        [x, constant(list(size))],
        x.shaped(shape[0], *size, shape[3]),
        options=MODES[mode],
        **case,
    )
