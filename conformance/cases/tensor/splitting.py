"""SPLIT, SPLIT_V and UNPACK: axes, runtime sizes, unused results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.copies import Copy, copy_cases
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_bfloat16,
    in_isolation,
    int32_arrays,
    net,
    opsets,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")


def cases() -> Iterator[Case]:
    yield from split_cases()
    yield from split_size_cases()
    yield from runtime_size_cases()
    yield from unpack_cases()
    yield from quantized_copy_cases()


# --- SPLIT ------------------------------------------------------------------------------------


def split_case(name: str, x: Spec, axis: int, parts: int, place: Placement = in_isolation, **case_fields: Any) -> Case:
    shape = list(x.shape)
    shape[axis] = (shape[axis] or 0) // parts
    outputs = [x.with_shape(*shape) for _ in range(parts)]
    axis_operand = case_fields.pop("axis_operand", constant(axis))
    return place(
        "SPLIT", name, [axis_operand, x], *outputs, options={"num_splits": parts}, **{"dtype": x.dtype, **case_fields}
    )


def split_cases() -> Iterator[Case]:
    image = (2, 6, 10, 9)
    for axis, parts in ((0, 2), (1, 3), (2, 5), (3, 3), (-1, 3), (-2, 2), (-3, 2), (-4, 2)):
        yield split_case(f"float32 axis {axis}", tensor(*image), axis, parts, between_convolutions)
    for dtype in (*FLOAT_OR_QUANTIZED, "float16", "int32", "int64"):
        yield split_case(dtype, tensor(*image, dtype=dtype), 3, 3, opsets=opsets(dtype))
    for dtype in ("int8", "uint8", "int16"):
        yield split_case(f"{dtype} axis -1", tensor(*image, dtype=dtype), -1, 3, between_convolutions)
    yield split_case("one result", tensor(*image), 2, 1)
    yield split_case("axis operand of rank 1", tensor(*image), 1, 2, axis_operand=constant([1]))
    yield split_case("rank 1", tensor(6), 0, 3)
    yield in_isolation(
        "SPLIT",
        "runtime axis",
        [tensor(dtype="int32"), tensor(*image)],
        tensor(2, 6, 10, 3),
        tensor(2, 6, 10, 3),
        tensor(2, 6, 10, 3),
        options={"num_splits": 3},
        refusal="must be a constant",
    )


# --- SPLIT_V ----------------------------------------------------------------------------------


def split_v_case(
    name: str,
    x: Spec,
    sizes: Sequence[int],
    axis: int,
    place: Placement = in_isolation,
    size_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    shape = [size or 0 for size in x.shape]
    resolved_sizes = [shape[axis] - sum(sizes) - 1 if size == -1 else size for size in sizes]
    results = []
    for size in resolved_sizes:
        shape[axis] = size
        results.append(replace(x, name="").with_shape(*shape))
    operands = [x, constant(np.asarray(sizes, size_dtype)), constant(axis)]
    return place(
        "SPLIT_V", name, operands, *results, options={"num_splits": len(sizes)}, **{"dtype": x.dtype, **case_fields}
    )


def split_size_cases() -> Iterator[Case]:
    """Yield cases of SPLIT_V. A size of -1 stands for the remaining elements."""
    for dtype in FLOAT_OR_QUANTIZED:
        for place in PLACEMENTS:
            yield split_v_case(dtype, tensor(*IMAGE, dtype=dtype), (2, 4, 1), 2, place, opsets=opsets(dtype))
    for axis in AXES:
        yield split_v_case(f"axis {axis}", tensor(*IMAGE), (1, IMAGE[axis] - 1), axis, between_convolutions)
    for k in range(3):
        sizes = [-1 if i == k else size for i, size in enumerate((1, 4, 2))]
        yield split_v_case(f"inferred size {k}", tensor(*IMAGE), sizes, -2, between_convolutions)
    for dtype in ("int32", "int64"):
        yield split_v_case(dtype, tensor(5, 3, dtype=dtype), (1, 2), 1)
    yield split_v_case("int64 sizes", tensor(*IMAGE), (2, -1), 1, between_convolutions, size_dtype="int64")
    yield split_v_case("one result", tensor(*IMAGE), (5,), 1)
    yield split_v_case("empty result", tensor(5, 3), (3, 0, 2), 0)
    yield split_v_case("empty inferred result", tensor(5, 3), (3, -1, 2), 0)
    yield split_v_case("rank 1", tensor(7), (3, 4), 0)
    yield split_v_case("rank 5", tensor(2, 3, 1, 5, 7), (1, 4), 3)


def runtime_size_cases() -> Iterator[Case]:
    sizes = tensor(3, dtype="int32", name="sizes")
    outputs = [tensor(2, None, 3) for _ in range(3)]
    options = {"num_splits": 3}
    for split_sizes in ((1, 4, 2), (1, -1, 2)):
        operands = [tensor(2, 7, 3), sizes, constant(1)]
        yield in_isolation(
            "SPLIT_V",
            f"runtime sizes {split_sizes}",
            operands,
            *outputs,
            options=options,
            input_arrays=int32_arrays(sizes=split_sizes),
        )
    operands = [tensor(2, None, 3), constant([1, -1, 2]), constant(-2)]
    runs = [{"x0": random_array(2, n, 3)} for n in (7, 9)]
    yield in_isolation("SPLIT_V", "inferred dynamic dimension", operands, *outputs, options=options, input_arrays=runs)
    third_of_axis = tensor(2, None, 3)
    operands = [constant(1), tensor(2, None, 5)]
    runs = [{"x0": random_array(2, n, 5)} for n in (3, 9)]
    yield in_isolation(
        "SPLIT",
        "dynamic dimension",
        operands,
        *[third_of_axis.with_shape(2, None, 5)] * 3,
        options={"num_splits": 3},
        input_arrays=runs,
        dynamic_sizes=(2, 5),
    )
    axis = tensor(dtype="int32", name="axis")
    operands = [tensor(2, 7, 3), constant([1, 4, 2]), axis]
    refusal = "must be a constant"
    yield in_isolation(
        "SPLIT_V",
        "runtime axis",
        operands,
        *outputs,
        options=options,
        input_arrays=int32_arrays(axis=1),
        refusal=refusal,
    )


# --- UNPACK -----------------------------------------------------------------------------------


def slice_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    axis_index = axis % len(shape)
    return (*shape[:axis_index], *shape[axis_index + 1 :])


def unpack(model: Net, x: TensorRef, result_specs: Sequence[Spec], axis: int) -> list[TensorRef]:
    outputs = [model.result(spec) for spec in result_specs]
    model.graph.operator("UNPACK", [x], outputs, {"axis": axis, "num": len(result_specs)})
    return outputs


def unpack_case(name: str, x: Spec, axis: int, **case_fields: Any) -> Case:
    shape = [size or 0 for size in x.shape]
    count = shape[axis]
    results = [replace(x, name="").with_shape(*slice_shape(shape, axis))] * count
    return in_isolation("UNPACK", name, [x], *results, options={"axis": axis, "num": count}, **case_fields)


def unpack_cases() -> Iterator[Case]:
    for axis in AXES:
        yield unpack_case(f"axis {axis}", tensor(*IMAGE), axis)
        yield net(
            "UNPACK",
            f"axis {axis} before a PACK between convolutions",
            unpack_and_pack_reversed(axis, axis, "float32"),
            max_transposes=2,
        )
    for dtype in FLOAT_OR_QUANTIZED:
        yield unpack_case(dtype, tensor(*IMAGE, dtype=dtype), 2, opsets=opsets(dtype))
        yield net(
            "UNPACK",
            f"{dtype} between convolutions",
            unpack_and_pack_reversed(1, 1, dtype),
            dtype=dtype,
            max_transposes=2,
        )
    for dtype in ("int32", "bool", "float16"):
        yield unpack_case(dtype, tensor(5, 3, dtype=dtype), 1)
    yield in_bfloat16("UNPACK", [tensor(5, 3)], *[tensor(5)] * 3, options={"axis": 1, "num": 3})
    yield net("UNPACK", "height and width swapped between convolutions", unpack_and_pack_reversed(1, 2, "float32"))
    for axis in (1, 3):
        yield net("UNPACK", f"equal dimensions, along axis {axis}", unpack_first_slice(axis))
    yield unpack_case("one result", tensor(5, 1, 3), 1)
    yield unpack_case("scalars", tensor(4), 0)
    x = tensor(*IMAGE, dtype="int8")
    outputs, options = [x.rescale(2).with_shape(2, 5, 7)] * 3, {"axis": 3, "num": 3}
    yield in_isolation(
        "UNPACK", "int8 to a different scale", [x], *outputs, options=options, kernel_refusal="params.scale"
    )

    def use_one_result(model: Net) -> None:
        x = model.input_through_conv(tensor(*IMAGE))
        model.output(unpack(model, x, [tensor(2, 7, 3)] * 5, 1)[3])

    yield net("UNPACK", "unused results", use_one_result)


def unpack_first_slice(axis: int) -> Callable[[Net], None]:
    """Return a builder of the first slice of a convolution's result.

    Slices along other axes have the same shape.
    """

    def build(model: Net) -> None:
        x = tensor(3, 3, 3, 3)
        model.output(unpack(model, model.input_through_conv(x), [x.with_shape(3, 3, 3)] * 3, axis)[0])

    return build


def unpack_and_pack_reversed(axis: int, pack_axis: int, dtype: str) -> Callable[[Net], None]:
    """Return a builder: unpack an image, and pack the slices in reverse order.

    The image is unpacked along ``axis``; the slices are packed along ``pack_axis``.
    """

    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        count = IMAGE[axis]
        shape_of_slice = slice_shape(IMAGE, axis)
        pack_index = pack_axis % 4
        slices = unpack(model, model.input_through_conv(x), [x.with_shape(*shape_of_slice)] * count, axis)
        packed = model.call(
            "PACK",
            slices[::-1],
            x.with_shape(*shape_of_slice[:pack_index], count, *shape_of_slice[pack_index:]),
            axis=pack_axis,
            values_count=count,
        )
        model.output(model.output_through_conv(packed))

    return build


def quantized_copy_cases() -> Iterator[Case]:
    yield from copy_cases("SPLIT", Copy([(2, 5, 7, 1)] * 3, operands_before=[constant(3)], options={"num_splits": 3}))
    shapes = [(2, 5, 2, 3), (2, 5, 5, 3)]
    yield from copy_cases("SPLIT_V", Copy(shapes, [constant([2, 5]), constant(2)], options={"num_splits": 2}))
