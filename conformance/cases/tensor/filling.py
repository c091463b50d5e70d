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
    fill_values = {
        **dict.fromkeys(("float32", "float16", "bfloat16"), -2.5),
        **dict.fromkeys(("int8", "int16", "int32", "int64"), -7),
        **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), 7),
    }
    for dtype, fill_value in fill_values.items():
        x, y = tensor(dtype=dtype, scale=0), tensor(2, 3, dtype=dtype, scale=0)
        tested_opsets = (None, 13, 26) if dtype not in ("uint16", "bfloat16") else (None,)
        if dtype != "bfloat16":
            yield fill_case(dtype, [2, 3], x, y, input_arrays={"x0": np.array(fill_value, dtype)}, opsets=tested_opsets)
            yield fill_case(f"{dtype}, constant", [2, 3], constant(np.array(fill_value, dtype)), y)
    true_array = {"x0": np.array(True)}
    yield fill_case("bool", [2, 3], tensor(dtype="bool"), tensor(2, 3, dtype="bool"), input_arrays=true_array)

    def fill_with_string(model: Net) -> None:
        string = model.call("GATHER", [tensor(2, dtype="string"), constant(1)], tensor(dtype="string"), axis=0)
        model.output(model.call("FILL", [constant([2, 3]), string], tensor(2, 3, dtype="string")))

    input_arrays = {"x0": np.array([b"a", b"text"], object)}
    yield net("FILL", "string", fill_with_string, dtype="string", input_arrays=input_arrays)
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
        input_arrays = {"sizes": np.array([2, 1, 3], dtype)}
        yield in_isolation(
            "FILL", f"runtime sizes, {dtype}", [sizes, tensor()], tensor(None, None, None), input_arrays=input_arrays
        )
    yield between_convolutions("FILL", "float32", [constant(list(IMAGE)), tensor()], tensor(*IMAGE), max_transposes=1)
    yield between_convolutions("FILL", "constant", [constant(list(IMAGE)), constant(0.5)], tensor(*IMAGE))

    def fill_like_image(model: Net) -> None:
        image = model.input_through_conv(tensor(*IMAGE))
        sizes = model.call("SHAPE", [image], tensor(4, dtype="int32"), out_type="INT32")
        ones = model.call("FILL", [sizes, constant(1.5)], tensor(*IMAGE))
        model.output(model.output_through_conv(model.call("ADD", [image, ones], tensor(*IMAGE))))

    yield net("FILL", "shape of an image between convolutions", fill_like_image, max_transposes=2)


def fill_case(name: str, shape: Sequence[int], x: Spec, y: Spec, **case_fields: Any) -> Case:
    sizes = constant(np.asarray(shape, np.int32))
    return in_isolation("FILL", name, [sizes, x], y, **{"dtype": x.dtype, **case_fields})


# --- ZEROS_LIKE -------------------------------------------------------------------------------


def zeros_like_cases() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64"):
        yield unary("ZEROS_LIKE", dtype, tensor(*IMAGE, dtype=dtype), opsets=EVERY_OPSET)
        yield unary("ZEROS_LIKE", f"{dtype} scalar", tensor(dtype=dtype))
        yield unary("ZEROS_LIKE", f"{dtype}, empty", tensor(0, 3, dtype=dtype))
    special_values = {"x0": np.array([np.nan, np.inf, -np.inf, -0.0, 1], np.float32)}
    yield unary("ZEROS_LIKE", "NaN, infinities and negative zero", tensor(5), input_arrays=special_values)
    yield unary("ZEROS_LIKE", "float32", tensor(*IMAGE), place=between_convolutions)
    batches = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield unary("ZEROS_LIKE", "dynamic batch", tensor(None, 3), input_arrays=batches, runs=2)
    yield unary("ZEROS_LIKE", "int8", tensor(3, dtype="int8"), kernel_refusal="ZerosLike only currently supports")


# --- RANGE ------------------------------------------------------------------------------------

SEQUENCES = ((0, 7, 1), (3, 20, 5), (3, 18, 5), (-4, -11, -2), (5, 5, 3), (5, 5, -3), (7, -1, -8))


def range_cases() -> Iterator[Case]:
    """Yield cases of RANGE of constants and runtime values.

    A float is the rounded sum of the previous element and the step.
    """
    for dtype in ("float32", "int32", "int64"):
        for numbers in SEQUENCES:
            yield range_case(f"{dtype} {list(numbers)}", numbers, dtype)
            yield range_case(f"{dtype} {list(numbers)}, constant operands", numbers, dtype, constant_operands=True)
        yield range_case(f"{dtype} at every opset", (3, 20, 5), dtype, opsets=EVERY_OPSET)
    for fractions in ((0.0, 1.0, 0.1), (-0.3, 100.0, 0.007), (1.0, -2.0, -0.3), (0.0, 1e-3, 1.0), (0.0, 0.3, 0.1)):
        yield range_case(f"float32 {list(fractions)}", fractions, "float32")
        yield range_case(f"float32 {list(fractions)}, constant operands", fractions, "float32", constant_operands=True)
    yield range_case("int32 with the wrong sign of delta", (0, 7, -1), "int32", kernel_refusal="limit")

    def range_of_batch(model: Net) -> None:
        x = model.input(tensor(None, 3))
        sizes = model.call("SHAPE", [x], tensor(2, dtype="int32"), out_type="INT32")
        rows = model.call("GATHER", [sizes, constant(0)], tensor(dtype="int32"), axis=0)
        model.output(model.call("RANGE", [constant(0), rows, constant(1)], tensor(None, dtype="int32")))

    batches = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield net("RANGE", "length of a dynamic batch", range_of_batch, input_arrays=batches, runs=2, dtype="int32")


def range_case(
    name: str, start_limit_delta: Sequence[float], dtype: str, constant_operands: bool = False, **case_fields: Any
) -> Case:
    values = dict(
        zip(("start", "limit", "delta"), (np.array(bound, dtype) for bound in start_limit_delta), strict=True)
    )
    operands = [
        constant(value) if constant_operands else tensor(dtype=dtype, name=name_of_operand)
        for name_of_operand, value in values.items()
    ]
    if start_limit_delta[0] == start_limit_delta[1]:  # LiteRT's Python interface cannot return empty results
        case_fields["reference"] = lambda arrays: [np.zeros(0, dtype)]
    return in_isolation(
        "RANGE",
        name,
        operands,
        tensor(None, dtype=dtype),
        **{"dtype": dtype, "input_arrays": None if constant_operands else values, **case_fields},
    )


# --- ONE_HOT ----------------------------------------------------------------------------------


def one_hot_cases() -> Iterator[Case]:
    """Yield cases of ONE_HOT; negative and too large indices give the off value."""
    for axis in (-1, 0, 1, 2):
        yield one_hot_case(f"axis {axis}", (2, 5), axis)
    yield one_hot_case("int16", (2, 5), 1, dtype="int16", kernel_refusal="failed to invoke")
    for dtype in ("float32", "int8", "uint8", "int32", "int64", "bool"):
        for constant_values in (True, False):
            name = f"{dtype}{', constant values' if constant_values else ''}"
            yield one_hot_case(
                name,
                (2, 5),
                1,
                dtype=dtype,
                constant_values=constant_values,
                opsets=EVERY_OPSET if dtype != "bool" else (None, 13),
            )
    yield one_hot_case("int64 indices", (2, 5), -1, index_dtype="int64")
    indices = np.array([2**32 + 1, -(2**32), 2, -1, 2**31 + 3], np.int64)
    yield one_hot_case(
        "int64 indices truncated to 32 bits", (5,), -1, index_dtype="int64", input_arrays={"x0": indices}
    )
    for shape in ((), (7,), (0, 3), (2, 3, 5, 7)):
        yield one_hot_case(f"indices of shape {list(shape)}", shape, -1)
        yield one_hot_case(f"indices of shape {list(shape)}, first axis", shape, 0)
    yield one_hot_case("no classes", (2, 5), -1, depth=0)
    yield one_hot_case("one class", (2, 5), 0, depth=1)
    yield one_hot_case("runtime depth", (2, 5), 1, runtime_depth=True)
    yield one_hot_case("runtime depth, last axis", (2, 5), -1, runtime_depth=True)
    yield one_hot_case("int8 with scale", (2, 5), 1, dtype="int8", scale=0.3)
    yield one_hot_case("uint8 with scale", (2, 5), 1, dtype="uint8", scale=0.3, constant_values=False)
    for axis in (-1, 1):
        yield one_hot_case(f"axis {axis}", (2, 5, 7), axis, place=between_convolutions, max_transposes=None)


def one_hot_case(
    name: str,
    shape: Sequence[int],
    axis: int,
    *,
    dtype: str = "float32",
    index_dtype: str = "int32",
    depth: int = 3,
    constant_values: bool = True,
    runtime_depth: bool = False,
    scale: float | None = 0,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    axis_index = axis % (len(shape) + 1)
    indices = tensor(*shape, dtype=index_dtype)
    on_off = [np.array(value, dtype) for value in ((True, False) if dtype == "bool" else (7, 2))]
    zero_point = 3 if scale else None
    if constant_values:
        on, off = (constant(value, scale=scale or None, zero_point=zero_point or 0) for value in on_off)
    else:
        on, off = (
            tensor(dtype=dtype, scale=scale, zero_point=zero_point, name=operand_name) for operand_name in ("on", "off")
        )
    runtime_arrays = {
        "x0": random_array(*shape, dtype=index_dtype, low=-2, high=4),
        **case_fields.pop("input_arrays", {}),
    }
    if not constant_values:
        runtime_arrays |= {"on": on_off[0], "off": on_off[1]}
    if runtime_depth:
        runtime_arrays |= int32_arrays(depth=depth)
    depth_operand = tensor(dtype="int32", name="depth") if runtime_depth else constant(depth)
    result = [*shape[:axis_index], None if runtime_depth else depth, *shape[axis_index:]]
    y = tensor(*result, dtype=dtype, scale=scale, zero_point=zero_point)
    return place(
        "ONE_HOT",
        name,
        [indices, depth_operand, on, off],
        y,
        options={"axis": axis},
        **{"dtype": dtype, "input_arrays": runtime_arrays, **case_fields},
    )
