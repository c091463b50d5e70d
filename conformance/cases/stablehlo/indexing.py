"""STABLEHLO_GATHER and STABLEHLO_SCATTER, with indices inside and out of bounds.

Index tensors have various shapes, and their index vectors lie along various axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, constant, in_isolation, net, random_array, tensor

DTYPES = (
    "float32",
    "float16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
OPERAND = (5, 7, 11)


def cases() -> Iterator[Case]:
    yield from gather_cases()
    yield from scatter_cases()


def indices_beyond_bounds(
    shape: Sequence[int], dtype: str = "int32", low: int = -3, high: int = 12
) -> np.ndarray[Any, Any]:
    """Return random indices, some before the first element and some after the last."""
    return random_array(*shape, dtype=dtype, seed="indices", low=low, high=high)


def gather_index_cases(
    name: str,
    operand_shape: Sequence[int],
    index_shape: Sequence[int],
    result_shape: Sequence[int],
    index_dtype: str = "int32",
    dtype: str = "float32",
    **options: Any,
) -> Iterator[Case]:
    """Yield a gather case with runtime indices and one with constant indices.

    Some indices are out of bounds. ``options``: options of STABLEHLO_GATHER.
    """
    x, index_array = tensor(*operand_shape, dtype=dtype, scale=0), indices_beyond_bounds(index_shape, index_dtype)
    for suffix, indices in (
        ("", tensor(*index_shape, dtype=index_dtype, name="indices")),
        (", constant", constant(index_array)),
    ):
        input_arrays = None if suffix else {"indices": index_array}
        yield in_isolation(
            "STABLEHLO_GATHER",
            f"{name}{suffix}",
            [x, indices],
            x.with_shape(*result_shape),
            options=options,
            input_arrays=input_arrays,
        )


def gather_cases() -> Iterator[Case]:
    rows: dict[str, Any] = {
        "offset_dims": [1, 2],
        "collapsed_slice_dims": [0],
        "start_index_map": [0],
        "index_vector_dim": 1,
        "slice_sizes": [1, 7, 11],
    }
    for dtype in DTYPES:
        yield from gather_index_cases(f"{dtype} rows", OPERAND, (3, 1), (3, 7, 11), dtype=dtype, **rows)
    yield from gather_index_cases("int64 indices", OPERAND, (3, 1), (3, 7, 11), "int64", **rows)
    x = tensor(*OPERAND, dtype="int8")
    yield in_isolation(
        "STABLEHLO_GATHER",
        "int8 with a scale",
        [x, constant(indices_beyond_bounds((3, 1)))],
        x.with_shape(3, 7, 11),
        options=rows,
    )
    yield from gather_index_cases(
        "windows of one axis", OPERAND, (2, 1), (5, 2, 3, 11),
        offset_dims=[0, 2, 3], start_index_map=[1], index_vector_dim=1, slice_sizes=[5, 3, 11],
    )  # fmt: skip
    yield from gather_index_cases(
        "windows of two swapped axes", OPERAND, (2, 3), (3, 2, 5, 4),
        offset_dims=[1, 2, 3], start_index_map=[2, 0], index_vector_dim=0, slice_sizes=[2, 5, 4],
    )  # fmt: skip
    yield from gather_index_cases(
        "elements", OPERAND, (2, 3, 13), (2, 13),
        collapsed_slice_dims=[0, 1, 2], start_index_map=[1, 2, 0], index_vector_dim=1, slice_sizes=[1, 1, 1],
    )  # fmt: skip
    yield from gather_index_cases(
        "collapsed axis and kept axis of size 1", OPERAND, (13, 2), (1, 13, 11),
        offset_dims=[0, 2], collapsed_slice_dims=[1], start_index_map=[0, 1], index_vector_dim=1, slice_sizes=[1, 1, 11],
    )  # fmt: skip
    yield from gather_index_cases(
        "sliced and collapsed axis without an index", OPERAND, (13, 1), (13, 7),
        offset_dims=[1], collapsed_slice_dims=[0, 2], start_index_map=[0], index_vector_dim=1, slice_sizes=[1, 7, 1],
    )  # fmt: skip
    yield from gather_index_cases(
        "single slice", OPERAND, (3,), (2, 3, 5),
        offset_dims=[0, 1, 2], start_index_map=[0, 1, 2], index_vector_dim=0, slice_sizes=[2, 3, 5],
    )  # fmt: skip
    yield from gather_index_cases("no slices", OPERAND, (0, 1), (0, 7, 11), **rows)
    runs = [{"x0": random_array(5, n, 11)} for n in (7, 13)]
    options = {"offset_dims": [0, 2, 3], "start_index_map": [1], "index_vector_dim": 1, "slice_sizes": [5, 3, 11]}
    operands = [tensor(5, None, 11), constant(indices_beyond_bounds((2, 1)))]
    yield in_isolation(
        "STABLEHLO_GATHER", "dynamic axis", operands, tensor(5, 2, 3, 11), options=options, input_arrays=runs
    )
    reference: dict[str, Any] = {
        "reference": lambda arrays: [np.zeros((5, 2, 3, 11), np.float32)]
    }  # LiteRT reads past the end of the shape
    for name, axis, refusal in (
        ("no index vector axis", 2, "the axis of index vectors is missing"),
        ("negative index vector axis", -8, "index_vector_dim is -8"),
    ):
        vector_options = {**options, "index_vector_dim": axis}
        yield in_isolation(
            "STABLEHLO_GATHER",
            name,
            operands,
            tensor(5, 2, 3, 11),
            options=vector_options,
            refusal=refusal,
            **reference,
        )
    negative_slices: dict[str, Any] = {"options": {**options, "slice_sizes": [5, -1, 11]}, "refusal": "negative size"}
    yield in_isolation(
        "STABLEHLO_GATHER", "negative slice size", operands, tensor(5, 2, 3, 11), **negative_slices, **reference
    )
    outside_result: dict[str, Any] = {
        "options": {**options, "offset_dims": [0, 2, 4]},
        "refusal": "offset_dims is [0, 2, 4]",
    }
    yield in_isolation(
        "STABLEHLO_GATHER",
        "offset axis outside the result",
        operands,
        tensor(5, 2, 3, 11),
        **outside_result,
        **reference,
    )
    options = {**options, "start_index_map": []}
    yield in_isolation(
        "STABLEHLO_GATHER",
        "empty start_index_map",
        operands,
        tensor(5, 2, 3, 11),
        options=options,
        refusal="start_index_map is empty",
    )


# --- scatter ----------------------------------------------------------------------------------

REGIONS = {
    "none": None,
    "add": "STABLEHLO_ADD",
    "multiply": "STABLEHLO_MULTIPLY",
    "maximum": "STABLEHLO_MAXIMUM",
    "minimum": "STABLEHLO_MINIMUM",
}


def scatter_case(name: str, x: Spec, indices: Spec, updates: Spec, reduction: str = "none", **case_fields: Any) -> Case:
    """Return a STABLEHLO_SCATTER case.

    ``reduction``: a key of ``REGIONS``, or the operator of the region.
    """
    options = case_fields.pop("options")

    def build(model: Net) -> None:
        region = model.model.subgraph("region")
        a, b = (region.input(side, (), x.dtype) for side in ("a", "b"))
        region_operator = REGIONS.get(reduction, reduction)
        if region_operator:
            y = region.tensor("y", (), x.dtype)
            region.operator(region_operator, [a, b], [y])
            region.output(y)
        else:
            region.output(b)
        scatter_options = {**options, "update_computation_subgraph_index": region.index}
        model.output(
            model.call(
                "STABLEHLO_SCATTER",
                [x, indices, updates],
                Spec(x.shape, x.dtype, x.scale, x.zero_point),
                **scatter_options,
            )
        )

    return net("STABLEHLO_SCATTER", f"{name}, {reduction}", build, **{"dtype": x.dtype, **case_fields})


def scatter_index_cases(
    name: str,
    index_shape: Sequence[int],
    update_shape: Sequence[int],
    reduction: str = "none",
    dtype: str = "float32",
    index_dtype: str = "int32",
    **options: Any,
) -> Iterator[Case]:
    """Yield a scatter case with runtime indices and one with constant indices.

    Some indices are out of bounds.
    """
    x, updates, index_array = (
        tensor(*OPERAND, dtype=dtype, scale=0),
        tensor(*update_shape, dtype=dtype, scale=0),
        indices_beyond_bounds(index_shape, index_dtype),
    )
    options = {"index_vector_dim": len(index_shape) - 1, **options}
    for suffix, indices in (
        ("", tensor(*index_shape, dtype=index_dtype, name="indices")),
        (", constant", constant(index_array)),
    ):
        input_arrays = None if suffix else {"indices": index_array}
        yield scatter_case(
            f"{name}{suffix}", x, indices, updates, reduction, options=options, input_arrays=input_arrays
        )


def scatter_cases() -> Iterator[Case]:
    rows: dict[str, Any] = {
        "update_window_dims": [1, 2],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
    }
    for dtype in DTYPES:
        for reduction in REGIONS:
            yield from scatter_index_cases(
                f"{dtype} rows, repeated indices", (13, 1), (13, 7, 11), reduction, dtype, **rows
            )
    yield from scatter_index_cases("int64 indices", (13, 1), (13, 7, 11), index_dtype="int64", **rows)
    yield from scatter_index_cases(
        "elements", (2, 3, 13), (2, 13), "add",
        inserted_window_dims=[0, 1, 2], scatter_dims_to_operand_dims=[2, 0, 1], index_vector_dim=1,
    )  # fmt: skip
    yield from scatter_index_cases(
        "windows partly out of bounds", (13, 2), (3, 13, 5, 4), "add",
        update_window_dims=[0, 2, 3], scatter_dims_to_operand_dims=[1, 2],
    )  # fmt: skip
    yield from scatter_index_cases(
        "single window",
        (2,),
        (3, 4),
        update_window_dims=[0, 1],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[2, 0],
    )
    yield from scatter_index_cases("no updates", (0, 1), (0, 7, 11), **rows)
    indices = constant(np.array([[3], [0], [3]], np.int32))
    x = tensor(*OPERAND)
    options = {**rows, "index_vector_dim": 1}
    yield scatter_case("indices in bounds", x, indices, tensor(3, 7, 11), options=options)
    quantized = tensor(*OPERAND, dtype="int8")
    yield scatter_case("int8 with a scale", quantized, indices, tensor(3, 7, 11, dtype="int8"), "add", options=options)
    yield scatter_case(
        "unsupported region", x, indices, tensor(3, 7, 11), "SUB", options=options, kernel_refusal="Only update"
    )
    reference: dict[str, Any] = {"reference": lambda arrays: arrays[:1]}  # LiteRT reads past the end of the shape
    vector_options = {**options, "index_vector_dim": 2}
    yield scatter_case(
        "no index vector axis",
        x,
        indices,
        tensor(3, 1, 7, 11),
        options=vector_options,
        refusal="the axis of index vectors is missing",
        **reference,
    )
    start = tensor(2, dtype="int32", name="indices")
    repeated_axis = {
        "update_window_dims": [0, 1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [2, 2],
        "index_vector_dim": 0,
    }
    yield scatter_case("repeated axis", x, start, tensor(7, 4), options=repeated_axis, refusal="an axis twice")
    operands = (tensor(None, 7, 11), indices, tensor(3, 7, 11))
    yield scatter_case("dynamic shape", *operands, options=options, refusal="dynamic shape")
    yield scatter_case(
        "opset 17", x, indices, tensor(3, 7, 11), options=options, opsets=(17,), refusal="needs opset 18"
    )
