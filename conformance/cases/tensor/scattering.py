"""SCATTER_ND, which adds duplicates, and SPARSE_TO_DENSE, where the last duplicate wins."""

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
    yield from refused_dense_cases()


# --- sums -------------------------------------------------------------------------------------


def coordinates(rows: Sequence[int], sizes: Sequence[int], seed: str = "") -> Any:
    """Return random indices, with duplicates if there are enough rows."""
    each = [
        random_array(*rows, 1, dtype="int32", seed=f"{seed}{k}", low=0, high=size - 1) for k, size in enumerate(sizes)
    ]
    return np.concatenate(each, axis=-1)


def scatter_add_case(
    name: str, rows: Sequence[int], depth: int, dtype: str = "float32", *, places: Any = None, fixed: bool = True,
    sized: bool = True, spec: Spec | None = None, **case: Any,
) -> Case:  # fmt: skip
    """Return a case. ``fixed``: indices are constant; ``sized``: the shape is constant."""
    places = coordinates(rows, SHAPE[:depth], name) if places is None else np.asarray(places, np.int32)
    shape = np.asarray(SHAPE, np.int32)
    operands = [
        constant(places) if fixed else tensor(*places.shape, dtype="int32", name="places"),
        (spec or tensor(dtype=dtype)).with_shape(*places.shape[:-1], *SHAPE[depth:]),
        constant(shape) if sized else tensor(4, dtype="int32", name="shape"),
    ]
    given = {**({} if fixed else {"places": places}), **({} if sized else {"shape": shape})}
    y = operands[1].with_shape(*(SHAPE if sized else (None,) * 4))
    return in_isolation(ADD, name, operands, y, **{"dtype": dtype, "input_arrays": given or None, **case})


def scatter_add_cases() -> Iterator[Case]:
    for depth in (1, 2, 3, 4):
        for fixed in (True, False):
            text = "constant" if fixed else "runtime"
            yield scatter_add_case(f"{text} indices of {depth} axes", (31,), depth, fixed=fixed, opsets=FROM_16)
        yield scatter_add_case(f"indices of rank 3, {depth} axes", (3, 2), depth)
        yield scatter_add_case(f"shape known at runtime, {depth} axes", (11,), depth, sized=False)
    yield scatter_add_case("indices and shape known at runtime", (11,), 2, fixed=False, sized=False)
    yield scatter_add_case("unique indices", (3,), 2, places=[[4, 6], [0, 1], [4, 5]], opsets=EVERY_OPSET)
    yield scatter_add_case("equal indices", (7,), 1, places=[[2]] * 7)
    yield scatter_add_case("one update", (1,), 2)
    yield scatter_add_case("no updates", (0,), 2, places=np.zeros((0, 2)))
    yield net(ADD, "many updates of one element", many_updates, dtype="int32")
    many = [{"x1": random_array(n, 3, 2), "places": coordinates((n,), SHAPE[:2])} for n in (5, 2)]
    operands = [tensor(None, 2, dtype="int32", name="places"), tensor(None, 3, 2), constant(SHAPE)]
    yield in_isolation(ADD, "dynamic number of updates", operands, tensor(*SHAPE), input_arrays=many)


def many_updates(model: Net) -> None:
    """Build enough updates that a runtime would use several threads."""
    places, updates = tensor(20011, 1, dtype="int32", name="places"), tensor(20011, 64, dtype="int32")
    refs = [model.add_operand(places), model.add_operand(updates), model.add_operand(constant([2, 64]))]
    zero = model.call("SUB", [refs[0], refs[0]], tensor(20011, 1, dtype="int32"))
    model.output(model.call(ADD, [zero, refs[1], refs[2]], tensor(2, 64, dtype="int32")))


def dtype_cases() -> Iterator[Case]:
    """Yield sums of each dtype: integers wrap, and bool is a logical or."""
    for dtype in ("int8", "uint8", "int32", "int64", "bool"):
        for fixed in (True, False):
            text = "constant" if fixed else "runtime"
            yield scatter_add_case(f"{dtype} at {text} indices", (67,), 1, dtype, fixed=fixed)
        if dtype in ("int8", "uint8"):
            yield scatter_add_case(f"{dtype} without scale", (67,), 1, dtype, spec=tensor(dtype=dtype, scale=0))
        yield scatter_add_case(f"{dtype} at unique indices", (3,), 2, dtype, places=[[4, 6], [0, 1], [4, 5]])


def refused_sum_cases() -> Iterator[Case]:
    outside, refuses = [[1, 7]], "index out of bounds"
    yield scatter_add_case("index out of bounds", (1,), 2, places=outside, kernel_refusal=refuses)
    yield scatter_add_case("negative index", (1,), 2, places=[[-1, 2]], kernel_refusal=refuses)
    refuses = "not supported by scatter_nd"
    yield scatter_add_case("float16", (3,), 1, "float16", kernel_refusal=refuses)


# --- sparse to dense --------------------------------------------------------------------------


def sparse_to_dense_case(
    name: str, places: Any, shape: Sequence[int], values: Spec, *, kind: str = "int32", fixed: bool = True,
    sized: bool = True, default: Spec | None = None, **case: Any,
) -> Case:  # fmt: skip
    places, sizes = np.asarray(places, kind), np.asarray(shape, kind)
    operands = [
        constant(places) if fixed else tensor(*places.shape, dtype=kind, scale=0, name="places"),
        constant(sizes) if sized else tensor(len(sizes), dtype=kind, scale=0, name="shape"),
        values,
        default or constant(np.asarray(3, values.dtype), None, values.scale, values.zero_point),
    ]
    given = {
        **({} if fixed else {"places": places}),
        **({} if sized else {"shape": sizes}),
        **case.pop("input_arrays", {}),
    }
    y = Spec(tuple(shape) if sized else (None,) * len(shape), values.dtype, values.scale, values.zero_point)
    return in_isolation(SPARSE, name, operands, y, **{"dtype": values.dtype, "input_arrays": given or None, **case})


REPEATED = [[1, 0], [2, 4], [1, 0], [0, 3], [2, 4]]


def sparse_to_dense_cases() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "int8", "uint8"):
        for kind in ("int32", "int64"):
            for fixed in (True, False):
                name = f"{dtype} at {'constant' if fixed else 'running'} {kind} indices"
                tested_opsets = EVERY_OPSET if dtype == "float32" else (None,)
                yield sparse_to_dense_case(
                    name, REPEATED, (3, 5), tensor(5, dtype=dtype), kind=kind, fixed=fixed, opsets=tested_opsets
                )
        yield sparse_to_dense_case(f"{dtype}, same scalar for all indices", REPEATED, (3, 5), tensor(dtype=dtype))
        if dtype in ("int8", "uint8"):
            yield sparse_to_dense_case(f"{dtype} without scale", REPEATED, (3, 5), tensor(5, dtype=dtype, scale=0))
    yield sparse_to_dense_case("shape known at runtime", REPEATED, (3, 5), tensor(5), fixed=False, sized=False)
    yield sparse_to_dense_case("constant values", REPEATED, (3, 5), constant(random_array(5)), fixed=False)
    default = tensor(name="default")
    yield sparse_to_dense_case("default known at runtime", REPEATED, (3, 5), tensor(5), default=default)
    for rank in (1, 2, 3, 4):
        shape = SHAPE[:rank]
        yield sparse_to_dense_case(
            f"indices of {rank} axes", coordinates((11,), shape, "dense"), shape, tensor(11), fixed=False
        )
    for fixed in (True, False):
        text = "constant" if fixed else "runtime"
        yield sparse_to_dense_case(f"{text} indices of rank 1", [5, 1, 5], (7,), tensor(3), fixed=fixed)
        yield sparse_to_dense_case(f"{text} index of rank 0", 5, (7,), tensor(), fixed=fixed)
    yield sparse_to_dense_case("vector value at an index of rank 0", 5, (7,), tensor(1))
    yield sparse_to_dense_case("no indices", np.zeros((0, 2)), (3, 5), tensor(0))
    many = int32_arrays(places=np.stack([np.arange(20011) % 7, np.zeros(20011)], axis=-1))
    operands = [tensor(20011, 2, dtype="int32", name="places"), constant([7, 2]), tensor(20011), constant(0.5)]
    yield in_isolation(SPARSE, "many values of one element", operands, tensor(7, 2), input_arrays=many)


def refused_dense_cases() -> Iterator[Case]:
    yield sparse_to_dense_case("index out of bounds", [[1, 5]], (3, 5), tensor(1), kernel_refusal="SPARSE_TO_DENSE")
