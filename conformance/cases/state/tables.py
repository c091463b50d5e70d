"""Hash tables that CALL_ONCE or the graph fills.

The tables map strings to integers or integers to strings, and have duplicates and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import EVERY_OPSET, Case, Tolerance
from conformance.models import Net, Spec, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array

TEXTS = np.array([b"a", b"bc", b"", "é".encode(), b"efg"], object)
NUMBERS = np.array([7, -2, 2**40, 11, 0], np.int64)


def cases() -> Iterator[Case]:
    for key_dtype in ("string", "int64"):
        keys, values = (TEXTS, NUMBERS) if key_dtype == "string" else (NUMBERS, TEXTS)
        input_arrays = {"lookup_keys": lookup_keys(keys)}
        for filled_once in (True, False):
            name = f"{key_dtype} keys, {'filled by CALL_ONCE' if filled_once else 'filled by the graph'}"
            case_fields: dict[str, Any] = {
                "dtype": key_dtype,
                "input_arrays": input_arrays,
                "opsets": EVERY_OPSET if filled_once else (None,),
            }
            yield net("HASHTABLE_FIND", name, build_lookup(keys, values, filled_once), **case_fields)
        case_fields = {"dtype": key_dtype, "input_arrays": input_arrays}
        build = build_lookup(keys, values, runtime_default=True)
        arrays_with_default = {**input_arrays, "default": values[:1]}
        yield net(
            "HASHTABLE_FIND",
            f"{key_dtype} keys, runtime default",
            build,
            **{**case_fields, "input_arrays": arrays_with_default},
        )
        repeated = np.concatenate([keys, keys[:2]])
        build = build_lookup(repeated, np.concatenate([values, values[2:4]]))
        yield net("HASHTABLE_IMPORT", f"{key_dtype} keys, repeated", build, **case_fields)
        yield net(
            "HASHTABLE_IMPORT",
            f"{key_dtype} keys, second initializer is ignored",
            import_twice(keys, values),
            **case_fields,
        )
        yield net("HASHTABLE_SIZE", f"{key_dtype} keys", table_size(keys, values), dtype=key_dtype)
        yield net(
            "HASHTABLE_SIZE",
            f"{key_dtype} keys, repeated",
            table_size(repeated, np.concatenate([values] * 2)[:7]),
            dtype=key_dtype,
        )
        yield net("HASHTABLE", f"{key_dtype} keys, two tables", two_tables(keys, values), **case_fields)
    case_fields = {"dtype": "string", "input_arrays": {"lookup_keys": lookup_keys(TEXTS)}}
    yield net("HASHTABLE_FIND", "empty table", build_lookup(TEXTS[:0], NUMBERS[:0]), **case_fields)
    case_of_rows: dict[str, Any] = {
        "dtype": "string",
        "input_arrays": {"lookup_keys": lookup_keys(TEXTS).reshape(-1)[:6]},
    }
    case_of_rows |= {"tolerance": Tolerance(of_range=1e-6), "tolerance_reason": "float product downstream"}
    yield net("HASHTABLE_FIND", "results of unknown shape as indices", gather_found_rows, **case_of_rows)
    invalid_utf8 = build_lookup(np.array([b"\xff", b"a"], object), NUMBERS[:2])
    yield net("HASHTABLE_FIND", "invalid UTF-8", invalid_utf8, **case_fields, refusal="is not UTF-8")
    yield net(
        "HASHTABLE_FIND", "read before initialization", empty_table, **case_fields, refusal="before it is initialized"
    )


def lookup_keys(keys: Array) -> Array:
    """Return every key, some of them twice, and a missing key."""
    missing_key = np.array([b"x"], object) if keys.dtype == object else np.array([5], np.int64)
    return np.concatenate([keys, missing_key, keys[::-1], missing_key])[:12].reshape(2, 3, 2)


def gather_found_rows(model: Net) -> None:
    """Build a lookup and a GATHER without stored shapes, as old converters write them."""
    found, rows = model.graph.tensor("found", None, "int64"), model.graph.tensor("rows", None, "float32")
    numbers = np.arange(1, 6, dtype=np.int64)
    operands = [
        model.add_operand(Spec((6,), "string", name="lookup_keys")),
        model.add_operand(Spec((), "int64", value=np.array(0, np.int64))),
    ]
    model.graph.operator("HASHTABLE_FIND", [add_table(model, TEXTS, numbers).handle, *operands], [found])
    model.graph.operator("GATHER", [model.add_operand(constant(random_array(7, 3))), found], [rows], {"axis": 0})
    model.output(
        model.call("FULLY_CONNECTED", [rows, constant(random_array(5, 3)), constant(random_array(5))], tensor(6, 5))
    )


class Table:
    """Hash table of one subgraph."""

    def __init__(self, graph: GraphBuilder, keys: Array, values: Array, number: int = 3) -> None:
        self.graph, self.keys, self.values = graph, keys, values
        before, after = ("STRING", "INT64") if keys.dtype == object else ("INT64", "STRING")
        self.handle = graph.tensor(f"table {number}", (1,), "resource")
        options = {"table_id": number, "key_dtype": before, "value_dtype": after}
        graph.operator("HASHTABLE", [], [self.handle], options)

    def fill(self) -> None:
        operands = [self.graph.constant(name, array) for name, array in (("keys", self.keys), ("values", self.values))]
        self.graph.operator("HASHTABLE_IMPORT", [self.handle, *operands], [])

    def find(self, model: Net, x: TensorRef, default: TensorRef) -> TensorRef:
        key_dtype = "int64" if self.keys.dtype == object else "string"
        return model.call("HASHTABLE_FIND", [self.handle, x, default], Spec((2, 3, 2), key_dtype))


def add_table(model: Net, keys: Array, values: Array, filled_once: bool = True, number: int = 3) -> Table:
    """Add a table to the main graph, filled by CALL_ONCE or in place."""
    if filled_once:
        initializer = model.model.subgraph(f"set up {number}")
        Table(initializer, keys, values, number).fill()
        model.graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": initializer.index})
    result = Table(model.graph, keys, values, number)
    if not filled_once:
        result.fill()
    return result


def add_default(model: Net, values: Array, runtime_default: bool = False) -> TensorRef:
    value_dtype = "string" if values.dtype == object else "int64"
    if runtime_default:
        return model.add_operand(Spec((1,), value_dtype, name="default"))
    missing = np.array(b"missing", object) if value_dtype == "string" else np.array(-1, np.int64)
    return model.add_operand(Spec((), value_dtype, value=missing))


def add_lookup_keys(model: Net, keys: Array) -> TensorRef:
    return model.add_operand(Spec((2, 3, 2), "string" if keys.dtype == object else "int64", name="lookup_keys"))


def build_lookup(
    keys: Array, values: Array, filled_once: bool = True, runtime_default: bool = False
) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        filled_table = add_table(model, keys, values, filled_once)
        model.output(
            filled_table.find(model, add_lookup_keys(model, keys), add_default(model, values, runtime_default))
        )

    return build


def import_twice(keys: Array, values: Array) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        filled_table = add_table(model, keys, values)
        filled_table.values = values[::-1].copy()
        filled_table.fill()
        model.output(filled_table.find(model, add_lookup_keys(model, keys), add_default(model, values)))

    return build


def two_tables(keys: Array, values: Array) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        first, second = (
            add_table(model, keys, numbers, number=k) for k, numbers in ((3, values), (5, values[::-1].copy()))
        )
        x, default = add_lookup_keys(model, keys), add_default(model, values)
        model.output(first.find(model, x, default), second.find(model, x, default))

    return build


def table_size(keys: Array, values: Array) -> Callable[[Net], None]:
    """Return a builder of the table's size plus a graph input.

    Without the sum, LiteRT would have no operator to run.
    """

    def build(model: Net) -> None:
        size = model.call("HASHTABLE_SIZE", [add_table(model, keys, values).handle], Spec((1,), "int64"))
        model.output(model.call("ADD", [size, tensor(3, dtype="int64")], Spec((3,), "int64")))

    return build


def empty_table(model: Net) -> None:
    empty = Table(model.graph, TEXTS, NUMBERS)
    model.output(empty.find(model, add_lookup_keys(model, TEXTS), add_default(model, NUMBERS)))
