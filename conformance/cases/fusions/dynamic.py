"""Products large enough for dynamic quantization, and those beside them that are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.cases.image.convolution import conv
from conformance.cases.matrix.fully_connected import dense
from conformance.models import drawn

HYBRID: Mapping[str, Any] = {"weights": "int8", "per_axis": True}
PIXELS: Mapping[str, Any] = {**HYBRID, "shape": (1, 13, 17, 67), "out": 73, "kernel": (1, 1)}
PATCHES: Mapping[str, Any] = {**HYBRID, "shape": (1, 11, 13, 31), "out": 29, "kernel": (3, 5)}


def quick(case: Case) -> Case:
    return replace(case, options={"optimize": "speed"})


def cases() -> Iterator[Case]:
    yield from pixels()
    yield from patches()
    yield from rows()


def pixels() -> Iterator[Case]:
    yield conv("many pixels, float32 with int8 weights", **PIXELS)
    yield conv("many pixels, float32 with int8 weights of one scale", **{**PIXELS, "per_axis": False})
    yield conv("many pixels, float32 with int4 weights", **{**PIXELS, "weights": "int4"})
    yield conv("many pixels with RELU6", **PIXELS, fused_activation_function="RELU6")
    yield conv("many pixels of three images", **{**PIXELS, "shape": (3, 7, 11, 67)})
    yield quick(conv("many pixels with a stride", **{**PIXELS, "shape": (1, 26, 34, 67)}, stride=(2, 2)))


def patches() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in ((1, 1), (2, 1), (1, 3)):
            sizes = {**PATCHES, "shape": (1, 11 * stride[0] + 6, 13 * stride[1] + 6, 31)}
            text = f"patches, {padding}, stride {stride[0]}x{stride[1]}"
            yield quick(conv(text, **sizes, padding=padding, stride=stride))
        yield quick(
            conv(
                f"patches, {padding}, dilated",
                **{**PATCHES, "shape": (1, 19, 23, 31)},
                padding=padding,
                dilation=(2, 3),
            )
        )
    yield quick(conv("patches of three images", **{**PATCHES, "shape": (3, 11, 13, 31)}))
    yield quick(conv("patches with int4 weights of one scale", **{**PATCHES, "weights": "int4", "per_axis": False}))


def rows() -> Iterator[Case]:
    weight_only: Mapping[str, Any] = {"weights": "int8", "per_axis": True}
    yield dense("one row of many weights, float32 with int8 weights", (1, 1031), out=1033, **weight_only)
    yield dense("one row of 134,000 weights, float32 with int8 weights", (1, 257), out=521, **weight_only)
    yield dense("many rows, float32 with int8 weights", (37, 257), out=263, **weight_only)
    yield dense("many rows after a flatten", (37, 7, 11, 5), depth=385, out=263, **weight_only)
    yield dense("many rows that stay apart", (5, 7, 257), out=263, keep=True, **weight_only)
    given = [{"x0": drawn(n, m, 257)} for n, m in ((1, 5), (3, 2))]
    yield dense("unknown sizes that stay apart", (None, None, 257), out=4099, keep=True, given=given, **weight_only)
