"""Comparisons: broadcasting, quantized operands, large integers, strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    in_isolation,
    is_image,
    net,
    random_array,
    tensor,
)
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
EIGHT_BIT_DTYPES = ("int8", "uint8")
ORDERED = ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
EQUALITY = ("EQUAL", "NOT_EQUAL")
OPERAND_SHAPES = ((), (3,), (7, 1), (5, 1, 3))


def cases() -> Iterator[Case]:
    for op in (*EQUALITY, *ORDERED):
        yield from float_cases(op)
        yield from integer_cases(op)
        yield from quantized_cases(op)
    yield from int16_cases()
    yield from string_cases()
    yield from unsupported_scale_cases()


def comparison_case(op: str, name: str, x: Spec, y: Spec, place: Placement = in_isolation, **case_fields: Any) -> Case:
    """Return a comparison of operands that share few distinct values.

    Less, equal and greater all occur.
    """
    shape = np.broadcast_shapes(*(tuple(size or 1 for size in spec.shape) for spec in (x, y)))
    inputs = [spec for spec in (x, y) if spec.value is None]
    arrays = {f"x{k}": values_near_zero(spec, place, f"{op}{k}") for k, spec in enumerate(inputs)}
    return place(
        op, name, [x, y], Spec(shape, "bool"), **{"input_arrays": arrays, "opsets": opsets(place, x), **case_fields}
    )


def values_near_zero(spec: Spec, place: Placement = in_isolation, seed: str = "") -> Array:
    """Return random integers up to 5 steps from the zero point.

    Floats are multiples of 0.25 up to 1.25.
    """
    extra_channels = 2 if place is between_convolutions and is_image(spec) else 0
    shape = tuple(size or 1 for size in spec.shape)
    shape = (*shape[:-1], shape[-1] + extra_channels) if extra_channels else shape
    if spec.dtype == "bool":
        return random_array(*shape, dtype="bool", seed=seed)
    zero_point = int(np.asarray(spec.zero_point))
    steps = random_array(*shape, dtype="int32", low=-5, high=5, seed=seed)
    return (steps / 4).astype(spec.dtype) if "float" in spec.dtype else (steps + zero_point).astype(spec.dtype)


def opsets(place: Placement, x: Spec) -> tuple[int | None, ...]:
    """Return every supported opset for single operators.

    Quantized int16 needs opset 21. Between convolutions, only the default opset is returned.
    """
    quantized_int16 = x.dtype == "int16" and x.scale is not None
    return (None,) if place is between_convolutions else (None, 26) if quantized_int16 else EVERY_OPSET


def float_cases(op: str) -> Iterator[Case]:
    x = tensor(*IMAGE)
    for place in PLACEMENTS:
        yield comparison_case(op, "float32", x, x, place)
        for shape in OPERAND_SHAPES:
            operand = replace(x.with_shape(*shape), value=values_near_zero(x.with_shape(*shape)))
            yield comparison_case(op, f"float32 and a constant {shape}", x, operand, place, opsets=(None,))
            yield comparison_case(op, f"a constant {shape} and float32", operand, x, place, opsets=(None,))
    yield comparison_case(op, "float32 of rank 5 and 2", tensor(2, 3, 5, 1, 7), tensor(3, 1), opsets=(None,))
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], np.float32)
    arrays = {"x0": np.repeat(values, 6), "x1": np.tile(values, 6)}
    yield comparison_case(op, "float32 edges", tensor(36), tensor(36), input_arrays=arrays)
    half = tensor(*IMAGE, dtype="float16")
    yield comparison_case(op, "float16", half, half)


def integer_cases(op: str) -> Iterator[Case]:
    for dtype in ("int32", "int64", "bool") if op in EQUALITY else ("int32", "int64"):
        x = tensor(*IMAGE, dtype=dtype)
        yield comparison_case(op, dtype, x, x.with_shape(5, 1, 3))
    large = 2**53 + np.arange(-4, 4)
    arrays = {"x0": np.repeat(large, 8), "x1": np.tile(large, 8)}
    x = tensor(64, dtype="int64")
    yield comparison_case(op, "int64 beyond float64", x, x, input_arrays=arrays)
    arrays = {"x0": np.repeat(large, 8).astype(np.int32), "x1": np.tile(2**31 - 1 - np.arange(8), 8).astype(np.int32)}
    yield comparison_case(op, "int32 beyond float32", x := tensor(64, dtype="int32"), x, input_arrays=arrays)


def quantized_cases(op: str) -> Iterator[Case]:
    """Yield cases with int8, uint8 and int16.

    The kernel rounds 8-bit operands to multiples of 1/256, so distinct numbers may be equal.
    """
    for dtype in EIGHT_BIT_DTYPES:
        x = tensor(*IMAGE, dtype=dtype)
        zero_point = int(np.asarray(x.zero_point))
        for place in PLACEMENTS:
            yield comparison_case(op, dtype, x, x, place)
            yield comparison_case(op, f"{dtype} with different scales", x, x.rescale(1.5, zero_point + 3), place)
            y = x.with_shape(7, 1).rescale(0.5, zero_point - 2)
            yield comparison_case(
                op, f"{dtype} and a constant with a different scale", x, replace(y, value=values_near_zero(y)), place
            )
            yield comparison_case(
                op,
                f"{dtype} of one scale and different zero points",
                x,
                x.rescale(1, zero_point + 2),
                place,
                opsets=(None,),
            )
        for scale in (0.3, 0.7, 0.0301, 1 / 256, 2**-9, 0.0011, 1e-4):
            for y_scale in (scale, scale * 1.3, scale / 2):
                if op in ("EQUAL", "LESS", "GREATER_EQUAL") and y_scale < 1:
                    yield every_pair_case(op, dtype, scale, y_scale)
        x = tensor(None, None, 3, dtype=dtype)
        arrays = [{"x0": random_array(n, 5, 3, dtype=dtype)} for n in (1, 4)]
        y = replace(x.with_shape(3).rescale(1.5), value=values_near_zero(x.with_shape(3)))
        yield in_isolation(op, f"{dtype} of dynamic size", [x, y], Spec((None, None, 3), "bool"), input_arrays=arrays)
    if op in EQUALITY:
        return
    unscaled = tensor(*IMAGE, dtype="int16", scale=0)
    for name, y in (
        ("without scale", unscaled),
        ("with different scales, which the kernel ignores", tensor(*IMAGE, dtype="int16")),
    ):
        x = y.rescale(0.3)
        for place in PLACEMENTS if y.scale else PLACEMENTS[:1]:
            yield comparison_case(op, f"int16 {name}", x, y, place)


def every_pair_case(op: str, dtype: str, x_scale: float, y_scale: float) -> Case:
    """Return a comparison of all pairs of 8-bit values."""
    zero_point = -5 if dtype == "int8" else 122
    x = tensor(256, 1, dtype=dtype, scale=x_scale, zero_point=zero_point)
    y = tensor(256, dtype=dtype, scale=y_scale, zero_point=zero_point + (x_scale != y_scale))
    all_values = np.arange(256).astype(np.uint8).view(dtype)
    arrays = {"x0": all_values.reshape(256, 1), "x1": all_values}
    return comparison_case(
        op, f"every {dtype} of scale {x_scale:g} and {y_scale:g}", x, y, input_arrays=arrays, opsets=(None,), runs=1
    )


def int16_cases() -> Iterator[Case]:
    """Yield cases with int16, which EQUAL and NOT_EQUAL rescale.

    EQUAL also supports int16 without a scale.
    """
    for op in EQUALITY:
        for scale in (0.0003, 0.0091, 0.3):
            for factor in (1.0, 1.5):
                x = tensor(*IMAGE, dtype="int16", scale=scale)
                for place in PLACEMENTS:
                    name = f"int16 of scale {scale:g} and {factor:g} times that"
                    yield comparison_case(op, name, x, x.rescale(factor), place)
    unscaled = tensor(*IMAGE, dtype="int16", scale=0)
    yield comparison_case("EQUAL", "int16 without scale", unscaled, unscaled)
    yield comparison_case("NOT_EQUAL", "int16 without scale", unscaled, unscaled, refusal="lack per-tensor scales")
    bfloat16_image = tensor(*IMAGE, dtype="bfloat16")

    def build_bfloat16_comparison(model: Net) -> None:
        x, y = (model.call("CAST", [tensor(*IMAGE)], bfloat16_image) for _ in range(2))
        model.output(model.call("LESS", [x, y], tensor(*IMAGE, dtype="bool")))

    yield net("LESS", "bfloat16", build_bfloat16_comparison, dtype="bfloat16", opsets=EVERY_OPSET)


def string_cases() -> Iterator[Case]:
    x_texts = np.array([b"a", b"b", b"", b"abc", "\u017elu\u0165".encode()], object)
    y_texts = np.array([b"a", b"c", b"", b"ab", "\u017elu\u0165".encode()], object)
    arrays = {"x0": x_texts, "x1": y_texts}
    x, y = tensor(5, dtype="string"), tensor(5, dtype="bool")
    for op in EQUALITY:
        yield in_isolation(op, "strings", [x, x], y, input_arrays=arrays, opsets=(None, 19, 26))
        column_arrays = {**arrays, "x0": x_texts.reshape(5, 1)}
        yield in_isolation(
            op, "strings, broadcast", [x.with_shape(5, 1), x], y.with_shape(5, 5), input_arrays=column_arrays
        )
        yield in_isolation(op, "strings at opset 18", [x, x], y, input_arrays=arrays, refusal="opset 19", opsets=(18,))


def unsupported_scale_cases() -> Iterator[Case]:
    """Yield cases with scales outside (0, 1), which are refused.

    LiteRT aborts at 0 and 1, and shifts by a negative number of bits above 1.
    """
    for op in ("EQUAL", "GREATER"):
        for dtype in EIGHT_BIT_DTYPES:
            x = tensor(7, dtype=dtype, scale=0)
            yield comparison_case(op, f"{dtype} without scale", x, x, refusal="lack per-tensor scales", opsets=(None,))
            for scale in (1.0, 1.5):
                x = tensor(7, dtype=dtype, scale=scale)
                yield comparison_case(
                    op,
                    f"{dtype} of scale {scale:g}",
                    x,
                    x,
                    refusal="the kernel compares correctly only below 1",
                    opsets=(None,),
                )
