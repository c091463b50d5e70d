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
    """Emit Loop. Values that the body only forwards are captured; rows that it writes in order are stacked by the Loop.

    The condition is evaluated before the first step and after each step. A condition that only counts is omitted. One
    with branches or loops is emitted once; otherwise nested conditions would double at each level.
    """
    cond, body = ctx.options.cond_subgraph_index, ctx.options.body_subgraph_index
    loop = CountedLoop(ctx.op, ctx.subgraph(cond), ctx.subgraph(body), ctx.subgraph(ctx.op.subgraph))
    trips, states = loop.trip_count(), ctx.states(cond, body)
    once = trips is None and not loop.overwritten_slots() and any(op.code in BRANCHING for op in loop.cond.operators)
    rows = {} if once else loop.rows()
    counters = {} if trips is None else loop.counters
    carried = [k for k in range(len(inputs)) if k not in (*loop.forwarded, *counters, *rows)]
    wanted = [*(loop.graph.outputs[k] for k in carried), *rows.values()]
    n = len(carried)

    def variables(count: Value, values: Sequence[Value]) -> list[Value | None]:
        """Return all operands of a step: those carried and counted, the others captured."""
        by_slot: dict[int, Value | None] = dict.fromkeys(rows)
        by_slot.update({k: final_counter(ctx, k, count, first) for k, first in counters.items()})
        by_slot.update(zip(carried, values, strict=True))
        return [by_slot.get(k, value) for k, value in enumerate(inputs)]

    def condition(values: Sequence[Value | None]) -> Value:
        return ctx.ops.Reshape(ctx.inline(cond, values)[0], np.zeros(0, np.int64))

    def step(count: Value, go_on: Value, *values: Value) -> list[Value]:
        set_states(states, values[n:])
        operands = variables(count, values[:n])
        if once:
            go_on = condition(operands)
            kept = [*values[:n], *state_values(states)]
            return [
                go_on,
                *run_if(ctx, go_on, lambda: [*ctx.inline(body, operands, wanted), *state_values(states)], kept),
            ]
        after = ctx.inline(body, operands, wanted)
        if trips is None:
            go_on = condition(variables(count, after[:n]))
        following = dict(zip(carried, after[:n], strict=True))
        for k, j in loop.overwritten_slots().items():
            next_count = None if j in following else final_counter(ctx, j, ctx.ops.Add(count, np.int64(1)), counters[j])
            following[k] = next_count or following[j]
        return [go_on, *following.values(), *state_values(states), *after[n:]]

    start = condition(inputs) if trips is None and not once else np.asarray(True)
    initial = [*(inputs[k] for k in carried), *state_values(states)]
    types = [
        ("step", "int64", ()),
        ("go_on", "bool", ()),
        *((f"loop:{loop.graph.inputs[k].name}", ctx.op[k].dtype, None) for k in carried),
        *((f"loop:{state.name}", state.dtype, None) for state in states),
    ]
    inner, count = ctx.graph(step, types), len(initial) + len(rows)
    limit = None if trips is None else runtime_trip_count(ctx, loop, trips, inputs)
    results = ctx.ops.Loop(limit, start, *initial, body=inner, outputs=count) if count else ()
    set_states(states, results[n : len(initial)])
    results_by_slot = dict(zip(carried, results, strict=False))
    if limit is not None:
        results_by_slot |= {k: final_counter(ctx, k, limit, first) for k, first in counters.items()}
    for (k, row), value in zip(rows.items(), results[len(initial) :], strict=True):
        filled = trips is not None and loop.has_row_per_step(k, trips)
        results_by_slot[k] = assemble_array(ctx, loop.graph.outputs, k, row, value, None if filled else inputs[k])
    return [results_by_slot.get(k, value) for k, value in enumerate(inputs)]


def run_if(ctx: Context, go_on: Value, step: Callable[[], Sequence[Value]], kept: Sequence[Value]) -> Sequence[Value]:
    """Emit a step if the condition holds, else return the values unchanged."""
    return ctx.ops.If(go_on, then_branch=ctx.graph(step), else_branch=ctx.graph(lambda: kept), outputs=len(kept))


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
    number = ctx.ops.Reshape(inputs[loop.trip_count_slot(trips)], np.zeros(0, np.int64))
    return ctx.ops.Max(ctx.ops.Cast(number, to="int64"), np.int64(0))


def final_counter(ctx: Context, k: int, steps: Value | np.int64, first: int) -> Value:
    """Return a counter's value after ``steps`` iterations."""
    dtype = ctx.op[k].dtype
    if isinstance(steps, np.int64):
        return ctx.constant_value(np.asarray(steps + first, dtype))
    value = ctx.ops.Cast(steps, to=dtype)
    return ctx.ops.Add(value, ctx.scalar(first, k)) if first else value


def assemble_array(
    ctx: Context, results: Sequence[Tensor], k: int, row: Tensor, rows: Value, initial: Value | None
) -> Value:
    """Return an array whose first rows were written (all if ``initial`` is None), in its planned layout.

    ``row``: one row, an output of the body among ``results``.
    """
    ops = ctx.ops
    if row.rank == ctx.op[k].rank:
        rows = ops.Squeeze(rows, [1])
    result = next((j for j, tensor in enumerate(results) if tensor is row), None)
    stacked = [0, *(axis + 1 for axis in (range(ctx.op[k].rank - 1) if result is None else ctx.perm(~result)))]
    perm = [stacked.index(axis) for axis in ctx.perm(k)]
    rows = rows if perm == sorted(perm) else ops.Transpose(rows, perm=perm)
    if initial is None:
        return rows
    along = ctx.axis(0, k)
    written = ops.Slice(ops.Shape(rows), [along], [along + 1])
    return ops.Concat(rows, ops.Slice(initial, written, [2**31 - 1], [along]), axis=along)
