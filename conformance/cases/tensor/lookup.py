"""HASHTABLE_LOOKUP with present and missing keys, and EMBEDDING_LOOKUP_SPARSE with each combiner."""

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
    yield from by_key()
    yield from sparse_cases()


# --- by key -----------------------------------------------------------------------------------


def hashtable_case(name: str, table: Spec, keys: Any = KEYS, fixed: bool = True, **case: Any) -> Case:
    operands = [
        tensor(len(LOOKUP_KEYS), dtype="int32", name="wanted"),
        constant(keys) if fixed else tensor(len(keys), dtype="int32", name="keys"),
        table,
    ]
    outputs = [replace(table, name="", value=None).with_shape(len(LOOKUP_KEYS), *table.shape[1:])]
    given = {"wanted": LOOKUP_KEYS, **({} if fixed else {"keys": keys}), **case.pop("input_arrays", {})}
    hits = tensor(len(LOOKUP_KEYS), dtype="uint8", scale=0)
    return in_isolation(LOOKUP, name, operands, *outputs, hits, **{"dtype": table.dtype, "input_arrays": given, **case})


def by_key() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool", "float16"):
        shape = (5, 3)
        x = tensor(*shape, dtype=dtype)
        yield hashtable_case(f"{dtype} table", replace(x, value=random_array(*shape, dtype=dtype)))
        yield hashtable_case(f"{dtype} table as a graph input", x, fixed=False)
    texts = np.array([b"a", b"", b"bc", b"d", b"efg"], object)
    yield hashtable_case("string table", Spec((5,), "string", value=texts), dtype="string", opsets=EVERY_OPSET)
    yield hashtable_case("float32 at every opset", tensor(5, 3), opsets=EVERY_OPSET)
    yield hashtable_case("vector", tensor(5))
    yield hashtable_case("rows of two axes", tensor(5, 2, 3))
    yield hashtable_case("one key", tensor(1, 3), np.array([3], np.int32))
    text = "the keys are not ascending"
    yield hashtable_case("unsorted keys", tensor(5), KEYS[::-1].copy(), refusal=text)


# --- weighted sums ----------------------------------------------------------------------------

INDICES = [[0, 0], [0, 2], [2, 1], [3, 0], [3, 1], [3, 3]]
DEEP = [[0, 0, 0], [0, 2, 1], [1, 1, 0], [1, 1, 1], [1, 2, 0], [1, 2, 1]]


def sparse_case(
    name: str, combiner: str, indices: Any, sizes: Sequence[int], table: Sequence[int] = (7, 5),
    running: Sequence[str] = (), **case: Any,
) -> Case:  # fmt: skip
    """Return a case; ``running``: operands that are not constants."""
    settings = {
        "ids": random_array(len(indices), dtype="int32", seed=name, low=0, high=table[0] - 1),
        "indices": np.asarray(indices, np.int32),
        "sizes": np.asarray(sizes, np.int32),
        "weights": random_array(len(indices), seed=name),
        "table": random_array(*table),
    }
    operands = [
        tensor(*array.shape, dtype=array.dtype.name, name=key) if key in running else constant(array)
        for key, array in settings.items()
    ]
    front = (None,) * (len(sizes) - 1) if "sizes" in running else tuple(sizes[:-1])
    given = {key: settings[key] for key in running}
    y = tensor(*front, *table[1:])
    return in_isolation(SPARSE, name, operands, y, options={"combiner": combiner}, input_arrays=given, **case)


def sparse_cases() -> Iterator[Case]:
    for combiner in ("SUM", "MEAN", "SQRTN"):
        for running in (("table",), ("ids", "weights", "table"), ("ids", "indices", "sizes", "weights", "table")):
            text = f"{combiner}, {len(running)} operands known at runtime"
            yield sparse_case(text, combiner, INDICES, (5, 4), running=running, opsets=(None, 16, 21, 26))
            yield sparse_case(f"{text}, rank 3", combiner, DEEP, (2, 3, 2), running=running)
        yield sparse_case(f"{combiner} of rows of two axes", combiner, INDICES, (5, 4), (7, 2, 3), ("table",))
        yield sparse_case(f"{combiner} of all rows", combiner, [[0], [1], [2]], (3,), running=("ids", "table"))
    mixed = [[2, 0], [0, 0], [2, 1]]
    yield sparse_case("SUM of unsorted indices", "SUM", mixed, (5, 4), running=("table",))
    yield sparse_case(
        "MEAN of unsorted indices", "MEAN", mixed, (5, 4), running=("table",), refusal="the indices are not sorted"
    )
