"""Loops, lowered to ONNX Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.api import Context, Effects, Raw, State, SubgraphBoundary, Tensor, Terminate, Value, handler
from op_handlers.kernels.counted_loops import CountedLoop

BRANCHING = ("WHILE", "IF", "STABLEHLO_CASE")


@handler(
    "WHILE",
    max_version=1,
    layout=Terminate(),
    boundary=SubgraphBoundary(loops=True),
    quantization=Raw(),
    subgraphs=("cond_subgraph_index", "body_subgraph_index"),
    effects=Effects(),
)
def while_loop(ctx: Context, *inputs: Value) -> list[Value]:
    """Emit Loop.

    Values that the body does not change are captured. Rows that the body writes in order become scan outputs.

    The condition is evaluated before the first step and after each step; it is omitted if it only counts steps. A
    condition with branches or loops is emitted once, because two copies at every level of nested loops would
    multiply.
    """
    return LoopBuilder(ctx, inputs).emit()


class LoopBuilder:
    """Builder of the Loop of one WHILE.

    ``trips``: the number of steps, or the tensor that holds it; None if the condition decides. ``rows``: slot of
    an array -> the body's tensor that holds the row to write. ``counters``: slot of a counter -> its initial value, if the
    steps are counted. ``carried``: slots of all other values that change. ``tests_once``: True if the condition is
    emitted in the body only.
    """

    def __init__(self, ctx: Context, inputs: Sequence[Value]) -> None:
        self.ctx, self.inputs = ctx, inputs
        self.cond, self.body = ctx.options.cond_subgraph_index, ctx.options.body_subgraph_index
        subgraphs = [ctx.subgraph(index) for index in (self.cond, self.body, ctx.op.subgraph)]
        self.loop = CountedLoop(ctx.op, *subgraphs)
        self.trips, self.states = self.loop.trip_count(), ctx.states(self.cond, self.body)
        has_branches = any(op.code in BRANCHING for op in self.loop.cond.operators)
        self.tests_once = self.trips is None and not self.loop.overwritten_slots() and has_branches
        self.rows = {} if self.tests_once else self.loop.rows()
        self.counters = {} if self.trips is None else self.loop.counters
        unchanged_slots = {*self.loop.forwarded, *self.counters, *self.rows}
        self.carried = [k for k in range(len(inputs)) if k not in unchanged_slots]
        self.body_results = [*(self.loop.body.outputs[k] for k in self.carried), *self.rows.values()]

    def emit(self) -> list[Value]:
        """Emit the Loop, and return the result of each slot."""
        ops, has_first_test = self.ctx.ops, self.trips is None and not self.tests_once
        initial_condition = self.emit_condition(self.inputs) if has_first_test else np.asarray(True)
        initial_values = [*(self.inputs[k] for k in self.carried), *state_values(self.states)]
        loop_body, output_count = (
            self.ctx.graph(self.emit_step, self.parameters()),
            len(initial_values) + len(self.rows),
        )
        limit = None if self.trips is None else runtime_trip_count(self.ctx, self.loop, self.trips, self.inputs)
        results: Sequence[Value] = (
            ops.Loop(limit, initial_condition, *initial_values, body=loop_body, outputs=output_count)
            if output_count
            else ()
        )
        set_states(self.states, results[len(self.carried) : len(initial_values)])
        results_by_slot = dict(zip(self.carried, results, strict=False))
        if limit is not None:
            results_by_slot |= self.counter_values(limit)
        for (k, row), value in zip(self.rows.items(), results[len(initial_values) :], strict=True):
            writes_all_rows = self.trips is not None and self.loop.has_row_per_step(k, self.trips)
            initial = None if writes_all_rows else self.inputs[k]
            results_by_slot[k] = assemble_array(self.ctx, self.loop.body.outputs, k, row, value, initial)
        return [results_by_slot.get(k, value) for k, value in enumerate(self.inputs)]

    def parameters(self) -> list[tuple[str, str, tuple[int, ...] | None]]:
        """Return name, dtype and shape of each parameter of the body."""
        body_inputs = self.loop.body.inputs
        return [
            ("step", "int64", ()),
            ("go_on", "bool", ()),
            *((f"loop:{body_inputs[k].name}", self.ctx.op[k].dtype, None) for k in self.carried),
            *((f"loop:{state.name}", state.dtype, None) for state in self.states),
        ]

    def emit_step(self, count: Value, go_on: Value, *values: Value) -> list[Value]:
        """Emit one step; return the next condition, carried values, states and rows."""
        carried_values = values[: len(self.carried)]
        set_states(self.states, values[len(self.carried) :])
        operands = self.operands(count, carried_values)
        if self.tests_once:
            go_on = self.emit_condition(operands)
            unchanged = [*carried_values, *state_values(self.states)]
            return [go_on, *run_if(self.ctx, go_on, lambda: self.emit_body(operands), unchanged)]
        results = self.ctx.inline(self.body, operands, self.body_results)
        next_carried, rows = results[: len(self.carried)], results[len(self.carried) :]
        if self.trips is None:
            go_on = self.emit_condition(self.operands(count, next_carried))
        return [go_on, *self.overwrite(next_carried, count), *state_values(self.states), *rows]

    def emit_body(self, operands: Sequence[Value | None]) -> list[Value]:
        """Emit the body; return the carried values and states after it."""
        return [*self.ctx.inline(self.body, operands, self.body_results), *state_values(self.states)]

    def emit_condition(self, operands: Sequence[Value | None]) -> Value:
        return self.ctx.ops.Reshape(self.ctx.inline(self.cond, operands)[0], np.zeros(0, np.int64))

    def operands(self, count: Value, carried_values: Sequence[Value]) -> list[Value | None]:
        """Return all operands of a step: carried values, counters and captured values."""
        operands_by_slot: dict[int, Value | None] = dict.fromkeys(self.rows)
        operands_by_slot.update(self.counter_values(count))
        operands_by_slot.update(zip(self.carried, carried_values, strict=True))
        return [operands_by_slot.get(k, value) for k, value in enumerate(self.inputs)]

    def counter_values(self, count: Value | np.int64) -> dict[int, Value]:
        """Return slot -> value of the counter after ``count`` steps."""
        return {k: counter_value(self.ctx, k, count, initial_count) for k, initial_count in self.counters.items()}

    def overwrite(self, carried_values: Sequence[Value], count: Value) -> list[Value]:
        """Return the carried values, with values copied from other slots."""
        next_values = dict(zip(self.carried, carried_values, strict=True))
        for slot, earlier_slot in self.loop.overwritten_slots().items():
            if earlier_slot in next_values:
                next_values[slot] = next_values[earlier_slot]
            else:
                next_count = self.ctx.ops.Add(count, np.int64(1))
                next_values[slot] = counter_value(self.ctx, earlier_slot, next_count, self.counters[earlier_slot])
        return [*next_values.values()]


def run_if(
    ctx: Context, go_on: Value, step: Callable[[], Sequence[Value]], unchanged: Sequence[Value]
) -> Sequence[Value]:
    """Emit an If that runs the step if ``go_on`` is true, else returns ``unchanged``."""
    return ctx.ops.If(
        go_on, then_branch=ctx.graph(step), else_branch=ctx.graph(lambda: unchanged), outputs=len(unchanged)
    )


def state_values(states: Sequence[State]) -> list[Value]:
    return [state.get() for state in states]


def set_states(states: Sequence[State], values: Sequence[Value]) -> None:
    for state, value in zip(states, values, strict=True):
        state.set(value)


def runtime_trip_count(
    ctx: Context, loop: CountedLoop, trips: int | Tensor, inputs: Sequence[Value]
) -> Value | np.int64:
    """Return the trip count of a loop, at least 0."""
    if isinstance(trips, int):
        return np.int64(max(trips, 0))
    trip_count = ctx.ops.Reshape(inputs[loop.trip_count_slot(trips)], np.zeros(0, np.int64))
    return ctx.ops.Max(ctx.ops.Cast(trip_count, to="int64"), np.int64(0))


def counter_value(ctx: Context, slot: int, steps: Value | np.int64, initial_count: int) -> Value:
    """Return a counter's value after ``steps`` iterations."""
    dtype = ctx.op[slot].dtype
    if isinstance(steps, np.int64):
        return ctx.constant_value(np.asarray(steps + initial_count, dtype))
    value = ctx.ops.Cast(steps, to=dtype)
    return ctx.ops.Add(value, ctx.scalar(initial_count, slot)) if initial_count else value


def assemble_array(
    ctx: Context, results: Sequence[Tensor], slot: int, row: Tensor, rows: Value, initial: Value | None
) -> Value:
    """Return an array whose first rows were written by a loop, in planned layout.

    ``results``: the outputs of the body. ``slot``: the slot of the array. ``row``: the body's tensor of one row.
    ``initial``: the array before the loop; None if the loop wrote all rows.
    """
    ops = ctx.ops
    if row.rank == ctx.op[slot].rank:
        rows = ops.Squeeze(rows, [1])
    result_index = next((j for j, tensor in enumerate(results) if tensor is row), None)
    stacked_axes = [
        0,
        *(axis + 1 for axis in (range(ctx.op[slot].rank - 1) if result_index is None else ctx.perm(~result_index))),
    ]
    perm = [stacked_axes.index(axis) for axis in ctx.perm(slot)]
    rows = rows if perm == sorted(perm) else ops.Transpose(rows, perm=perm)
    if initial is None:
        return rows
    row_axis = ctx.axis(0, slot)
    row_count = ops.Slice(ops.Shape(rows), [row_axis], [row_axis + 1])
    return ops.Concat(rows, ops.Slice(initial, row_count, [2**31 - 1], [row_axis]), axis=row_axis)
