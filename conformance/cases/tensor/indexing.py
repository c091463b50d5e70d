"""GATHER along every axis, GATHER_ND and WHERE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    constant,
    in_isolation,
    net,
    opsets,
    random_array,
    tensor,
)
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")
INT4_TOLERANCE: dict[str, Any] = {
    "tolerance": Tolerance(of_range=1e-6),
    "tolerance_reason": "the result is dequantized, because neither runtime can return int4",
}


def cases() -> Iterator[Case]:
    yield from axis_cases()
    yield from dtype_cases()
    yield from batch_cases()
    yield from scalar_index_cases()
    yield from corner_cases()
    yield from gather_nd_cases()
    yield from where_cases()


def gather_case(
    name: str,
    x: Spec,
    index_shape: Sequence[int],
    axis: int,
    batch_dims: int = 0,
    place: Placement = in_isolation,
    index_dtype: str = "int32",
    constant_indices: bool = True,
    **case_fields: Any,
) -> Case:
    """Return a GATHER of random indices, which are a constant or a graph input."""
    size, axis_index = x.shape[axis] or 1, axis % len(x.shape)
    first_unbatched_axis = batch_dims % (len(index_shape) + 1) if batch_dims >= 0 else batch_dims + len(index_shape)
    index_values = random_array(*index_shape, dtype="int32", seed=name, low=0, high=size - 1).astype(index_dtype)
    indices = (
        constant(index_values) if constant_indices else tensor(*index_shape, dtype=index_dtype, scale=0, name="indices")
    )
    y = replace(x, value=None, name="").with_shape(
        *x.shape[:axis_index], *index_shape[first_unbatched_axis:], *x.shape[axis_index + 1 :]
    )
    inputs = {} if constant_indices else {"input_arrays": {"indices": index_values}}
    options = {"axis": axis, "batch_dims": batch_dims}
    return place("GATHER", name, [x, indices], y, options=options, **{"dtype": x.dtype, **inputs, **case_fields})


def axis_cases() -> Iterator[Case]:
    for axis in AXES:
        for constant_indices in (True, False):
            suffix = "" if constant_indices else ", known at runtime"
            yield gather_case(
                f"four along axis {axis}{suffix}",
                tensor(*IMAGE),
                (4,),
                axis,
                place=between_convolutions,
                constant_indices=constant_indices,
            )
        for index_shape in ((), (2, 3), (2, 1, 3)):
            yield gather_case(f"{index_shape} along axis {axis}", tensor(*IMAGE), index_shape, axis)
    for index_shape in ((), (2, 3)):
        yield gather_case(
            f"{index_shape} along the channels between convolutions",
            tensor(*IMAGE),
            index_shape,
            3,
            place=between_convolutions,
        )
        yield gather_case(f"{index_shape}, known at runtime", tensor(*IMAGE), index_shape, 1, constant_indices=False)
    yield gather_case("all elements", tensor(*IMAGE), (3,), 3, place=between_convolutions)
    for axis in (1, 3):
        yield gather_case(
            f"equal dimensions, along axis {axis}", tensor(3, 3, 3, 3), (3,), axis, place=between_convolutions
        )
    yield gather_case(
        "many pixels, channels first for speed", tensor(1, 32, 32, 16), (16,), 3, place=between_convolutions
    )


def dtype_cases() -> Iterator[Case]:
    for dtype in FLOAT_OR_QUANTIZED:
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield gather_case(dtype, x, (4,), 2, place=place, opsets=opsets(dtype))
        yield gather_case(
            f"{dtype} from a table",
            replace(x, value=random_array(*IMAGE, dtype=dtype)),
            (2, 4),
            0,
            constant_indices=False,
        )
    for dtype in ("int32", "int64", "bool", "float16"):
        yield gather_case(dtype, tensor(5, 3, dtype=dtype), (4,), 0)
    for index_dtype in ("int16", "int64"):
        for constant_indices in (True, False):
            index_source = "constant" if constant_indices else "running"
            yield gather_case(
                f"{index_dtype} {index_source} indices",
                tensor(*IMAGE),
                (4,),
                1,
                place=between_convolutions,
                index_dtype=index_dtype,
                constant_indices=constant_indices,
            )
            yield gather_case(
                f"{index_dtype} {index_source} indices of batches",
                tensor(*IMAGE),
                (2, 4),
                1,
                1,
                index_dtype=index_dtype,
                constant_indices=constant_indices,
            )
    index_arrays = {"indices": np.array([1, 6, 0, 6], np.int32)}
    yield net(
        "GATHER",
        "int4 from a table",
        gather_from_int4_table,
        dtype="int4",
        opsets=(None, 26),
        input_arrays=index_arrays,
        **INT4_TOLERANCE,
    )
    strings = np.array([b"", b"a", b"bc", b"d", b"efg"], object)
    operands, y = [tensor(5, dtype="string"), constant([3, 1])], tensor(2, dtype="string")
    yield in_isolation("GATHER", "string", operands, y, options={"axis": 0}, input_arrays={"x0": strings})
    x = tensor(*IMAGE, dtype="int8")
    y = x.rescale(2, 17).with_shape(2, 2, 7, 3)
    for place in PLACEMENTS:
        yield place(
            "GATHER",
            "int8 to different quantization parameters, which the kernel ignores",
            [x, constant([4, 0])],
            y,
            options={"axis": 1},
        )


def gather_from_int4_table(model: Net) -> None:
    table = constant(random_array(7, 6, dtype="int4"), None, 0.2, 1)
    row = Spec((4, 6), "int4", 0.2, 1)
    rows = model.call("GATHER", [table, tensor(4, dtype="int32", name="indices")], row, axis=0)
    model.output(model.call("DEQUANTIZE", [rows], tensor(4, 6)))


def batch_cases() -> Iterator[Case]:
    """Yield cases of GATHER with batch axes; the indices may have no other axes."""
    x = tensor(*IMAGE)
    for axis in (1, 2, 3, -1):
        for index_shape in ((2,), (2, 4), (2, 4, 3)):
            yield gather_case(f"one batch axis, {index_shape} along axis {axis}", x, index_shape, axis, 1)
    for axis in (2, 3):
        yield gather_case(f"two batch axes along axis {axis}", x, (2, 5, 4), axis, 2)
    yield gather_case("three batch axes", x, (2, 5, 7, 2), 3, 3)
    yield gather_case("batch axes counted from the indices' last", x, (2, 5, 4), 2, -1)
    for constant_indices in (True, False):
        for axis in (1, 3):
            name = f"one batch axis, {'constant' if constant_indices else 'runtime'} indices along axis {axis}"
            yield gather_case(
                name, x, (2, 4), axis, 1, between_convolutions, constant_indices=constant_indices, max_transposes=4
            )
    for dtype in ("int8", "uint8", "int16", "int32", "bool"):
        yield gather_case(f"{dtype} of one batch axis", tensor(*IMAGE, dtype=dtype), (2, 4), 2, 1, opsets=opsets(dtype))


def scalar_index_cases() -> Iterator[Case]:
    """Yield cases with scalar indices, which remove an axis.

    The remaining axes must keep their layout between convolutions.
    """

    def gather_between_convolutions(axis: int, dtype: str) -> Callable[[Net], None]:
        def build(model: Net) -> None:
            x = tensor(*IMAGE, dtype=dtype)
            remaining_shape = (*IMAGE[:axis], *IMAGE[axis + 1 :])
            slice_ = model.call(
                "GATHER", [model.input_through_conv(x), constant(1)], x.with_shape(*remaining_shape), axis=axis
            )
            expanded_shape = (*remaining_shape[:axis], 1, *remaining_shape[axis:])
            model.output(
                model.output_through_conv(
                    model.call("EXPAND_DIMS", [slice_, constant(axis)], x.with_shape(*expanded_shape))
                )
            )

        return build

    for axis in range(4):
        for dtype in ("float32", "int8"):
            yield net(
                "GATHER",
                f"{dtype}, scalar index on axis {axis}, between convolutions",
                gather_between_convolutions(axis, dtype),
                dtype=dtype,
                max_transposes=2,
            )


def corner_cases() -> Iterator[Case]:
    yield gather_case("one index of rank 1", tensor(5), (), 0)
    yield gather_case("rank 6", tensor(2, 3, 2, 2, 3, 2), (4,), 4)
    yield gather_case("empty", tensor(5, 3), (0,), 0)
    runs = [{"x0": random_array(n, 5, 3)} for n in (1, 4)]
    x = tensor(None, 5, 3)
    yield in_isolation(
        "GATHER",
        "dynamic batch",
        [x, constant([4, 0, 2])],
        x.with_shape(None, 3, 3),
        options={"axis": 1},
        input_arrays=runs,
    )
    options = {"axis": 1, "batch_dims": 1}
    runs = [{"x0": random_array(n, 5, 3), "indices": random_array(n, 2, dtype="int32", low=0, high=4)} for n in (1, 4)]
    indices = tensor(None, 2, dtype="int32", name="indices")
    yield in_isolation(
        "GATHER",
        "dynamic batch axis of data and indices",
        [x, indices],
        x.with_shape(None, 2, 3),
        options=options,
        input_arrays=runs,
    )
    kernel_check = "indices_has_only_positive_elements"
    yield in_isolation(
        "GATHER",
        "negative index",
        [tensor(5, 3), constant([-1])],
        tensor(1, 3),
        options={"axis": 0},
        kernel_refusal=kernel_check,
    )


# --- GATHER_ND --------------------------------------------------------------------------------


def gather_nd_case(
    name: str,
    index_shape: Sequence[int],
    depth: int,
    dtype: str = "float32",
    index_dtype: str = "int32",
    constant_indices: bool = True,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    """Return a GATHER_ND of random indices into the first ``depth`` axes.

    The indices are a constant or a graph input.
    """
    x = tensor(*IMAGE, dtype=dtype)
    columns = [
        random_array(*index_shape, 1, dtype="int32", seed=f"{axis}", low=0, high=IMAGE[axis] - 1)
        for axis in range(depth)
    ]
    index_values = np.concatenate(columns, axis=-1).astype(index_dtype)
    indices = (
        constant(index_values)
        if constant_indices
        else tensor(*index_values.shape, dtype=index_dtype, scale=0, name="indices")
    )
    y = replace(x, name="").with_shape(*index_shape, *IMAGE[depth:])
    inputs = {} if constant_indices else {"input_arrays": {"indices": index_values}}
    return place("GATHER_ND", name, [x, indices], y, **{"dtype": dtype, **inputs, **case_fields})


def gather_nd_cases() -> Iterator[Case]:
    for depth in (1, 2, 3, 4):
        yield gather_nd_case(f"the first {depth} axes", (11,), depth, opsets=EVERY_OPSET)
        yield gather_nd_case(f"indices of rank 3, {depth} axes", (3, 2), depth)
    yield gather_nd_case("indices of rank 3, 2 axes", (3, 2), 2, place=between_convolutions, max_transposes=4)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool", "string"):
        yield gather_nd_case(dtype, (11,), 2, dtype=dtype)
    for index_dtype in ("int16", "int64"):
        yield gather_nd_case(f"{index_dtype} indices", (11,), 3, index_dtype=index_dtype)
        yield gather_nd_case(
            f"{index_dtype} runtime indices", (11,), 3, index_dtype=index_dtype, constant_indices=False
        )
    yield gather_nd_case("int32 runtime indices", (11,), 2, constant_indices=False)


# --- WHERE ------------------------------------------------------------------------------------


def where_cases() -> Iterator[Case]:
    for dtype in ("bool", "float32", "int32", "int64", "uint32", "int8", "uint8"):
        for shape in ((13,), (5, 7), (2, 5, 7, 3)):
            array = random_array(*shape, dtype="int32", seed="condition", low=0, high=2).astype(dtype)
            x = tensor(*shape, dtype=dtype, scale=0, name="condition")
            y = tensor(None, len(shape), dtype="int64")
            tested_opsets = EVERY_OPSET if shape == (5, 7) and dtype == "float32" else (None,)
            yield in_isolation(
                "WHERE",
                f"{dtype} of rank {len(shape)}",
                [x],
                y,
                dtype=dtype,
                input_arrays={"condition": array},
                opsets=tested_opsets,
            )
    x, all_false = tensor(5, 7, dtype="bool", name="condition"), np.zeros((5, 7), bool)
    y, refuses = tensor(None, 2, dtype="int64"), "Invalid tensor size"
    yield in_isolation(
        "WHERE", "all false", [x], y, dtype="bool", input_arrays={"condition": all_false}, kernel_refusal=refuses
    )
