"""HASHTABLE_LOOKUP with and without missing keys, and EMBEDDING_LOOKUP_SPARSE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Spec, constant, in_isolation, random_array, tensor

LOOKUP, SPARSE = "HASHTABLE_LOOKUP", "EMBEDDING_LOOKUP_SPARSE"
KEYS = np.array([-7, 2, 3, 11, 2000], np.int32)
LOOKUP_KEYS = np.array([3, 0, 2000, -7, 3, 12, 1], np.int32)


def cases() -> Iterator[Case]:
    yield from hashtable_lookup_cases()
    yield from sparse_cases()


# --- HASHTABLE_LOOKUP -------------------------------------------------------------------------


def hashtable_case(name: str, table: Spec, keys: Any = KEYS, constant_keys: bool = True, **case_fields: Any) -> Case:
    operands = [
        tensor(len(LOOKUP_KEYS), dtype="int32", name="lookup_keys"),
        constant(keys) if constant_keys else tensor(len(keys), dtype="int32", name="keys"),
        table,
    ]
    outputs = [replace(table, name="", value=None).with_shape(len(LOOKUP_KEYS), *table.shape[1:])]
    input_arrays = {
        "lookup_keys": LOOKUP_KEYS,
        **({} if constant_keys else {"keys": keys}),
        **case_fields.pop("input_arrays", {}),
    }
    hits = tensor(len(LOOKUP_KEYS), dtype="uint8", scale=0)
    return in_isolation(
        LOOKUP, name, operands, *outputs, hits, **{"dtype": table.dtype, "input_arrays": input_arrays, **case_fields}
    )


def hashtable_lookup_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool", "float16"):
        shape = (5, 3)
        x = tensor(*shape, dtype=dtype)
        yield hashtable_case(f"{dtype} table", replace(x, value=random_array(*shape, dtype=dtype)))
        yield hashtable_case(f"{dtype} table as a graph input", x, constant_keys=False)
    strings = np.array([b"a", b"", b"bc", b"d", b"efg"], object)
    yield hashtable_case("string table", Spec((5,), "string", value=strings), dtype="string", opsets=EVERY_OPSET)
    yield hashtable_case("float32 at every opset", tensor(5, 3), opsets=EVERY_OPSET)
    yield hashtable_case("vector", tensor(5))
    yield hashtable_case("rows of two axes", tensor(5, 2, 3))
    yield hashtable_case("one key", tensor(1, 3), np.array([3], np.int32))
    unsorted_keys_message = "the keys are not ascending"
    yield hashtable_case("unsorted keys", tensor(5), KEYS[::-1].copy(), refusal=unsorted_keys_message)


# --- EMBEDDING_LOOKUP_SPARSE ------------------------------------------------------------------

INDICES = [[0, 0], [0, 2], [2, 1], [3, 0], [3, 1], [3, 3]]
INDICES_OF_RANK_3 = [[0, 0, 0], [0, 2, 1], [1, 1, 0], [1, 1, 1], [1, 2, 0], [1, 2, 1]]


def sparse_case(
    name: str, combiner: str, indices: Any, sizes: Sequence[int], table: Sequence[int] = (7, 5),
    runtime_names: Sequence[str] = (), **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a weighted sum of table rows.

    ``runtime_names``: operands that are graph inputs.
    """
    arrays = {
        "ids": random_array(len(indices), dtype="int32", seed=name, low=0, high=table[0] - 1),
        "indices": np.asarray(indices, np.int32),
        "sizes": np.asarray(sizes, np.int32),
        "weights": random_array(len(indices), seed=name),
        "table": random_array(*table),
    }
    operands = [
        tensor(*array.shape, dtype=array.dtype.name, name=key) if key in runtime_names else constant(array)
        for key, array in arrays.items()
    ]
    leading_sizes = (None,) * (len(sizes) - 1) if "sizes" in runtime_names else tuple(sizes[:-1])
    input_arrays = {key: arrays[key] for key in runtime_names}
    y = tensor(*leading_sizes, *table[1:])
    return in_isolation(
        SPARSE, name, operands, y, options={"combiner": combiner}, input_arrays=input_arrays, **case_fields
    )


def sparse_cases() -> Iterator[Case]:
    for combiner in ("SUM", "MEAN", "SQRTN"):
        for runtime_names in (("table",), ("ids", "weights", "table"), ("ids", "indices", "sizes", "weights", "table")):
            name = f"{combiner}, {len(runtime_names)} operands known at runtime"
            yield sparse_case(name, combiner, INDICES, (5, 4), runtime_names=runtime_names, opsets=(None, 16, 21, 26))
            yield sparse_case(f"{name}, rank 3", combiner, INDICES_OF_RANK_3, (2, 3, 2), runtime_names=runtime_names)
        yield sparse_case(f"{combiner} of rows of two axes", combiner, INDICES, (5, 4), (7, 2, 3), ("table",))
        yield sparse_case(f"{combiner} of all rows", combiner, [[0], [1], [2]], (3,), runtime_names=("ids", "table"))
    unsorted_indices = [[2, 0], [0, 0], [2, 1]]
    yield sparse_case("SUM of unsorted indices", "SUM", unsorted_indices, (5, 4), runtime_names=("table",))
    yield sparse_case(
        "MEAN of unsorted indices",
        "MEAN",
        unsorted_indices,
        (5, 4),
        runtime_names=("table",),
        refusal="the indices are not sorted",
    )
