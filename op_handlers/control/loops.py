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
    cond, body = ctx.options.cond_subgraph_index, ctx.options.body_subgraph_index
    loop = CountedLoop(ctx.op, ctx.subgraph(cond), ctx.subgraph(body), ctx.subgraph(ctx.op.subgraph))
    trips, states = loop.trip_count(), ctx.states(cond, body)
    emits_condition_once = (
        trips is None and not loop.overwritten_slots() and any(op.code in BRANCHING for op in loop.cond.operators)
    )
    rows = {} if emits_condition_once else loop.rows()
    counters = {} if trips is None else loop.counters
    carried = [k for k in range(len(inputs)) if k not in (*loop.forwarded, *counters, *rows)]
    body_results = [*(loop.body.outputs[k] for k in carried), *rows.values()]
    carried_count = len(carried)

    def step_operands(count: Value, values: Sequence[Value]) -> list[Value | None]:
        """Return all operands of a step: carried values, counters and captured values."""
        operands_by_slot: dict[int, Value | None] = dict.fromkeys(rows)
        operands_by_slot.update(
            {k: counter_value(ctx, k, count, initial_count) for k, initial_count in counters.items()}
        )
        operands_by_slot.update(zip(carried, values, strict=True))
        return [operands_by_slot.get(k, value) for k, value in enumerate(inputs)]

    def emit_condition(values: Sequence[Value | None]) -> Value:
        return ctx.ops.Reshape(ctx.inline(cond, values)[0], np.zeros(0, np.int64))

    def step(count: Value, go_on: Value, *values: Value) -> list[Value]:
        set_states(states, values[carried_count:])
        operands = step_operands(count, values[:carried_count])
        if emits_condition_once:
            go_on = emit_condition(operands)
            unchanged = [*values[:carried_count], *state_values(states)]
            return [
                go_on,
                *run_if(
                    ctx, go_on, lambda: [*ctx.inline(body, operands, body_results), *state_values(states)], unchanged
                ),
            ]
        step_results = ctx.inline(body, operands, body_results)
        if trips is None:
            go_on = emit_condition(step_operands(count, step_results[:carried_count]))
        next_values = dict(zip(carried, step_results[:carried_count], strict=True))
        for slot, earlier_slot in loop.overwritten_slots().items():
            if earlier_slot in next_values:
                next_values[slot] = next_values[earlier_slot]
            else:
                next_count = ctx.ops.Add(count, np.int64(1))
                next_values[slot] = counter_value(ctx, earlier_slot, next_count, counters[earlier_slot])
        return [go_on, *next_values.values(), *state_values(states), *step_results[carried_count:]]

    initial_condition = emit_condition(inputs) if trips is None and not emits_condition_once else np.asarray(True)
    initial_values = [*(inputs[k] for k in carried), *state_values(states)]
    parameters = [
        ("step", "int64", ()),
        ("go_on", "bool", ()),
        *((f"loop:{loop.body.inputs[k].name}", ctx.op[k].dtype, None) for k in carried),
        *((f"loop:{state.name}", state.dtype, None) for state in states),
    ]
    loop_body, output_count = ctx.graph(step, parameters), len(initial_values) + len(rows)
    limit = None if trips is None else runtime_trip_count(ctx, loop, trips, inputs)
    results = (
        ctx.ops.Loop(limit, initial_condition, *initial_values, body=loop_body, outputs=output_count)
        if output_count
        else ()
    )
    set_states(states, results[carried_count : len(initial_values)])
    results_by_slot = dict(zip(carried, results, strict=False))
    if limit is not None:
        results_by_slot |= {k: counter_value(ctx, k, limit, initial_count) for k, initial_count in counters.items()}
    for (k, row), value in zip(rows.items(), results[len(initial_values) :], strict=True):
        writes_all_rows = trips is not None and loop.has_row_per_step(k, trips)
        initial = None if writes_all_rows else inputs[k]
        results_by_slot[k] = assemble_array(ctx, loop.body.outputs, k, row, value, initial)
    return [results_by_slot.get(k, value) for k, value in enumerate(inputs)]


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
