"""FILL, ZEROS_LIKE, RANGE and ONE_HOT, with constant and runtime operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    net,
    random_array,
    tensor,
    unary,
)

IMAGE = (2, 5, 7, 3)
SIZES = ("int32", "int64")


def cases() -> Iterator[Case]:
    yield from fill_cases()
    yield from zeros_like_cases()
    yield from range_cases()
    yield from one_hot_cases()


# --- FILL -------------------------------------------------------------------------------------


def fill_cases() -> Iterator[Case]:
    numbers = {
        **dict.fromkeys(("float32", "float16", "bfloat16"), -2.5),
        **dict.fromkeys(("int8", "int16", "int32", "int64"), -7),
        **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), 7),
    }
    for dtype, number in numbers.items():
        x, y = tensor(dtype=dtype, scale=0), tensor(2, 3, dtype=dtype, scale=0)
        everything = (None, 13, 26) if dtype not in ("uint16", "bfloat16") else (None,)
        if dtype != "bfloat16":
            yield fill_case(dtype, [2, 3], x, y, input_arrays={"x0": np.array(number, dtype)}, opsets=everything)
            yield fill_case(f"{dtype}, constant", [2, 3], constant(np.array(number, dtype)), y)
    flag = {"x0": np.array(True)}
    yield fill_case("bool", [2, 3], tensor(dtype="bool"), tensor(2, 3, dtype="bool"), input_arrays=flag)

    def texts(model: Net) -> None:
        text = model.call("GATHER", [tensor(2, dtype="string"), constant(1)], tensor(dtype="string"), axis=0)
        model.output(model.call("FILL", [constant([2, 3]), text], tensor(2, 3, dtype="string")))

    given = {"x0": np.array([b"a", b"text"], object)}
    yield net("FILL", "string", texts, dtype="string", input_arrays=given)
    for shape in ((), (7,), (2, 0, 3), (1, 1, 2, 3, 5)):
        yield fill_case(f"to {list(shape)}", shape, tensor(), tensor(*shape))
    for dtype in ("int8", "uint8", "int16"):
        x = tensor(dtype=dtype)
        yield fill_case(f"{dtype} with scale", [2, 3], x, x.with_shape(2, 3), input_arrays={"x0": np.array(100, dtype)})
        yield fill_case(f"{dtype} with scale, constant", IMAGE, constant(np.array(9, dtype), scale=0.3), tensor(
            *IMAGE, dtype=dtype, scale=0.3, zero_point=0
        ))  # fmt: skip
    for dtype in SIZES:
        sizes = tensor(3, dtype=dtype, name="sizes")
        given = {"sizes": np.array([2, 1, 3], dtype)}
        yield in_isolation(
            "FILL", f"sizes known at runtime, {dtype}", [sizes, tensor()], tensor(None, None, None), input_arrays=given
        )
    yield between_convolutions("FILL", "float32", [constant(list(IMAGE)), tensor()], tensor(*IMAGE), max_transposes=1)
    yield between_convolutions("FILL", "constant", [constant(list(IMAGE)), constant(0.5)], tensor(*IMAGE))

    def like(model: Net) -> None:
        image = model.input_through_conv(tensor(*IMAGE))
        sizes = model.call("SHAPE", [image], tensor(4, dtype="int32"), out_type="INT32")
        ones = model.call("FILL", [sizes, constant(1.5)], tensor(*IMAGE))
        model.output(model.output_through_conv(model.call("ADD", [image, ones], tensor(*IMAGE))))

    yield net("FILL", "shape of an image between convolutions", like, max_transposes=2)


def fill_case(name: str, shape: Sequence[int], x: Spec, y: Spec, **case: Any) -> Case:
    sizes = constant(np.asarray(shape, np.int32))
    return in_isolation("FILL", name, [sizes, x], y, **{"dtype": x.dtype, **case})


# --- ZEROS_LIKE -------------------------------------------------------------------------------


def zeros_like_cases() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64"):
        yield unary("ZEROS_LIKE", dtype, tensor(*IMAGE, dtype=dtype), opsets=EVERY_OPSET)
        yield unary("ZEROS_LIKE", f"{dtype} scalar", tensor(dtype=dtype))
        yield unary("ZEROS_LIKE", f"{dtype}, empty", tensor(0, 3, dtype=dtype))
    edges = {"x0": np.array([np.nan, np.inf, -np.inf, -0.0, 1], np.float32)}
    yield unary("ZEROS_LIKE", "empty", tensor(5), input_arrays=edges)
    yield unary("ZEROS_LIKE", "float32", tensor(*IMAGE), place=between_convolutions)
    given = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield unary("ZEROS_LIKE", "dynamic batch", tensor(None, 3), input_arrays=given, runs=2)
    yield unary("ZEROS_LIKE", "int8", tensor(3, dtype="int8"), kernel_refusal="ZerosLike only currently supports")


# --- RANGE ------------------------------------------------------------------------------------

SEQUENCES = ((0, 7, 1), (3, 20, 5), (3, 18, 5), (-4, -11, -2), (5, 5, 3), (5, 5, -3), (7, -1, -8))


def range_cases() -> Iterator[Case]:
    """Yield RANGE of constants and runtime values; a float is the rounded sum of the previous element and the step."""
    for dtype in ("float32", "int32", "int64"):
        for numbers in SEQUENCES:
            yield range_case(f"{dtype} {list(numbers)}", numbers, dtype)
            yield range_case(f"{dtype} {list(numbers)}, known", numbers, dtype, fixed=True)
        yield range_case(f"{dtype} every opset", (3, 20, 5), dtype, opsets=EVERY_OPSET)
    for fractions in ((0.0, 1.0, 0.1), (-0.3, 100.0, 0.007), (1.0, -2.0, -0.3), (0.0, 1e-3, 1.0), (0.0, 0.3, 0.1)):
        yield range_case(f"float32 {list(fractions)}", fractions, "float32")
        yield range_case(f"float32 {list(fractions)}, known", fractions, "float32", fixed=True)
    yield range_case("int32 with the wrong sign of delta", (0, 7, -1), "int32", kernel_refusal="limit")

    def positions(model: Net) -> None:
        x = model.input(tensor(None, 3))
        sizes = model.call("SHAPE", [x], tensor(2, dtype="int32"), out_type="INT32")
        rows = model.call("GATHER", [sizes, constant(0)], tensor(dtype="int32"), axis=0)
        model.output(model.call("RANGE", [constant(0), rows, constant(1)], tensor(None, dtype="int32")))

    given = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield net("RANGE", "length of a dynamic batch", positions, input_arrays=given, runs=2, dtype="int32")


def range_case(name: str, numbers: Sequence[float], dtype: str, fixed: bool = False, **case: Any) -> Case:
    values = dict(zip(("start", "limit", "delta"), (np.array(number, dtype) for number in numbers), strict=True))
    operands = [constant(value) if fixed else tensor(dtype=dtype, name=key) for key, value in values.items()]
    if numbers[0] == numbers[1]:  # LiteRT's Python interface cannot return empty results
        case["reference"] = lambda arrays: [np.zeros(0, dtype)]
    return in_isolation(
        "RANGE",
        name,
        operands,
        tensor(None, dtype=dtype),
        **{"dtype": dtype, "input_arrays": None if fixed else values, **case},
    )


# --- ONE_HOT ----------------------------------------------------------------------------------


def one_hot_cases() -> Iterator[Case]:
    """Yield indices that are no class, including negative ones, which give the off value."""
    for axis in (-1, 0, 1, 2):
        yield one_hot_case(f"axis {axis}", (2, 5), axis)
    yield one_hot_case("int16", (2, 5), 1, dtype="int16", kernel_refusal="failed to invoke")
    for dtype in ("float32", "int8", "uint8", "int32", "int64", "bool"):
        for fixed in (True, False):
            text = f"{dtype}{', known values' if fixed else ''}"
            yield one_hot_case(
                text, (2, 5), 1, dtype=dtype, fixed=fixed, opsets=EVERY_OPSET if dtype != "bool" else (None, 13)
            )
    yield one_hot_case("int64 indices", (2, 5), -1, index="int64")
    far = np.array([2**32 + 1, -(2**32), 2, -1, 2**31 + 3], np.int64)
    yield one_hot_case("int64 indices cut to 32 bits", (5,), -1, index="int64", input_arrays={"x0": far})
    for shape in ((), (7,), (0, 3), (2, 3, 5, 7)):
        yield one_hot_case(f"indices of shape {list(shape)}", shape, -1)
        yield one_hot_case(f"indices of shape {list(shape)}, first axis", shape, 0)
    yield one_hot_case("no class", (2, 5), -1, depth=0)
    yield one_hot_case("one class", (2, 5), 0, depth=1)
    yield one_hot_case("depth known at runtime", (2, 5), 1, at_run_time=True)
    yield one_hot_case("depth known at runtime, last axis", (2, 5), -1, at_run_time=True)
    yield one_hot_case("int8 with scale", (2, 5), 1, dtype="int8", scale=0.3)
    yield one_hot_case("uint8 with scale", (2, 5), 1, dtype="uint8", scale=0.3, fixed=False)
    for axis in (-1, 1):
        yield one_hot_case(f"axis {axis}", (2, 5, 7), axis, place=between_convolutions, max_transposes=None)


def one_hot_case(
    name: str,
    shape: Sequence[int],
    axis: int,
    *,
    dtype: str = "float32",
    index: str = "int32",
    depth: int = 3,
    fixed: bool = True,
    at_run_time: bool = False,
    scale: float | None = 0,
    place: Placement = in_isolation,
    **case: Any,
) -> Case:
    at = axis % (len(shape) + 1)
    indices = tensor(*shape, dtype=index)
    values = [np.array(value, dtype) for value in ((True, False) if dtype == "bool" else (7, 2))]
    point = 3 if scale else None
    if fixed:
        on, off = (constant(value, scale=scale or None, zero_point=point or 0) for value in values)
    else:
        on, off = (tensor(dtype=dtype, scale=scale, zero_point=point, name=text) for text in ("on", "off"))
    given = {"x0": random_array(*shape, dtype=index, low=-2, high=4), **case.pop("input_arrays", {})}
    if not fixed:
        given |= {"on": values[0], "off": values[1]}
    if at_run_time:
        given |= int32_arrays(depth=depth)
    size = tensor(dtype="int32", name="depth") if at_run_time else constant(depth)
    result = [*shape[:at], None if at_run_time else depth, *shape[at:]]
    y = tensor(*result, dtype=dtype, scale=scale, zero_point=point)
    return place(
        "ONE_HOT",
        name,
        [indices, size, on, off],
        y,
        options={"axis": axis},
        **{"dtype": dtype, "input_arrays": given, **case},
    )
