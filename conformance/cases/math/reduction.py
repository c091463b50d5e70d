"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN and ARG_MAX: axes, layouts, integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import PLACEMENTS, Placement, between_convolutions, constant, in_isolation, random_array, tensor
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
EXTREMES = ("REDUCE_MAX", "REDUCE_MIN")


def cases() -> Iterator[Case]:
    yield from mean_cases()
    yield from fixed_point_mean_cases()
    for op in ("SUM", *EXTREMES):
        yield from axes_cases(op)
        yield from quantized_cases(op)
    yield from integer_cases()
    yield from extreme_cases()
    yield from empty_axis_cases()
    yield from arg_max_cases()


def shape_after_reduction(shape: Sequence[int], axes: Sequence[int], keep_dims: bool) -> tuple[int, ...]:
    """Return the shape without the reduced axes, or with size 1 for them."""
    reduced_axes = {axis % len(shape) for axis in axes}
    return tuple(1 if i in reduced_axes else size for i, size in enumerate(shape) if keep_dims or i not in reduced_axes)


def mean_case(
    name: str,
    axes: Sequence[int],
    keep_dims: bool,
    dtype: str = "float32",
    place: Placement = in_isolation,
    shape: Sequence[int] = IMAGE,
    factor: float = 0.3,
    **case_fields: Any,
) -> Case:
    """Return a mean over constant axes; ``factor``: output scale over input scale."""
    x = tensor(*shape, dtype=dtype)
    y = x.with_shape(*shape_after_reduction(shape, axes, keep_dims)).rescale(factor)
    full_name = f"{name} {'kept' if keep_dims else 'dropped'}"
    return place(
        "MEAN", full_name, [x, constant(np.asarray(axes, np.int32))], y, options={"keep_dims": keep_dims}, **case_fields
    )


WITHOUT_TOLERANCE: Mapping[str, Any] = {
    "tolerance": Tolerance(steps=0),
    "tolerance_reason": "the kernel multiplies and rounds in fixed point",
}


def fixed_point_mean_cases() -> Iterator[Case]:
    """Yield cases of int16 means, which the kernel rounds twice.

    At scale 1e-8, the product of a sum and the multiplier may wrap around.
    """
    for factor in (0.3, 0.7, 5.0, 1e-8, 1e-5, 1e9):
        for axes in ([1, 2], [3], [3, 3, -1], [0, 1, 2, 3], []):
            yield mean_case(
                f"int16 axes {axes} at {factor:g} of the scale",
                axes,
                False,
                "int16",
                factor=factor,
                **WITHOUT_TOLERANCE,
            )
        yield mean_case(
            f"int16 axes [1, 2] at {factor:g} of the scale",
            [1, 2],
            True,
            "int16",
            between_convolutions,
            factor=factor,
            **WITHOUT_TOLERANCE,
        )
    # The sums are 0 in integers; in floats, sums of multiples of 0.047 are about 1e-9.
    cancelling = np.tile(np.array([-5 - 110, -5 + 23, -5 + 87], np.int8), (2, 5, 7, 1))
    for keep_dims in (True, False):
        case_fields: dict[str, Any] = {"input_arrays": {"x0": cancelling}, "factor": 1e-8}
        yield mean_case("int8 whose sum is 0, at a small scale", [3], keep_dims, "int8", **case_fields)


def mean_cases() -> Iterator[Case]:
    for keep_dims in (True, False):
        for axes in ([0], [1], [2], [3], [1, 2], [1, 3], [2, 3], [0, 1, 2, 3], [0, 1, 2]):
            for place in PLACEMENTS:
                yield mean_case(f"axes {axes}", axes, keep_dims, place=place)
        for dtype in ("int8", "uint8", "int16"):
            for axes in ([1, 2], [3], [1], [2, 3]):
                yield mean_case(f"{dtype} axes {axes}", axes, keep_dims, dtype, between_convolutions)
            yield mean_case(
                f"{dtype} axes [1, 2]", [1, 2], keep_dims, dtype, opsets=EVERY_OPSET if dtype != "int16" else (None, 26)
            )
            yield mean_case(f"{dtype} axes [1, 2] at the same scale", [1, 2], keep_dims, dtype, factor=1.0)
            if dtype != "int16":
                # 1/8960 is the smallest scale at which ONNX Runtime's pooling accepts 35 elements.
                for factor in (1e-7, 1 / 9000, 1 / 8000, 1e9):
                    name = f"{dtype} axes [1, 2] at {factor:.3g} of the scale"
                    yield mean_case(name, [1, 2], keep_dims, dtype, between_convolutions, factor=factor)
        yield mean_case("axes [1, 2] at every opset", [1, 2], keep_dims, opsets=EVERY_OPSET)
        for name, axes in (
            ("negative axes", [-2, -3]),
            ("repeated axes", [1, 2, 1, -2]),
            ("axes in any order", [2, 1]),
            ("no axes", []),
        ):
            yield mean_case(name, axes, keep_dims, place=between_convolutions)
        for dtype in ("int32", "int64"):
            yield mean_case(f"{dtype}, truncated toward zero", [1, 2], keep_dims, dtype)
            negative: dict[str, Any] = {
                "input_arrays": {"x0": np.array([[-7, -4, 2], [1, -3, -6], [5, 5, 4]], dtype)},
                "shape": (3, 3),
            }
            yield mean_case(f"{dtype} below zero, truncated toward zero", [1], keep_dims, dtype, **negative)
            yield mean_case(f"{dtype}, repeated axes count once", [1, 1, -1], keep_dims, dtype, **negative)
            yield mean_case(f"{dtype} without axes", [], keep_dims, dtype)
        yield mean_case("int8 without axes", [], keep_dims, "int8", factor=1.0)
        yield mean_case("rank 3", [1], keep_dims, shape=(2, 5, 7))
        yield mean_case("rank 5", [1, -1], keep_dims, shape=(2, 3, 5, 1, 7))
    x = tensor(*IMAGE)
    yield in_isolation("MEAN", "a scalar axis", [x, constant(2)], tensor(2, 5, 3))
    axes_operand = tensor(2, dtype="int32", name="axes")
    for place in PLACEMENTS:
        arrays = {"axes": np.array([1, -1], np.int32)}
        # The axes are unknown when the layout is planned, so the file's layout is restored.
        yield place(
            "MEAN",
            "axes known at runtime and kept",
            [x, axes_operand],
            tensor(2, 1, 7, 1),
            options={"keep_dims": True},
            input_arrays=arrays,
            max_transposes=4,
        )
    options = {"keep_dims": False}
    yield in_isolation(
        "MEAN",
        "axes known at runtime and dropped",
        [x, axes_operand],
        tensor(None, None),
        options=options,
        input_arrays=arrays,
    )


def reduce_case(
    op: str,
    name: str,
    axes: Any,
    keep_dims: bool = True,
    dtype: str = "float32",
    place: Placement = in_isolation,
    *,
    shape: Sequence[int] = IMAGE,
    factor: float | None = None,
    zero_point: int | None = None,
    scale: float | None = None,
    **case_fields: Any,
) -> Case:
    """Return a reduction over constant axes.

    ``factor``: output scale over input scale, by default 3 for sums and 1 for extremes.
    """
    x = tensor(*shape, dtype=dtype, scale=scale)
    axes_list = np.ravel(np.asarray(axes, np.int32)).tolist()
    y = x.with_shape(*shape_after_reduction(shape, axes_list, keep_dims)).rescale(
        factor or (3.0 if op == "SUM" else 1.0), zero_point
    )
    full_name = f"{name} {'kept' if keep_dims else 'dropped'}"
    return place(
        op, full_name, [x, constant(np.asarray(axes, np.int32))], y, options={"keep_dims": keep_dims}, **case_fields
    )


def axes_cases(op: str) -> Iterator[Case]:
    """Yield cases with constant, runtime, repeated, negative, unordered and no axes."""
    for keep_dims in (True, False):
        for axes in ([0], [1], [2], [3], [1, 2], [1, 3], [2, 3], [0, 1, 2], [0, 1, 2, 3]):
            for place in PLACEMENTS:
                yield reduce_case(op, f"axes {axes}", axes, keep_dims, place=place)
        for name, axes in (
            ("a negative axis", [-2]),
            ("repeated axes", [1, 2, 1, -2]),
            ("axes in any order", [3, 1]),
            ("no axes", []),
        ):
            for place in PLACEMENTS:
                yield reduce_case(op, name, axes, keep_dims, place=place)
        yield reduce_case(op, "every opset", [1, 2], keep_dims, opsets=EVERY_OPSET)
        yield reduce_case(op, "a scalar axis", 2, keep_dims)
        yield reduce_case(op, "rank 5", [1, -1], keep_dims, shape=(2, 3, 5, 1, 7))
        yield reduce_case(op, "rank 1", [0], keep_dims, shape=(7,))
        yield reduce_case(op, "rank 0", [], keep_dims, shape=())
        yield reduce_case(op, "an axis of one element", [1], keep_dims, shape=(2, 1, 3))
    options, axes_operand = {"keep_dims": True}, tensor(2, dtype="int32", name="axes")
    arrays = {"axes": np.array([1, -1], np.int32)}
    for place in PLACEMENTS:
        # The axes are unknown when the layout is planned, so the file's layout is restored.
        yield place(
            op,
            "axes known at runtime",
            [tensor(*IMAGE), axes_operand],
            tensor(2, 1, 7, 1),
            options=options,
            input_arrays=arrays,
            max_transposes=4,
        )
    operands = [tensor(*IMAGE), axes_operand]
    yield in_isolation(
        op,
        "axes known at runtime and dropped",
        operands,
        tensor(None, None),
        options={"keep_dims": False},
        input_arrays=arrays,
    )
    axis_operand = tensor(dtype="int32", name="axis")
    yield in_isolation(
        op,
        "a scalar axis known at runtime",
        [operands[0], axis_operand],
        tensor(2, 5, 1, 3),
        options=options,
        input_arrays={"axis": np.array(2, np.int32)},
    )
    refusal = {} if op == "SUM" else {"refusal": "needs opset 18"}
    yield in_isolation(
        op,
        "axes known at runtime at opset 17",
        operands,
        tensor(2, 1, 7, 1),
        options=options,
        input_arrays=arrays,
        opsets=(17,),
        **refusal,
    )


def quantized_cases(op: str) -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        for place in PLACEMENTS:
            yield reduce_case(op, dtype, [1, 2], dtype=dtype, place=place, opsets=opsets)
            yield reduce_case(op, dtype, [1], False, dtype, place)
            yield reduce_case(op, f"{dtype} along channels", [3], dtype=dtype, place=place)
            yield reduce_case(op, f"{dtype} without axes", [], dtype=dtype, place=place, factor=1.0)
        yield reduce_case(
            op, f"{dtype}, all elements", [0, 1, 2, 3], False, dtype, factor=None if op != "SUM" else 40.0
        )


def integer_cases() -> Iterator[Case]:
    for op in ("SUM", *EXTREMES):
        for dtype in ("int32", "int64"):
            yield reduce_case(op, dtype, [1, 2], dtype=dtype, opsets=EVERY_OPSET)
            yield reduce_case(op, dtype, [3], False, dtype)
    limits = np.iinfo(np.int32)
    extreme_sums = {"x0": np.array([[limits.max, 1, 5], [limits.min, -1, 0]], np.int32)}
    yield reduce_case("SUM", "int32 that wraps around", [1], dtype="int32", shape=(2, 3), input_arrays=extreme_sums)
    yield mean_case("int32 whose sum needs 64 bits", [1], True, "int32", shape=(2, 3), input_arrays=extreme_sums)
    for dtype in ("int32", "int64"):
        arrays = [{"x0": random_array(n, 7, 3, dtype=dtype)} for n in (2, 5)]
        operands = [tensor(None, 7, 3, dtype=dtype), constant([0, 1])]
        yield in_isolation("MEAN", f"{dtype} of dynamic length", operands, tensor(3, dtype=dtype), input_arrays=arrays)
    beyond_float64 = {"x0": np.array([[2**62, 2**62, 5], [2**53, 1, 1]])}
    yield reduce_case("SUM", "int64 beyond float64", [1], dtype="int64", shape=(2, 3), input_arrays=beyond_float64)
    yield mean_case("int64 beyond float64", [1], True, "int64", shape=(2, 3), input_arrays=beyond_float64)
    beyond_32_bits = {"x0": random_array(5, 41, 17, dtype="int64", low=-(2**33), high=2**33)}
    for op in EXTREMES:
        for axes in ([1], [2], [0, 2]):
            for keep_dims in (True, False):
                name = f"int64 beyond 32 bits, axes {axes}"
                yield reduce_case(op, name, axes, keep_dims, "int64", shape=(5, 41, 17), input_arrays=beyond_32_bits)
    for dtype in ("int8", "uint8", "int16"):
        refusal = f"the {dtype} operand has no scale"
        yield reduce_case("SUM", f"{dtype} without scale", [1], dtype=dtype, scale=0, refusal=refusal)
        yield reduce_case("MEAN", f"{dtype} without scale", [1], dtype=dtype, scale=0, refusal=refusal)
    for dtype in ("int8", "uint8", "int16"):
        yield reduce_case("SUM", f"{dtype} without axes to a different scale", [], dtype=dtype, factor=1.7)
    yield reduce_case("SUM", "int8 to a different zero point", [1, 2], dtype="int8", zero_point=40)
    yield reduce_case("SUM", "int8 that saturates", [1, 2], dtype="int8", factor=0.5)


def extreme_cases() -> Iterator[Case]:
    for op in EXTREMES:
        for dtype in ("int8", "uint8"):
            for place in PLACEMENTS:
                yield reduce_case(
                    op,
                    f"{dtype} to a different scale, which XNNPACK ignores",
                    [1, 2],
                    dtype=dtype,
                    place=place,
                    factor=2.0,
                )
                yield reduce_case(
                    op,
                    f"{dtype} to a different zero point, which XNNPACK ignores",
                    [3],
                    False,
                    dtype,
                    place,
                    zero_point=17,
                )
        for dtype in ("int8", "uint8", "int16"):
            for axes in ([1], [3], [1, 2]):
                yield reduce_case(op, f"{dtype} without scale, axes {axes}", axes, dtype=dtype, scale=0)
        for axes in ([1], [3], [0, 1, 2, 3]):
            yield reduce_case(op, f"bool axes {axes}", axes, dtype="bool", shape=(2, 2, 2, 2))
        limits = {"x0": np.array([[-128, -128, -127], [127, 126, 127], [-1, 0, 1]], np.int8)}
        yield reduce_case(op, "int8 at the ends of its range", [1], dtype="int8", shape=(3, 3), input_arrays=limits)


def empty_axis_cases() -> Iterator[Case]:
    """Yield cases of reductions over empty axes."""
    yield reduce_case("SUM", "no elements", [1], shape=(2, 0, 3))
    yield reduce_case("SUM", "no results", [1], shape=(0, 5, 3))
    for keep_dims in (True, False):
        for op in EXTREMES:
            for dtype in ("float32", "int32", "int64", "bool"):
                yield reduce_case(op, f"{dtype} of no elements", [1], keep_dims, dtype, shape=(2, 0, 3))
            yield reduce_case(op, "no results", [1], keep_dims, shape=(0, 5, 3))
        yield reduce_case("SUM", "int32 of no elements", [1], keep_dims, "int32", shape=(2, 0, 3))
        for dtype in ("float32", "int32", "int64"):
            yield mean_case(f"{dtype} of no elements", [1], keep_dims, dtype, shape=(2, 0, 3))
            yield mean_case(f"{dtype} without results", [1], keep_dims, dtype, shape=(0, 5, 3))
        yield mean_case("empty batch", [1, 2], keep_dims, shape=(2, 0, 7, 3))
        yield mean_case(
            "int8 of no elements", [1], keep_dims, "int8", shape=(2, 0, 3), refusal="the kernel leaves the result unset"
        )
    arrays = [{"x0": random_array(n, 5, 3)} for n in (1, 3)]
    for op in ("SUM", *EXTREMES):
        x, y = tensor(None, 5, 3), tensor(None, 3)
        yield in_isolation(
            op, "dynamic batch", [x, constant([1])], y, options={"keep_dims": False}, input_arrays=arrays, runs=2
        )


def arg_max_cases() -> Iterator[Case]:
    """Yield cases of ARG_MAX, which returns the first of equal values."""
    for axis in (0, 1, 2, 3, -1, -2):
        for place in PLACEMENTS:
            yield arg_case("ARG_MAX", f"axis {axis}", axis, place=place)
    for dtype in ("int8", "uint8", "int32"):
        for axis in (1, 3):
            yield arg_case("ARG_MAX", f"{dtype} axis {axis}", axis, dtype)
        if dtype != "int32":
            yield arg_case("ARG_MAX", f"{dtype} axis -1", -1, dtype, between_convolutions)
    yield arg_case("ARG_MAX", "bool", 3, "bool")
    yield arg_case("ARG_MAX", "to int64", 3, output_dtype="int64", opsets=EVERY_OPSET)
    yield arg_case("ARG_MAX", "int8 to int64", 3, "int8", output_dtype="int64", opsets=EVERY_OPSET)
    ties = np.array([[2, 7, 7, 1], [0, 0, 0, 0], [-1, -1, -5, -1]], np.float32)
    yield arg_case("ARG_MAX", "first of equal values", 1, shape=(3, 4), input_arrays={"x0": ties})
    reason = (
        "ONNX does not define the result for NaN, and ONNX Runtime returns the first NaN; "
        "skipping NaN costs two more passes over the input"
    )
    nan = np.array([[np.nan, 1, 2], [1, np.nan, 0]], np.float32)
    yield arg_case(
        "ARG_MAX",
        "NaN, which the kernel skips",
        1,
        shape=(2, 3),
        input_arrays={"x0": nan},
        known_failure=reason,
    )
    yield in_isolation(
        "ARG_MAX",
        "an int64 axis",
        [tensor(*IMAGE), constant(np.array([1]))],
        tensor(2, 7, 3, dtype="int32"),
        options={"output_type": "INT32"},
    )
    yield in_isolation(
        "ARG_MAX",
        "an axis of rank 1",
        [tensor(*IMAGE), constant([1])],
        tensor(2, 7, 3, dtype="int32"),
        options={"output_type": "INT32"},
    )


def arg_case(
    op: str,
    name: str,
    axis: int,
    dtype: str = "float32",
    place: Placement = in_isolation,
    *,
    output_dtype: str = "int32",
    shape: Sequence[int] = IMAGE,
    **case_fields: Any,
) -> Case:
    x = tensor(*shape, dtype=dtype)
    y = tensor(*shape_after_reduction(shape, [axis], False), dtype=output_dtype, scale=0)
    return place(op, name, [x, constant(axis)], y, options={"output_type": output_dtype.upper()}, **case_fields)
