"""Hash tables that CALL_ONCE or the graph fills: text to integers and integers to text, duplicates, defaults."""

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
    for kind in ("string", "int64"):
        keys, values = (TEXTS, NUMBERS) if kind == "string" else (NUMBERS, TEXTS)
        given = {"wanted": lookup_keys(keys)}
        for once in (True, False):
            text = f"{kind} keys, {'filled once' if once else 'filled by the graph'}"
            case: dict[str, Any] = {"dtype": kind, "input_arrays": given, "opsets": EVERY_OPSET if once else (None,)}
            yield net("HASHTABLE_FIND", text, lookup_case(keys, values, once), **case)
        case = {"dtype": kind, "input_arrays": given}
        build = lookup_case(keys, values, running=True)
        lacking = {**given, "default": values[:1]}
        yield net(
            "HASHTABLE_FIND", f"{kind} keys, default known at runtime", build, **{**case, "input_arrays": lacking}
        )
        repeated = np.concatenate([keys, keys[:2]])
        build = lookup_case(repeated, np.concatenate([values, values[2:4]]))
        yield net("HASHTABLE_IMPORT", f"{kind} keys, repeated", build, **case)
        yield net("HASHTABLE_IMPORT", f"{kind} keys, second initializer is ignored", import_twice(keys, values), **case)
        yield net("HASHTABLE_SIZE", f"{kind} keys", table_size(keys, values), dtype=kind)
        yield net(
            "HASHTABLE_SIZE",
            f"{kind} keys, repeated",
            table_size(repeated, np.concatenate([values] * 2)[:7]),
            dtype=kind,
        )
        yield net("HASHTABLE", f"{kind} keys, two tables", two_tables(keys, values), **case)
    case = {"dtype": "string", "input_arrays": {"wanted": lookup_keys(TEXTS)}}
    yield net("HASHTABLE_FIND", "empty table", lookup_case(TEXTS[:0], NUMBERS[:0]), **case)
    case_of_rows: dict[str, Any] = {"dtype": "string", "input_arrays": {"wanted": lookup_keys(TEXTS).reshape(-1)[:6]}}
    case_of_rows |= {"tolerance": Tolerance(of_range=1e-6), "tolerance_reason": "float product downstream"}
    yield net("HASHTABLE_FIND", "results without a shape, used as indices", rows_found, **case_of_rows)
    odd = lookup_case(np.array([b"\xff", b"a"], object), NUMBERS[:2])
    yield net("HASHTABLE_FIND", "invalid UTF-8", odd, **case, refusal="is not UTF-8")
    yield net("HASHTABLE_FIND", "read before initialization", empty_table, **case, refusal="before it is filled")


def lookup_keys(keys: Array) -> Array:
    """Return every key, some of them twice, and a missing key."""
    other = np.array([b"x"], object) if keys.dtype == object else np.array([5], np.int64)
    return np.concatenate([keys, other, keys[::-1], other])[:12].reshape(2, 3, 2)


def rows_found(model: Net) -> None:
    """Build a lookup and a GATHER without stored shapes, as old converters write them."""
    found, rows = model.graph.tensor("found", None, "int64"), model.graph.tensor("rows", None, "float32")
    numbers = np.arange(1, 6, dtype=np.int64)
    operands = [
        model.add_operand(Spec((6,), "string", name="wanted")),
        model.add_operand(Spec((), "int64", value=np.array(0, np.int64))),
    ]
    model.graph.operator("HASHTABLE_FIND", [table(model, TEXTS, numbers).handle, *operands], [found])
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
        kind = "int64" if self.keys.dtype == object else "string"
        return model.call("HASHTABLE_FIND", [self.handle, x, default], Spec((2, 3, 2), kind))


def table(model: Net, keys: Array, values: Array, once: bool = True, number: int = 3) -> Table:
    """Add a table to the main graph, filled by CALL_ONCE or in place."""
    if once:
        setup = model.model.subgraph(f"set up {number}")
        Table(setup, keys, values, number).fill()
        model.graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": setup.index})
    result = Table(model.graph, keys, values, number)
    if not once:
        result.fill()
    return result


def default_of(model: Net, values: Array, running: bool = False) -> TensorRef:
    kind = "string" if values.dtype == object else "int64"
    if running:
        return model.add_operand(Spec((1,), kind, name="default"))
    missing = np.array(b"missing", object) if kind == "string" else np.array(-1, np.int64)
    return model.add_operand(Spec((), kind, value=missing))


def keys_of(model: Net, keys: Array) -> TensorRef:
    return model.add_operand(Spec((2, 3, 2), "string" if keys.dtype == object else "int64", name="wanted"))


def lookup_case(keys: Array, values: Array, once: bool = True, running: bool = False) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        filled = table(model, keys, values, once)
        model.output(filled.find(model, keys_of(model, keys), default_of(model, values, running)))

    return build


def import_twice(keys: Array, values: Array) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        filled = table(model, keys, values)
        filled.values = values[::-1].copy()
        filled.fill()
        model.output(filled.find(model, keys_of(model, keys), default_of(model, values)))

    return build


def two_tables(keys: Array, values: Array) -> Callable[[Net], None]:
    def build(model: Net) -> None:
        first, second = (
            table(model, keys, numbers, number=k) for k, numbers in ((3, values), (5, values[::-1].copy()))
        )
        x, default = keys_of(model, keys), default_of(model, values)
        model.output(first.find(model, x, default), second.find(model, x, default))

    return build


def table_size(keys: Array, values: Array) -> Callable[[Net], None]:
    """Return a model of the table's size plus a graph input, so that LiteRT has an operator to run."""

    def build(model: Net) -> None:
        size = model.call("HASHTABLE_SIZE", [table(model, keys, values).handle], Spec((1,), "int64"))
        model.output(model.call("ADD", [size, tensor(3, dtype="int64")], Spec((3,), "int64")))

    return build


def empty_table(model: Net) -> None:
    empty = Table(model.graph, TEXTS, NUMBERS)
    model.output(empty.find(model, keys_of(model, TEXTS), default_of(model, NUMBERS)))
