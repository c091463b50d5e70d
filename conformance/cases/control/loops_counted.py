"""WHILE that counts and writes one row of an array in each iteration.

TensorFlow converts TensorArray, tf.map_fn and tf.scan to such loops.
"""

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
class RowLoop:
    """Loop that computes the running maximum of the rows of x.

    Some field values make a similar loop that must not be replaced.
    """

    dtype: str = "float32"
    time_steps: int | None = None  # None for a graph input ``n``
    second_counter_start: int = 0  # initial value of the second counter
    dynamic_length: bool = False  # x and the array have a dynamic number of rows
    exits_at_bound: bool = False  # the loop ends when the maximum reaches a bound
    reads_previous_row: bool = False  # the array is read at row ``t`` before it is written
    reversed_order: bool = False  # the last row is written first
    in_condition: bool = False  # the condition also reads the array
    flattened_rows: bool = True  # the written row is the result of a RESHAPE; otherwise of MINIMUM
    updates_array: bool = False  # the body changes the whole array
    delayed_counter: bool = False  # the second counter gets the value of the first
    row_from_unpack: bool = False  # the row is one of two results of UNPACK

    @property
    def row(self) -> Spec:
        return tensor(1, SIZE, dtype=self.dtype)

    @property
    def flat_row(self) -> Spec:
        return replace(self.row, shape=(SIZE,))

    @property
    def array(self) -> Spec:
        return replace(self.row, shape=(None if self.dynamic_length else ROWS, SIZE))

    @property
    def carried_specs(self) -> list[Spec]:
        """Return the specs of two counters, a running maximum, the array, n, and x."""
        counter = Spec((), "int32")
        return [counter, counter, self.flat_row, self.array, counter, self.array]

    def build(self, model: Net) -> None:
        x = model.input(replace(self.array, name="x"))
        n = self._length(model.graph, x) if self.dynamic_length else model.input(Spec((), "int32", name="n"))
        counters = [model.add_operand(constant(np.array(start, np.int32))) for start in (0, self.second_counter_start)]
        initial_maximum = model.add_operand(replace(self.flat_row, value=random_array(SIZE, dtype=self.dtype)))
        array = self._zero_rows(model.graph, n) if self.dynamic_length else model.add_operand(self._initial_array())
        cond, body = model.model.subgraph("cond"), model.model.subgraph("body")
        self._condition(cond, [add_input(cond, k, spec) for k, spec in enumerate(self.carried_specs)])
        self._body(body, [add_input(body, k, spec) for k, spec in enumerate(self.carried_specs)])
        results = [model.result(spec) for spec in self.carried_specs]
        indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": body.index}
        model.graph.operator("WHILE", [*counters, initial_maximum, array, n, x], results, indices)
        model.output(*results[:4])

    def _initial_array(self) -> Spec:
        return replace(self.array, value=random_array(ROWS, SIZE, dtype=self.dtype, seed="before"))

    def _length(self, graph: GraphBuilder, x: TensorRef) -> TensorRef:
        sizes = add_operator(graph, "SHAPE", [x], Spec((2,), "int32"), out_type="INT32")
        bounds = [int32_constant(graph, [value]) for value in (0, 1, 1)]
        return add_operator(graph, "STRIDED_SLICE", [sizes, *bounds], Spec((), "int32"), shrink_axis_mask=1)

    def _zero_rows(self, graph: GraphBuilder, n: TensorRef) -> TensorRef:
        rows = add_operator(graph, "RESHAPE", [n, int32_constant(graph, [1])], Spec((1,), "int32"))
        sizes = add_operator(graph, "CONCATENATION", [rows, int32_constant(graph, [SIZE])], Spec((2,), "int32"))
        return add_operator(graph, "FILL", [sizes, graph.constant("zero", np.array(0, np.float32))], self.array)

    def _condition(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        flag = Spec((), "bool")
        *counters, running_maximum, array, n, _ = values
        bound = n if self.time_steps is None else int32_constant(graph, self.time_steps)
        checks = [
            add_operator(graph, "LESS", [counter, bound], flag)
            for counter in (counters[:1] if self.delayed_counter else counters)
        ]
        if self.exits_at_bound:
            maximum = add_operator(
                graph, "REDUCE_MAX", [running_maximum, int32_constant(graph, [0])], Spec((), self.dtype)
            )
            checks.append(
                add_operator(graph, "LESS", [maximum, graph.constant("most", np.array(2.5, np.float32))], flag)
            )
        if self.in_condition:
            maximum = add_operator(graph, "REDUCE_MAX", [array, int32_constant(graph, [0, 1])], Spec((), self.dtype))
            checks.append(
                add_operator(graph, "LESS", [maximum, graph.constant("top", np.array(2.5, np.float32))], flag)
            )
        while len(checks) > 1:
            checks = [add_operator(graph, "LOGICAL_AND", checks[:2], flag), *checks[2:]]
        graph.output(checks[0])

    def _body(self, graph: GraphBuilder, values: list[TensorRef]) -> None:
        t, second_counter, running_maximum, array, n, x = values
        next_counters = [
            add_operator(graph, "ADD", [counter, int32_constant(graph, 1)], Spec((), "int32"))
            for counter in (t, second_counter)
        ]
        flat = self.flat_row
        row = add_operator(graph, "GATHER", [x, t], flat)
        running_maximum = add_operator(graph, "MAXIMUM", [running_maximum, row], flat)
        if self.reads_previous_row:
            row = add_operator(graph, "MAXIMUM", [add_operator(graph, "GATHER", [array, t], flat), row], flat)
        maximum = add_operator(graph, "MAXIMUM", [row, running_maximum], flat)
        if self.row_from_unpack:
            pair = replace(self.row, shape=(2, SIZE))
            row = add_operator(graph, "RESHAPE", [maximum, int32_constant(graph, [1, SIZE])], self.row)
            repeated_rows = add_operator(graph, "TILE", [row, int32_constant(graph, [2, 1])], pair)
            maximum, unused = (add_result(graph, name, flat) for name in ("one", "other"))
            graph.operator("UNPACK", [repeated_rows], [maximum, unused], {"num": 2})
        written_row = add_operator(graph, "RESHAPE", [maximum, int32_constant(graph, [1, SIZE])], self.row)
        if not self.flattened_rows:
            written_row = add_operator(graph, "MINIMUM", [written_row, written_row], self.row)
        row_index, next_index = t, next_counters[0]
        if self.reversed_order:
            row_index = add_operator(graph, "SUB", [int32_constant(graph, ROWS - 1), t], Spec((), "int32"))
            next_index = add_operator(graph, "ADD", [row_index, int32_constant(graph, 1)], Spec((), "int32"))
        new_array = self._replace_row(graph, array, written_row, row_index, next_index)
        if self.updates_array:
            new_array = add_operator(graph, "MAXIMUM", [new_array, array], self.array)
        graph.output(
            next_counters[0], t if self.delayed_counter else next_counters[1], running_maximum, new_array, n, x
        )

    def _replace_row(
        self, graph: GraphBuilder, array: TensorRef, row: TensorRef, row_index: TensorRef, next_index: TensorRef
    ) -> TensorRef:
        """Return the rows before the written row, the written row, and the rows after it."""
        dynamic_rows = replace(self.row, shape=(None, SIZE))
        flat, pair = Spec((1,), "int32"), Spec((2,), "int32")
        head_sizes = add_operator(graph, "RESHAPE", [row_index, int32_constant(graph, [1])], flat)
        head_sizes = add_operator(graph, "CONCATENATION", [head_sizes, int32_constant(graph, [-1])], pair)
        tail_begin = add_operator(graph, "RESHAPE", [next_index, int32_constant(graph, [1])], flat)
        tail_begin = add_operator(graph, "CONCATENATION", [tail_begin, int32_constant(graph, [0])], pair)
        head = add_operator(graph, "SLICE", [array, int32_constant(graph, [0, 0]), head_sizes], dynamic_rows)
        tail = add_operator(graph, "SLICE", [array, tail_begin, int32_constant(graph, [-1, -1])], dynamic_rows)
        return add_operator(graph, "CONCATENATION", [head, row, tail], self.array, axis=0)


def add_result(graph: GraphBuilder, name: str, spec: Spec) -> TensorRef:
    return graph.tensor(name, spec.shape, spec.dtype, quantization=spec.quantization)


def add_operator(graph: GraphBuilder, code: str, inputs: list[TensorRef], spec: Spec, **options: Any) -> TensorRef:
    y = add_result(graph, f"{code}{len(graph.tensors)}", spec)
    graph.operator(code, inputs, [y], options)
    return y


def int32_constant(graph: GraphBuilder, value: int | list[int]) -> TensorRef:
    return graph.constant(f"k{len(graph.tensors)}", np.asarray(value, np.int32))


def add_input(graph: GraphBuilder, k: int, spec: Spec) -> TensorRef:
    return graph.input(f"v{k}", spec.shape, spec.dtype, quantization=spec.quantization)


TIME_STEP_RUNS = [{"n": np.array(n, np.int32)} for n in (ROWS, 2, 0, 1)]

STACKED: dict[str, RowLoop] = {
    "all time steps": RowLoop(time_steps=ROWS),
    "first time steps": RowLoop(time_steps=2),
    "no time step": RowLoop(time_steps=0),
    "number of time steps at runtime": RowLoop(),
    "dynamic length": RowLoop(dynamic_length=True),
    "counter that starts at 1": RowLoop(time_steps=ROWS, second_counter_start=1),
    "delayed second counter": RowLoop(delayed_counter=True),
    "exit at a bound": RowLoop(exits_at_bound=True),
    "no flattened rows": RowLoop(flattened_rows=False),
    "row as one of two results": RowLoop(row_from_unpack=True),
    **{f"rows of {dtype}": RowLoop(dtype) for dtype in ("int8", "uint8", "int32")},
}
"""Loops whose array is stacked from the rows of all iterations."""

CARRIED: dict[str, RowLoop] = {
    "rows read in the body": RowLoop(reads_previous_row=True),
    "reverse order": RowLoop(time_steps=ROWS, reversed_order=True),
    "array read in the condition": RowLoop(in_condition=True),
    "array updated as a whole": RowLoop(updates_array=True),
}
"""Loops that carry the whole array, because they use the array for more than writing one row per iteration."""


def cases() -> Iterator[Case]:
    for name, row_loop in {**STACKED, **CARRIED}.items():
        input_arrays: list[dict[str, Array]] | None = TIME_STEP_RUNS if not row_loop.dynamic_length else None
        yield net("WHILE", f"counted, {name}", row_loop.build, dtype=row_loop.dtype, input_arrays=input_arrays)
