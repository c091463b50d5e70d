"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW: reductions, windows, padding.

Cases differ in initial values, strides, dilations of both kinds, padding and cropping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import (
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
    """Settings per axis: size, stride, dilations, and padding.

    The dilations are of the window and of the operand; the padding is before and after the operand.
    """

    sizes: Sequence[int]
    strides: Sequence[int] = ()
    dilations: Sequence[int] = ()
    base_dilations: Sequence[int] = ()
    padding: Sequence[tuple[int, int]] = ()

    def settings_per_axis(self) -> list[tuple[int, int, int, int, tuple[int, int]]]:
        n = len(self.sizes)
        ones = (1,) * n
        return list(
            zip(
                self.sizes,
                self.strides or ones,
                self.dilations or ones,
                self.base_dilations or ones,
                self.padding or ((0, 0),) * n,
                strict=True,
            )
        )

    def output_sizes(self, shape: Sequence[int | None]) -> list[int]:
        return [
            (((n or 1) - 1) * base_dilations + 1 + sum(pad) - ((size - 1) * dilation + 1)) // stride + 1
            for n, (size, stride, dilation, base_dilations, pad) in zip(shape, self.settings_per_axis(), strict=True)
        ]


ALL_FEATURES = Window((1, 3, 2, 2), (1, 2, 1, 2), (1, 1, 3, 2), (2, 1, 2, 3), ((0, 1), (2, -1), (-1, 1), (1, 2)))
IMAGE_WINDOW = Window((1, 3, 2, 1), (1, 2, 1, 1), padding=((0, 0), (1, 1), (0, 1), (0, 0)))


def cases() -> Iterator[Case]:
    for reduction in ("ADD", "MUL", "MAXIMUM", "MINIMUM"):
        for dtype in NUMBERS:
            yield window_case(f"{reduction} {dtype}", reduction, tensor(*IMAGE, dtype=dtype, scale=0), ALL_FEATURES)
            yield reduce_window_case(
                f"{reduction} {dtype}",
                reduction,
                tensor(*IMAGE, dtype=dtype, scale=0),
                Window((1, 3, 2, 2), (1, 2, 1, 2), (1, 1, 3, 1)),
            )
    for reduction in ("ALL", "ANY", "MAXIMUM", "MINIMUM", "MUL"):
        for initial in (False, True):
            yield window_case(
                f"{reduction} bool from {initial}", reduction, tensor(*IMAGE, dtype="bool"), ALL_FEATURES, initial
            )
            yield reduce_window_case(
                f"{reduction} bool from {initial}",
                reduction,
                tensor(*IMAGE, dtype="bool"),
                Window((1, 3, 2, 1)),
                initial,
            )
    for reduction in ("ALL", "ANY"):
        yield reduce_window_case(
            f"{reduction} int32",
            reduction,
            tensor(*IMAGE, dtype="int32"),
            Window((1, 2, 1, 1)),
            3,
            input_arrays={"x0": random_array(*IMAGE, dtype="int32", low=0, high=1)},
        )
    values_beyond_32_bits = np.where(
        random_array(*IMAGE, dtype="bool"), np.int64(2**32 - 65536), np.arange(210).reshape(IMAGE) - 100
    )
    for reduction in ("MAXIMUM", "MINIMUM"):
        x, input_arrays = tensor(*IMAGE, dtype="int64", scale=0), {"x0": values_beyond_32_bits}
        yield window_case(
            f"{reduction} int64 beyond 32 bits", reduction, x, ALL_FEATURES, 2**32 - 65536, input_arrays=input_arrays
        )
    for reduction, codes in REGIONS.items():
        for code in codes:
            x = tensor(*IMAGE, dtype="bool" if reduction in ("ALL", "ANY") else "float32")
            yield window_case(f"region {code}", reduction, x, IMAGE_WINDOW, code=code)
    for reduction in ("ADD", "MAXIMUM"):
        yield window_case(f"{reduction} image", reduction, tensor(*IMAGE), IMAGE_WINDOW, place=between_convolutions)
        yield reduce_window_case(
            f"{reduction} image",
            reduction,
            tensor(*IMAGE),
            Window((1, 3, 2, 1), (1, 2, 1, 1)),
            place=between_convolutions,
        )
    yield window_case("runtime initial value", "ADD", tensor(*IMAGE), ALL_FEATURES, tensor(name="initial"))
    yield window_case(
        "initial value of rank 1", "ADD", tensor(*IMAGE), ALL_FEATURES, constant(np.full(1, 3, np.float32))
    )
    yield window_case("int8 with a scale", "ADD", tensor(*IMAGE, dtype="int8"), IMAGE_WINDOW)
    for dtype in ("float32", "int32", "int8"):
        for before, padding in ((True, (6, 0)), (False, (0, 6))):
            name = f"{dtype}, cumulative sums {'from the start' if before else 'from the end'}"
            cumulative_window = Window((1, 1, 7, 1), padding=((0, 0), (0, 0), padding, (0, 0)))
            yield window_case(name, "ADD", tensor(*IMAGE, dtype=dtype, scale=0), cumulative_window, 0)
            yield window_case(
                f"{name}, initial value 3", "ADD", tensor(*IMAGE, dtype=dtype, scale=0), cumulative_window, 3
            )
    for dtype in ("int32", "int64"):
        limits = np.iinfo(dtype)
        input_arrays = {"x0": random_array(5, 7, dtype=dtype, low=limits.min, high=limits.max - 1)}
        yield window_case(
            f"{dtype}, sums that wrap", "ADD", tensor(5, 7, dtype=dtype), Window((3, 2)), 0, input_arrays=input_arrays
        )
        yield reduce_window_case(
            f"{dtype}, sums that wrap", "ADD", tensor(5, 7, dtype=dtype), Window((3, 2)), 0, input_arrays=input_arrays
        )
    for shape in ((7,), (2, 3, 5, 2, 3)):
        yield window_case(f"rank {len(shape)}", "ADD", tensor(*shape), Window((2,) * len(shape)))
    yield window_case("no reduced axes", "ADD", tensor(*IMAGE), Window((1, 1, 1, 1)))
    yield window_case(
        "window larger than the tensor", "ADD", tensor(2, 3), Window((1, 5)), refusal="no elements", shape=(2, 0)
    )
    yield window_case(
        "sum of booleans", "ADD", tensor(*IMAGE, dtype="bool"), IMAGE_WINDOW, False, refusal="adds booleans"
    )
    yield window_case("dynamic shape", "ADD", tensor(None, 3), Window((1, 2)), refusal="dynamic shape")
    yield window_case(
        "unsupported region", "ADD", tensor(*IMAGE), IMAGE_WINDOW, code="SUB", kernel_refusal="unsupported"
    )


def initial_value(x: Spec, initial: Any) -> Spec:
    """Return the initial value as an operand.

    None means 2, which affects every reduction.
    """
    if isinstance(initial, Spec):
        return initial
    value = 2 if initial is None else initial
    return replace(constant(np.asarray(value, x.dtype)), scale=x.scale, zero_point=x.zero_point)


def window_case(
    name: str,
    reduction: str,
    x: Spec,
    window: Window,
    initial: Any = None,
    *,
    code: str = "",
    place: Placement = in_isolation,
    shape: Sequence[int] = (),
    **case_fields: Any,
) -> Case:
    sizes, strides, dilations, base_dilations, padding = zip(*window.settings_per_axis(), strict=True)
    options = {
        "window_dimensions": list(sizes),
        "window_strides": list(strides),
        "window_dilations": list(dilations),
        "base_dilations": list(base_dilations),
        "padding": [pad for pads in padding for pad in pads],
    }
    y = Spec(tuple(shape or window.output_sizes(x.shape)), x.dtype, x.scale, x.zero_point)

    def build(model: Net) -> None:
        region = model.model.subgraph("region")
        a, b = (region.input(side, (), x.dtype) for side in ("a", "b"))
        reduced = region.tensor("reduced", (), x.dtype)
        region.operator(code or REGIONS[reduction][0], [a, b], [reduced])
        region.output(reduced)
        is_between = place is between_convolutions and is_image(x)
        operand = model.input_through_conv(x) if is_between else model.input(x)
        result = model.call(
            "STABLEHLO_REDUCE_WINDOW",
            [operand, initial_value(x, initial)],
            y,
            **options,
            body_subgraph_index=region.index,
        )
        model.output(model.output_through_conv(result) if is_between else result)

    if place is between_convolutions:
        case_fields.setdefault("max_transposes", 2)
    return net("STABLEHLO_REDUCE_WINDOW", name, build, **{"dtype": x.dtype, **case_fields})


def reduce_window_case(
    name: str,
    reduction: str,
    x: Spec,
    window: Window,
    initial: Any = None,
    *,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    sizes, strides, dilations, *_ = zip(*window.settings_per_axis(), strict=True)
    settings = [constant(np.asarray(values, np.int64)) for values in (sizes, strides, dilations)]
    y = x.with_shape(*window.output_sizes(x.shape))
    return place(
        "REDUCE_WINDOW",
        name,
        [x, initial_value(x, initial), *settings],
        y,
        options={"reduce_function": reduction},
        **case_fields,
    )
