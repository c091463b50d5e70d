"""EMBEDDING_LOOKUP in tables of floats, and of 8, 4 or 2 bits.

The kernel dequantizes the integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, Spec, constant, in_isolation, net, random_array, tensor
from conformance.weights import block_weights, describe_scales, fold_weights, weight

LOOKUP = "EMBEDDING_LOOKUP"
EMBEDDING_IDS = {"ids": np.array([6, 1, 0, 1, 2], np.int32)}


def cases() -> Iterator[Case]:
    yield from table_cases()
    yield from blockwise_table_cases()
    yield from refused_table_cases()


def embedding_case(name: str, table: Spec, result_dtype: str = "", **case_fields: Any) -> Case:
    """Return a lookup of five rows in a table of seven.

    ``result_dtype``: dtype of dequantized rows, by default the table's.
    """
    y = replace(table, value=None).with_shape(5, *table.shape[1:])
    ids = tensor(5, dtype="int32", scale=0, name="ids")
    operands = [ids, table]
    return in_isolation(
        LOOKUP,
        name,
        operands,
        Spec(y.shape, result_dtype) if result_dtype else y,
        **{"dtype": table.dtype, "input_arrays": EMBEDDING_IDS, **case_fields},
    )


def table_cases() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int32"):
        yield embedding_case(f"{dtype} table", constant(random_array(7, 11, dtype=dtype)))
    for dtype in ("int8", "uint8"):
        yield embedding_case(f"{dtype} table", constant(random_array(7, 11, dtype=dtype), None, 0.3, 4))
    yield embedding_case("table as a graph input", tensor(7, 11, name="table"))
    yield embedding_case("rows of two axes", constant(random_array(7, 5, 3)))
    ids = tensor(None, dtype="int32", scale=0, name="ids")
    id_runs = [{"ids": np.arange(n, dtype=np.int32)} for n in (3, 1)]
    yield in_isolation(
        LOOKUP,
        "dynamic number of rows",
        [ids, weight((7, 12), "int4", 0)],
        tensor(None, 12),
        dtype="int4",
        input_arrays=id_runs,
    )
    for dtype in ("int8", "int4", "int2"):
        for per_axis in (False, True):
            for result_dtype in ("float32", "float16"):
                yield embedding_case(
                    f"{dtype} to {result_dtype} {describe_scales(per_axis)}",
                    weight((7, 12), dtype, 0 if per_axis else None),
                    result_dtype,
                )
        yield embedding_case(f"{dtype} to float32 in rows of two axes", weight((7, 3, 4), dtype, 0), "float32")
        yield fold_weights(embedding_case(f"{dtype} to float32", weight((7, 12), dtype, 0), "float32"))
    unsigned = replace(weight((7, 12), "uint8"), zero_point=0)
    yield embedding_case("uint8 to float32, which the kernel reads as int8", unsigned, "float32")


def blockwise_table_cases() -> Iterator[Case]:
    for dtype, block_size in (("int4", 4), ("int4", 6), ("int2", 4)):
        for result_dtype in ("float32", "float16"):
            yield block_table_case(
                f"{dtype} to {result_dtype} in blocks of {block_size}", dtype, block_size, result_dtype
            )
    yield fold_weights(block_table_case("int4 to float32 in blocks", "int4", 4, "float32"))


def block_table_case(name: str, dtype: str, block_size: int, result_dtype: str, **case_fields: Any) -> Case:
    def build(model: Net) -> None:
        ids = model.add_operand(tensor(5, dtype="int32", scale=0, name="ids"))
        model.output(
            model.call(LOOKUP, [ids, block_weights(model, (7, 12), block_size, dtype)], Spec((5, 12), result_dtype))
        )

    return net(LOOKUP, name, build, **{"dtype": f"{dtype} by block", "input_arrays": EMBEDDING_IDS, **case_fields})


def refused_table_cases() -> Iterator[Case]:
    """Yield cases with tables that LiteRT refuses, or reads beyond the end of a row."""
    yield embedding_case(
        "int4 rows of 13",
        weight((7, 13), "int4"),
        "float32",
        refusal="end in the middle of a byte, and the kernel reads beyond the table",
    )
    yield block_table_case("blocks of 3", "int4", 3, "float32", refusal="blocks of 3, which the kernel does not read")
    ids, table = constant(np.array([6, 1, 0], np.int32)), weight((7, 12), "int2")
    y = replace(table, value=None).with_shape(3, 12)
    yield in_isolation("GATHER", "int2", [table, ids], y, kernel_refusal="Type 'INT2' is not supported by gather")
    yield block_table_case("int8 in blocks", "int8", 4, "float32", kernel_refusal="only supports Int4 and Int2 data")
