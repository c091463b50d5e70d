"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW: every reduction, initial values, strides, dilations of both kinds, padding and cropping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    is_image,
    net,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)
NUMBERS = ("float32", "int8", "uint8", "int16", "int32", "int64", "float64")
REGIONS = {
    "ADD": ("ADD", "STABLEHLO_ADD"),
    "MUL": ("MUL", "STABLEHLO_MULTIPLY"),
    "MAXIMUM": ("MAXIMUM", "STABLEHLO_MAXIMUM"),
    "MINIMUM": ("MINIMUM", "STABLEHLO_MINIMUM"),
    "ALL": ("LOGICAL_AND", "STABLEHLO_AND"),
    "ANY": ("LOGICAL_OR",),
}


@dataclass(frozen=True)
class Window:
    """Settings per axis: size, stride, dilation, dilation of the operand, padding before and after."""

    sizes: Sequence[int]
    strides: Sequence[int] = ()
    dilations: Sequence[int] = ()
    base: Sequence[int] = ()
    padding: Sequence[tuple[int, int]] = ()

    def rows(self) -> list[tuple[int, int, int, int, tuple[int, int]]]:
        n = len(self.sizes)
        ones = (1,) * n
        return list(
            zip(
                self.sizes,
                self.strides or ones,
                self.dilations or ones,
                self.base or ones,
                self.padding or ((0, 0),) * n,
                strict=True,
            )
        )

    def output_sizes(self, shape: Sequence[int | None]) -> list[int]:
        return [
            (((n or 1) - 1) * base + 1 + sum(pad) - ((size - 1) * dilation + 1)) // stride + 1
            for n, (size, stride, dilation, base, pad) in zip(shape, self.rows(), strict=True)
        ]


ALL_FEATURES = Window((1, 3, 2, 2), (1, 2, 1, 2), (1, 1, 3, 2), (2, 1, 2, 3), ((0, 1), (2, -1), (-1, 1), (1, 2)))
IMAGE_WINDOW = Window((1, 3, 2, 1), (1, 2, 1, 1), padding=((0, 0), (1, 1), (0, 1), (0, 0)))


def cases() -> Iterator[Case]:
    for what in ("ADD", "MUL", "MAXIMUM", "MINIMUM"):
        for dtype in NUMBERS:
            yield window_case(f"{what} {dtype}", what, tensor(*IMAGE, dtype=dtype, scale=0), ALL_FEATURES)
            yield reduce_window_case(
                f"{what} {dtype}",
                what,
                tensor(*IMAGE, dtype=dtype, scale=0),
                Window((1, 3, 2, 2), (1, 2, 1, 2), (1, 1, 3, 1)),
            )
    for what in ("ALL", "ANY", "MAXIMUM", "MINIMUM", "MUL"):
        for initial in (False, True):
            yield window_case(f"{what} bool from {initial}", what, tensor(*IMAGE, dtype="bool"), ALL_FEATURES, initial)
            yield reduce_window_case(
                f"{what} bool from {initial}", what, tensor(*IMAGE, dtype="bool"), Window((1, 3, 2, 1)), initial
            )
    for what in ("ALL", "ANY"):
        yield reduce_window_case(
            f"{what} int32",
            what,
            tensor(*IMAGE, dtype="int32"),
            Window((1, 2, 1, 1)),
            3,
            input_arrays={"x0": random_array(*IMAGE, dtype="int32", low=0, high=1)},
        )
    beyond = np.where(random_array(*IMAGE, dtype="bool"), np.int64(2**32 - 65536), np.arange(210).reshape(IMAGE) - 100)
    for what in ("MAXIMUM", "MINIMUM"):
        x, given = tensor(*IMAGE, dtype="int64", scale=0), {"x0": beyond}
        yield window_case(f"{what} int64 beyond 32 bits", what, x, ALL_FEATURES, 2**32 - 65536, input_arrays=given)
    for what, codes in REGIONS.items():
        for code in codes:
            x = tensor(*IMAGE, dtype="bool" if what in ("ALL", "ANY") else "float32")
            yield window_case(f"region {code}", what, x, IMAGE_WINDOW, code=code)
    for what in ("ADD", "MAXIMUM"):
        yield window_case(f"{what} image", what, tensor(*IMAGE), IMAGE_WINDOW, place=PLACEMENTS[1])
        yield reduce_window_case(
            f"{what} image", what, tensor(*IMAGE), Window((1, 3, 2, 1), (1, 2, 1, 1)), place=PLACEMENTS[1]
        )
    yield window_case("initial value known at runtime", "ADD", tensor(*IMAGE), ALL_FEATURES, tensor(name="initial"))
    yield window_case(
        "initial value of rank 1", "ADD", tensor(*IMAGE), ALL_FEATURES, constant(np.full(1, 3, np.float32))
    )
    yield window_case("int8 with a scale", "ADD", tensor(*IMAGE, dtype="int8"), IMAGE_WINDOW)
    for dtype in ("float32", "int32", "int8"):
        for before, padding in ((True, (6, 0)), (False, (0, 6))):
            name = f"{dtype}, sums {'from the start' if before else 'from the end'}"
            running = Window((1, 1, 7, 1), padding=((0, 0), (0, 0), padding, (0, 0)))
            yield window_case(name, "ADD", tensor(*IMAGE, dtype=dtype, scale=0), running, 0)
            yield window_case(f"{name}, from 3", "ADD", tensor(*IMAGE, dtype=dtype, scale=0), running, 3)
    for dtype in ("int32", "int64"):
        ends = np.iinfo(dtype)
        given = {"x0": random_array(5, 7, dtype=dtype, low=ends.min, high=ends.max - 1)}
        yield window_case(
            f"{dtype}, sums that wrap", "ADD", tensor(5, 7, dtype=dtype), Window((3, 2)), 0, input_arrays=given
        )
        yield reduce_window_case(
            f"{dtype}, sums that wrap", "ADD", tensor(5, 7, dtype=dtype), Window((3, 2)), 0, input_arrays=given
        )
    for shape in ((7,), (2, 3, 5, 2, 3)):
        yield window_case(f"rank {len(shape)}", "ADD", tensor(*shape), Window((2,) * len(shape)))
    yield window_case("no reduced axes", "ADD", tensor(*IMAGE), Window((1, 1, 1, 1)))
    yield window_case(
        "a window larger than the tensor", "ADD", tensor(2, 3), Window((1, 5)), refusal="no elements", shape=(2, 0)
    )
    yield window_case(
        "a sum of booleans", "ADD", tensor(*IMAGE, dtype="bool"), IMAGE_WINDOW, False, refusal="sums booleans"
    )
    yield window_case("a dynamic size", "ADD", tensor(None, 3), Window((1, 2)), refusal="dynamic shape")
    yield window_case(
        "unsupported region", "ADD", tensor(*IMAGE), IMAGE_WINDOW, code="SUB", kernel_refusal="unsupported"
    )


def initial_value(x: Spec, initial: Any) -> Spec:
    """Return an initial value that affects the result, unless it is given."""
    if isinstance(initial, Spec):
        return initial
    value = 2 if initial is None else initial
    return replace(constant(np.asarray(value, x.dtype)), scale=x.scale, zero_point=x.zero_point)


def window_case(
    name: str,
    what: str,
    x: Spec,
    window: Window,
    initial: Any = None,
    *,
    code: str = "",
    place: Placement = in_isolation,
    shape: Sequence[int] = (),
    **case: Any,
) -> Case:
    sizes, strides, dilations, base, padding = zip(*window.rows(), strict=True)
    options = {
        "window_dimensions": list(sizes),
        "window_strides": list(strides),
        "window_dilations": list(dilations),
        "base_dilations": list(base),
        "padding": [n for pair in padding for n in pair],
    }
    y = Spec(tuple(shape or window.output_sizes(x.shape)), x.dtype, x.scale, x.zero_point)

    def build(model: Net) -> None:
        region = model.model.subgraph("region")
        a, b = (region.input(side, (), x.dtype) for side in ("a", "b"))
        reduced = region.tensor("reduced", (), x.dtype)
        region.operator(code or REGIONS[what][0], [a, b], [reduced])
        region.output(reduced)
        is_between = place is between_convolutions and is_image(x)
        ref = model.input_through_conv(x) if is_between else model.input(x)
        result = model.call(
            "STABLEHLO_REDUCE_WINDOW", [ref, initial_value(x, initial)], y, **options, body_subgraph_index=region.index
        )
        model.output(model.output_through_conv(result) if is_between else result)

    if place is between_convolutions:
        case.setdefault("max_transposes", 2)
    return net("STABLEHLO_REDUCE_WINDOW", name, build, **{"dtype": x.dtype, **case})


def reduce_window_case(
    name: str, what: str, x: Spec, window: Window, initial: Any = None, *, place: Placement = in_isolation, **case: Any
) -> Case:
    sizes, strides, dilations, *_ = zip(*window.rows(), strict=True)
    settings = [constant(np.asarray(row, np.int64)) for row in (sizes, strides, dilations)]
    y = x.with_shape(*window.output_sizes(x.shape))
    return place(
        "REDUCE_WINDOW", name, [x, initial_value(x, initial), *settings], y, options={"reduce_function": what}, **case
    )
