"""SCATTER_ND, which adds duplicates, and SPARSE_TO_DENSE, which keeps the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, in_isolation, int32_arrays, net, random_array, tensor

ADD, SPARSE = "SCATTER_ND", "SPARSE_TO_DENSE"
SHAPE = (5, 7, 3, 2)
FROM_16 = (None, 16, 21, 26)


def cases() -> Iterator[Case]:
    yield from scatter_add_cases()
    yield from dtype_cases()
    yield from refused_sum_cases()
    yield from sparse_to_dense_cases()
    yield from refused_sparse_to_dense_cases()


# --- SCATTER_ND -------------------------------------------------------------------------------


def coordinates(index_shape: Sequence[int], sizes: Sequence[int], seed: str = "") -> Any:
    """Return random indices, with duplicates if there are enough rows."""
    columns = [
        random_array(*index_shape, 1, dtype="int32", seed=f"{seed}{k}", low=0, high=size - 1)
        for k, size in enumerate(sizes)
    ]
    return np.concatenate(columns, axis=-1)


def scatter_add_case(
    name: str, index_shape: Sequence[int], depth: int, dtype: str = "float32", *, indices: Any = None, constant_indices: bool = True,
    constant_shape: bool = True, update_spec: Spec | None = None, **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a SCATTER_ND of random updates.

    ``index_shape``: sizes of the indices without the last axis. ``depth``: size of the last axis. ``update_spec``: dtype
    and scale.
    """
    indices = coordinates(index_shape, SHAPE[:depth], name) if indices is None else np.asarray(indices, np.int32)
    shape = np.asarray(SHAPE, np.int32)
    operands = [
        constant(indices) if constant_indices else tensor(*indices.shape, dtype="int32", name="indices"),
        (update_spec or tensor(dtype=dtype)).with_shape(*indices.shape[:-1], *SHAPE[depth:]),
        constant(shape) if constant_shape else tensor(4, dtype="int32", name="shape"),
    ]
    input_arrays = {
        **({} if constant_indices else {"indices": indices}),
        **({} if constant_shape else {"shape": shape}),
    }
    y = operands[1].with_shape(*(SHAPE if constant_shape else (None,) * 4))
    return in_isolation(ADD, name, operands, y, **{"dtype": dtype, "input_arrays": input_arrays or None, **case_fields})


def scatter_add_cases() -> Iterator[Case]:
    for depth in (1, 2, 3, 4):
        for constant_indices in (True, False):
            index_source = "constant" if constant_indices else "runtime"
            yield scatter_add_case(
                f"{index_source} indices of {depth} axes",
                (31,),
                depth,
                constant_indices=constant_indices,
                opsets=FROM_16,
            )
        yield scatter_add_case(f"indices of rank 3, {depth} axes", (3, 2), depth)
        yield scatter_add_case(f"shape known at runtime, {depth} axes", (11,), depth, constant_shape=False)
    yield scatter_add_case("indices and shape known at runtime", (11,), 2, constant_indices=False, constant_shape=False)
    yield scatter_add_case("unique indices", (3,), 2, indices=[[4, 6], [0, 1], [4, 5]], opsets=EVERY_OPSET)
    yield scatter_add_case("equal indices", (7,), 1, indices=[[2]] * 7)
    yield scatter_add_case("one update", (1,), 2)
    yield scatter_add_case("no updates", (0,), 2, indices=np.zeros((0, 2)))
    yield net(ADD, "many updates of one element", many_updates, dtype="int32")
    runs = [{"x1": random_array(n, 3, 2), "indices": coordinates((n,), SHAPE[:2])} for n in (5, 2)]
    operands = [tensor(None, 2, dtype="int32", name="indices"), tensor(None, 3, 2), constant(SHAPE)]
    yield in_isolation(ADD, "dynamic number of updates", operands, tensor(*SHAPE), input_arrays=runs)


def many_updates(model: Net) -> None:
    """Build enough updates that a runtime would use several threads."""
    indices, updates = tensor(20011, 1, dtype="int32", name="indices"), tensor(20011, 64, dtype="int32")
    refs = [model.add_operand(indices), model.add_operand(updates), model.add_operand(constant([2, 64]))]
    zero = model.call("SUB", [refs[0], refs[0]], tensor(20011, 1, dtype="int32"))
    model.output(model.call(ADD, [zero, refs[1], refs[2]], tensor(2, 64, dtype="int32")))


def dtype_cases() -> Iterator[Case]:
    """Yield cases with sums of each dtype: integers wrap, and bool is a logical or."""
    for dtype in ("int8", "uint8", "int32", "int64", "bool"):
        for constant_indices in (True, False):
            index_source = "constant" if constant_indices else "runtime"
            yield scatter_add_case(
                f"{dtype} at {index_source} indices", (67,), 1, dtype, constant_indices=constant_indices
            )
        if dtype in ("int8", "uint8"):
            yield scatter_add_case(f"{dtype} without scale", (67,), 1, dtype, update_spec=tensor(dtype=dtype, scale=0))
        yield scatter_add_case(f"{dtype} at unique indices", (3,), 2, dtype, indices=[[4, 6], [0, 1], [4, 5]])


def refused_sum_cases() -> Iterator[Case]:
    outside, kernel_refusal = [[1, 7]], "index out of bounds"
    yield scatter_add_case("index out of bounds", (1,), 2, indices=outside, kernel_refusal=kernel_refusal)
    yield scatter_add_case("negative index", (1,), 2, indices=[[-1, 2]], kernel_refusal=kernel_refusal)
    kernel_refusal = "not supported by scatter_nd"
    yield scatter_add_case("float16", (3,), 1, "float16", kernel_refusal=kernel_refusal)
    operands = [tensor(5, None, dtype="int32", name="indices"), tensor(5, 3), constant(SHAPE[:2])]
    refusal = "the last axis of the indices 'indices' is dynamic"
    yield in_isolation(ADD, "dynamic number of coordinates", operands, tensor(*SHAPE[:2]), refusal=refusal)


# --- SPARSE_TO_DENSE --------------------------------------------------------------------------


def sparse_to_dense_case(
    name: str, indices: Any, shape: Sequence[int], values: Spec, *, index_dtype: str = "int32", constant_indices: bool = True,
    constant_shape: bool = True, default: Spec | None = None, **case_fields: Any,
) -> Case:  # fmt: skip
    indices, shape_values = np.asarray(indices, index_dtype), np.asarray(shape, index_dtype)
    operands = [
        constant(indices) if constant_indices else tensor(*indices.shape, dtype=index_dtype, scale=0, name="indices"),
        constant(shape_values)
        if constant_shape
        else tensor(len(shape_values), dtype=index_dtype, scale=0, name="shape"),
        values,
        default or constant(np.asarray(3, values.dtype), None, values.scale, values.zero_point),
    ]
    runtime_arrays = {
        **({} if constant_indices else {"indices": indices}),
        **({} if constant_shape else {"shape": shape_values}),
        **case_fields.pop("input_arrays", {}),
    }
    y = Spec(tuple(shape) if constant_shape else (None,) * len(shape), values.dtype, values.scale, values.zero_point)
    return in_isolation(
        SPARSE, name, operands, y, **{"dtype": values.dtype, "input_arrays": runtime_arrays or None, **case_fields}
    )


REPEATED = [[1, 0], [2, 4], [1, 0], [0, 3], [2, 4]]


def sparse_to_dense_cases() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "int8", "uint8"):
        for index_dtype in ("int32", "int64"):
            for constant_indices in (True, False):
                name = f"{dtype} at {'constant' if constant_indices else 'runtime'} {index_dtype} indices"
                tested_opsets = EVERY_OPSET if dtype == "float32" else (None,)
                yield sparse_to_dense_case(
                    name,
                    REPEATED,
                    (3, 5),
                    tensor(5, dtype=dtype),
                    index_dtype=index_dtype,
                    constant_indices=constant_indices,
                    opsets=tested_opsets,
                )
        yield sparse_to_dense_case(f"{dtype}, same scalar for all indices", REPEATED, (3, 5), tensor(dtype=dtype))
        if dtype in ("int8", "uint8"):
            yield sparse_to_dense_case(f"{dtype} without scale", REPEATED, (3, 5), tensor(5, dtype=dtype, scale=0))
    yield sparse_to_dense_case(
        "runtime shape", REPEATED, (3, 5), tensor(5), constant_indices=False, constant_shape=False
    )
    yield sparse_to_dense_case("constant values", REPEATED, (3, 5), constant(random_array(5)), constant_indices=False)
    default = tensor(name="default")
    yield sparse_to_dense_case("runtime default", REPEATED, (3, 5), tensor(5), default=default)
    for rank in (1, 2, 3, 4):
        shape = SHAPE[:rank]
        yield sparse_to_dense_case(
            f"indices of {rank} axes", coordinates((11,), shape, "dense"), shape, tensor(11), constant_indices=False
        )
    for constant_indices in (True, False):
        index_source = "constant" if constant_indices else "runtime"
        yield sparse_to_dense_case(
            f"{index_source} indices of rank 1", [5, 1, 5], (7,), tensor(3), constant_indices=constant_indices
        )
        yield sparse_to_dense_case(
            f"{index_source} index of rank 0", 5, (7,), tensor(), constant_indices=constant_indices
        )
    yield sparse_to_dense_case("vector value at an index of rank 0", 5, (7,), tensor(1))
    yield sparse_to_dense_case("no indices", np.zeros((0, 2)), (3, 5), tensor(0))
    input_arrays = int32_arrays(indices=np.stack([np.arange(20011) % 7, np.zeros(20011)], axis=-1))
    operands = [tensor(20011, 2, dtype="int32", name="indices"), constant([7, 2]), tensor(20011), constant(0.5)]
    yield in_isolation(SPARSE, "many values of one element", operands, tensor(7, 2), input_arrays=input_arrays)


def refused_sparse_to_dense_cases() -> Iterator[Case]:
    yield sparse_to_dense_case("index out of bounds", [[1, 5]], (3, 5), tensor(1), kernel_refusal="SPARSE_TO_DENSE")
