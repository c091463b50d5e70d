"""STABLEHLO_GATHER and STABLEHLO_SCATTER: indices of any shape, on any axis, inside and outside the bounds."""

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
    """Return indices, some before the first element and some after the last."""
    return random_array(*shape, dtype=dtype, seed="places", low=low, high=high)


def gather_case(
    name: str,
    shape: Sequence[int],
    indices: Sequence[int],
    result: Sequence[int],
    kind: str = "int32",
    dtype: str = "float32",
    **options: Any,
) -> Iterator[Case]:
    """Yield a case with runtime indices, and one with constant indices."""
    x, indices_given = tensor(*shape, dtype=dtype, scale=0), indices_beyond_bounds(indices, kind)
    for where, spec in (("", tensor(*indices, dtype=kind, name="places")), (", constant", constant(indices_given))):
        given = None if where else {"places": indices_given}
        yield in_isolation(
            "STABLEHLO_GATHER", f"{name}{where}", [x, spec], x.with_shape(*result), options=options, input_arrays=given
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
        yield from gather_case(f"{dtype} rows", OPERAND, (3, 1), (3, 7, 11), dtype=dtype, **rows)
    yield from gather_case("int64 indices", OPERAND, (3, 1), (3, 7, 11), "int64", **rows)
    x = tensor(*OPERAND, dtype="int8")
    yield in_isolation(
        "STABLEHLO_GATHER",
        "int8 with a scale",
        [x, constant(indices_beyond_bounds((3, 1)))],
        x.with_shape(3, 7, 11),
        options=rows,
    )
    yield from gather_case(
        "windows of one axis", OPERAND, (2, 1), (5, 2, 3, 11),
        offset_dims=[0, 2, 3], start_index_map=[1], index_vector_dim=1, slice_sizes=[5, 3, 11],
    )  # fmt: skip
    yield from gather_case(
        "windows of two swapped axes", OPERAND, (2, 3), (3, 2, 5, 4),
        offset_dims=[1, 2, 3], start_index_map=[2, 0], index_vector_dim=0, slice_sizes=[2, 5, 4],
    )  # fmt: skip
    yield from gather_case(
        "elements", OPERAND, (2, 3, 13), (2, 13),
        collapsed_slice_dims=[0, 1, 2], start_index_map=[1, 2, 0], index_vector_dim=1, slice_sizes=[1, 1, 1],
    )  # fmt: skip
    yield from gather_case(
        "one axis collapsed, one kept with a size of 1", OPERAND, (13, 2), (1, 13, 11),
        offset_dims=[0, 2], collapsed_slice_dims=[1], start_index_map=[0, 1], index_vector_dim=1, slice_sizes=[1, 1, 11],
    )  # fmt: skip
    yield from gather_case(
        "sliced and collapsed axis without an index", OPERAND, (13, 1), (13, 7),
        offset_dims=[1], collapsed_slice_dims=[0, 2], start_index_map=[0], index_vector_dim=1, slice_sizes=[1, 7, 1],
    )  # fmt: skip
    yield from gather_case(
        "one slice", OPERAND, (3,), (2, 3, 5),
        offset_dims=[0, 1, 2], start_index_map=[0, 1, 2], index_vector_dim=0, slice_sizes=[2, 3, 5],
    )  # fmt: skip
    yield from gather_case("no slice", OPERAND, (0, 1), (0, 7, 11), **rows)
    runs = [{"x0": random_array(5, n, 11)} for n in (7, 13)]
    options = {"offset_dims": [0, 2, 3], "start_index_map": [1], "index_vector_dim": 1, "slice_sizes": [5, 3, 11]}
    operands = [tensor(5, None, 11), constant(indices_beyond_bounds((2, 1)))]
    yield in_isolation(
        "STABLEHLO_GATHER", "dynamic axis", operands, tensor(5, 2, 3, 11), options=options, input_arrays=runs
    )
    case: dict[str, Any] = {
        "reference": lambda arrays: [np.zeros((5, 2, 3, 11), np.float32)]
    }  # LiteRT reads past the end of the shape
    for topic, axis, refused in (
        ("no axis for vectors", 2, "no axis for"),
        ("vectors along an axis before the first", -8, "index_vector_dim is -8"),
    ):
        along = {**options, "index_vector_dim": axis}
        yield in_isolation(
            "STABLEHLO_GATHER", topic, operands, tensor(5, 2, 3, 11), options=along, refusal=refused, **case
        )
    cut: dict[str, Any] = {"options": {**options, "slice_sizes": [5, -1, 11]}, "refusal": "negative size"}
    yield in_isolation("STABLEHLO_GATHER", "slices of a negative size", operands, tensor(5, 2, 3, 11), **cut, **case)
    beyond: dict[str, Any] = {"options": {**options, "offset_dims": [0, 2, 4]}, "refusal": "has them at [0, 2, 4]"}
    yield in_isolation(
        "STABLEHLO_GATHER", "an axis of slices beyond the result's", operands, tensor(5, 2, 3, 11), **beyond, **case
    )
    options = {**options, "start_index_map": []}
    yield in_isolation(
        "STABLEHLO_GATHER",
        "no axis named",
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


def scatter_case(name: str, x: Spec, indices: Spec, updates: Spec, how: str = "none", **case: Any) -> Case:
    options = case.pop("options")

    def build(model: Net) -> None:
        region = model.model.subgraph("region")
        a, b = (region.input(side, (), x.dtype) for side in ("a", "b"))
        code = REGIONS.get(how, how)
        if code:
            y = region.tensor("y", (), x.dtype)
            region.operator(code, [a, b], [y])
            region.output(y)
        else:
            region.output(b)
        settled = {**options, "update_computation_subgraph_index": region.index}
        model.output(
            model.call(
                "STABLEHLO_SCATTER", [x, indices, updates], Spec(x.shape, x.dtype, x.scale, x.zero_point), **settled
            )
        )

    return net("STABLEHLO_SCATTER", f"{name}, {how}", build, **{"dtype": x.dtype, **case})


def scatter(
    name: str,
    indices: Sequence[int],
    updates: Sequence[int],
    how: str = "none",
    dtype: str = "float32",
    kind: str = "int32",
    **options: Any,
) -> Iterator[Case]:
    x, new, indices_given = (
        tensor(*OPERAND, dtype=dtype, scale=0),
        tensor(*updates, dtype=dtype, scale=0),
        indices_beyond_bounds(indices, kind),
    )
    options = {"index_vector_dim": len(indices) - 1, **options}
    for where, spec in (("", tensor(*indices, dtype=kind, name="places")), (", constant", constant(indices_given))):
        given = None if where else {"places": indices_given}
        yield scatter_case(f"{name}{where}", x, spec, new, how, options=options, input_arrays=given)


def scatter_cases() -> Iterator[Case]:
    rows: dict[str, Any] = {
        "update_window_dims": [1, 2],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
    }
    for dtype in DTYPES:
        for how in REGIONS:
            yield from scatter(f"{dtype} rows, many to one", (13, 1), (13, 7, 11), how, dtype, **rows)
    yield from scatter("int64 indices", (13, 1), (13, 7, 11), kind="int64", **rows)
    yield from scatter(
        "elements", (2, 3, 13), (2, 13), "add",
        inserted_window_dims=[0, 1, 2], scatter_dims_to_operand_dims=[2, 0, 1], index_vector_dim=1,
    )  # fmt: skip
    yield from scatter(
        "windows partly out of bounds", (13, 2), (3, 13, 5, 4), "add",
        update_window_dims=[0, 2, 3], scatter_dims_to_operand_dims=[1, 2],
    )  # fmt: skip
    yield from scatter(
        "one window",
        (2,),
        (3, 4),
        update_window_dims=[0, 1],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[2, 0],
    )
    yield from scatter("no update", (0, 1), (0, 7, 11), **rows)
    inside = constant(np.array([[3], [0], [3]], np.int32))
    x = tensor(*OPERAND)
    options = {**rows, "index_vector_dim": 1}
    yield scatter_case("indices in bounds", x, inside, tensor(3, 7, 11), options=options)
    image = tensor(*OPERAND, dtype="int8")
    yield scatter_case("int8 with a scale", image, inside, tensor(3, 7, 11, dtype="int8"), "add", options=options)
    yield scatter_case(
        "unsupported region", x, inside, tensor(3, 7, 11), "SUB", options=options, kernel_refusal="Only update"
    )
    case: dict[str, Any] = {"reference": lambda arrays: arrays[:1]}  # LiteRT reads past the end of the shape
    without = {**options, "index_vector_dim": 2}
    yield scatter_case(
        "no axis for vectors", x, inside, tensor(3, 1, 7, 11), options=without, refusal="no axis for", **case
    )
    corner = tensor(2, dtype="int32", name="places")
    twice = {
        "update_window_dims": [0, 1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [2, 2],
        "index_vector_dim": 0,
    }
    yield scatter_case("an axis twice", x, corner, tensor(7, 4), options=twice, refusal="an axis twice")
    operands = (tensor(None, 7, 11), inside, tensor(3, 7, 11))
    yield scatter_case("an operand of dynamic size", *operands, options=options, refusal="dynamic shape")
    yield scatter_case("opset 17", x, inside, tensor(3, 7, 11), options=options, opsets=(17,), refusal="needs opset 18")
