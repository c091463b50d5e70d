"""WHILE that counts and writes one array row per iteration, as TensorArray, tf.map_fn and tf.scan are converted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, TensorRef
from conformance.case import Case
from conformance.models import Net, Spec, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array

ROWS, SIZE = 5, 3


@dataclass(frozen=True)
class Rows:
    """Loop that computes row ``t`` of an array from row ``t`` of x, with variations and near misses.

    ``trips``: time steps, by default the operand ``n``. ``first``: initial value of a second counter. ``open``: x and the array
    have a dynamic number of rows. ``exits``: the loop ends once a sum reaches a bound. ``reads``: each row is added to the
    previous one. ``back``: the last row is written first. ``in_condition``: the condition also reads the array. ``flat``: a row has
    no leading unit axis before it is reshaped. ``updated``: the whole array is changed. ``delayed``: the second counter gets the
    value of the first. ``parts``: the row is one of several results.
    """

    dtype: str = "float32"
    trips: int | None = None
    first: int = 0
    open: bool = False
    exits: bool = False
    reads: bool = False
    back: bool = False
    in_condition: bool = False
    flat: bool = True
    updated: bool = False
    delayed: bool = False
    parts: bool = False

    @property
    def row(self) -> Spec:
        return tensor(1, SIZE, dtype=self.dtype)

    @property
    def kinds(self) -> list[Spec]:
        """Return the specs that the loop carries: two counters, a sum, the array, the number of time steps, x."""
        whole = replace(self.row, shape=(None if self.open else ROWS, SIZE))
        number = Spec((), "int32")
        return [number, number, replace(self.row, shape=(SIZE,)), whole, number, whole]

    def build(self, model: Net) -> None:
        x = model.input(replace(self.kinds[5], name="x"))
        n = self._length(model.graph, x) if self.open else model.input(Spec((), "int32", name="n"))
        counters = [model.add_operand(constant(np.array(start, np.int32))) for start in (0, self.first)]
        start = model.add_operand(replace(self.kinds[2], value=random_array(SIZE, dtype=self.dtype)))
        array = self._zero_rows(model.graph, n) if self.open else model.add_operand(self._before())
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        self._condition(cond, [input_of(cond, k, spec) for k, spec in enumerate(self.kinds)])
        self._body(body, [input_of(body, k, spec) for k, spec in enumerate(self.kinds)])
        results = [model.result(spec) for spec in self.kinds]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", [*counters, start, array, n, x], results, indices)
        model.output(*results[:4])

    def _before(self) -> Spec:
        return replace(self.kinds[3], value=random_array(ROWS, SIZE, dtype=self.dtype, seed="before"))

    def _length(self, graph: GraphBuilder, x: TensorRef) -> TensorRef:
        sizes = call(graph, "SHAPE", [x], Spec((2,), "int32"), out_type="INT32")
        bounds = [number(graph, [value]) for value in (0, 1, 1)]
        return call(graph, "STRIDED_SLICE", [sizes, *bounds], Spec((), "int32"), shrink_axis_mask=1)

    def _zero_rows(self, graph: GraphBuilder, n: TensorRef) -> TensorRef:
        rows = call(graph, "RESHAPE", [n, number(graph, [1])], Spec((1,), "int32"))
        sizes = call(graph, "CONCATENATION", [rows, number(graph, [SIZE])], Spec((2,), "int32"))
        return call(graph, "FILL", [sizes, graph.constant("zero", np.array(0, np.float32))], self.kinds[3])

    def _condition(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        flag = Spec((), "bool")
        bound = values[4] if self.trips is None else number(graph, self.trips)
        checks = [call(graph, "LESS", [values[k], bound], flag) for k in ((0,) if self.delayed else (0, 1))]
        if self.exits:
            most = call(graph, "REDUCE_MAX", [values[2], number(graph, [0])], Spec((), self.dtype))
            checks.append(call(graph, "LESS", [most, graph.constant("most", np.array(2.5, np.float32))], flag))
        if self.in_condition:
            most = call(graph, "REDUCE_MAX", [values[3], number(graph, [0, 1])], Spec((), self.dtype))
            checks.append(call(graph, "LESS", [most, graph.constant("top", np.array(2.5, np.float32))], flag))
        while len(checks) > 1:
            checks = [call(graph, "LOGICAL_AND", checks[:2], flag), *checks[2:]]
        graph.output(checks[0])

    def _body(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        t, other, total, array, n, x = values
        after = [call(graph, "ADD", [counter, number(graph, 1)], Spec((), "int32")) for counter in (t, other)]
        flat = self.kinds[2]
        row = call(graph, "GATHER", [x, t], flat)
        total = call(graph, "MAXIMUM", [total, row], flat)
        if self.reads:
            row = call(graph, "MAXIMUM", [call(graph, "GATHER", [array, t], flat), row], flat)
        most = call(graph, "MAXIMUM", [row, total], flat)
        if self.parts:
            pair = replace(self.row, shape=(2, SIZE))
            row = call(graph, "RESHAPE", [most, number(graph, [1, SIZE])], self.row)
            both = call(graph, "TILE", [row, number(graph, [2, 1])], pair)
            most, unused = (result(graph, name, flat) for name in ("one", "other"))
            graph.operator("UNPACK", [both], [most, unused], {"num": 2})
        written_row = call(graph, "RESHAPE", [most, number(graph, [1, SIZE])], self.row)
        if not self.flat:
            written_row = call(graph, "MINIMUM", [written_row, written_row], self.row)
        place, following = t, after[0]
        if self.back:
            place = call(graph, "SUB", [number(graph, ROWS - 1), t], Spec((), "int32"))
            following = call(graph, "ADD", [place, number(graph, 1)], Spec((), "int32"))
        whole = self._replace_row(graph, array, written_row, place, following)
        if self.updated:
            whole = call(graph, "MAXIMUM", [whole, array], self.kinds[3])
        graph.output(after[0], t if self.delayed else after[1], total, whole, n, x)

    def _replace_row(
        self, graph: GraphBuilder, array: TensorRef, row: TensorRef, place: TensorRef, following: TensorRef
    ) -> TensorRef:
        """Return the rows before the written one, the written one, and those after it."""
        several = replace(self.row, shape=(None, SIZE))
        flat, pair = Spec((1,), "int32"), Spec((2,), "int32")
        until = call(graph, "RESHAPE", [place, number(graph, [1])], flat)
        until = call(graph, "CONCATENATION", [until, number(graph, [-1])], pair)
        since = call(graph, "RESHAPE", [following, number(graph, [1])], flat)
        since = call(graph, "CONCATENATION", [since, number(graph, [0])], pair)
        head = call(graph, "SLICE", [array, number(graph, [0, 0]), until], several)
        tail = call(graph, "SLICE", [array, since, number(graph, [-1, -1])], several)
        return call(graph, "CONCATENATION", [head, row, tail], self.kinds[3], axis=0)


def result(graph: GraphBuilder, name: str, spec: Spec) -> TensorRef:
    return graph.tensor(name, spec.shape, spec.dtype, quantization=spec.quantization)


def call(graph: GraphBuilder, code: str, inputs: list[TensorRef], spec: Spec, **options: Any) -> TensorRef:
    y = result(graph, f"{code}{len(graph.tensors)}", spec)
    graph.operator(code, inputs, [y], options)
    return y


def number(graph: GraphBuilder, value: int | list[int]) -> TensorRef:
    return graph.constant(f"k{len(graph.tensors)}", np.asarray(value, np.int32))


def input_of(graph: GraphBuilder, k: int, spec: Spec) -> TensorRef:
    return graph.input(f"v{k}", spec.shape, spec.dtype, quantization=spec.quantization)


STEPS = [{"n": np.array(n, np.int32)} for n in (ROWS, 2, 0, 1)]

STACKED: dict[str, Rows] = {
    "all time steps": Rows(trips=ROWS),
    "first time steps": Rows(trips=2),
    "no time step": Rows(trips=0),
    "number of time steps at runtime": Rows(),
    "dynamic length": Rows(open=True),
    "counter that starts at 1": Rows(trips=ROWS, first=1),
    "delayed second counter": Rows(delayed=True),
    "exit at a bound": Rows(exits=True),
    "no flattened rows": Rows(flat=False),
    "row as one of two results": Rows(parts=True),
    **{f"rows of {dtype}": Rows(dtype) for dtype in ("int8", "uint8", "int32")},
}
CARRIED: dict[str, Rows] = {
    "rows read in the body": Rows(reads=True),
    "reverse order": Rows(trips=ROWS, back=True),
    "array read in the condition": Rows(in_condition=True),
    "array updated as a whole": Rows(updated=True),
}


def cases() -> Iterator[Case]:
    for name, rows in {**STACKED, **CARRIED}.items():
        given: list[dict[str, Array]] | None = STEPS if not rows.open else None
        yield net("WHILE", f"counted, {name}", rows.build, dtype=rows.dtype, input_arrays=given)
