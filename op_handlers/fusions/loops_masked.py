"""Loops that are recurrent layers in which a mask tells the time steps that change nothing, as Keras leaves them.

A time step that is masked hands on its states and what was shown before. The steps that are not masked are one sequence, which is
one node; each step shows what the last of them before it gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Match,
    NotQuantizable,
    Tensor,
    Terminate,
    Value,
    fusion,
)
from op_handlers.fusions.loops import CARRIED, LOOPS, Stage, cells, counted, is_row, node, sequences, start
from op_handlers.kernels.counted_loops import CountedLoop

Kinds = Mapping[str, Callable[[int], Value]]
"""The value of a slot by what it is."""


@dataclass(frozen=True)
class Masked:
    """A cell, the slots of its sequence and its mask, and that of what was shown last.

    ``results``: of each slot ("count", number), ("carried", slot), ("state", which of the cell's), "shown", "last" (with an
    axis of size 1 in front) or "every" (what each time step shows).
    """

    stage: Stage
    sequence: int
    mask: int
    shown: int
    results: tuple[tuple[str, int], ...]


def layer(match: Match) -> Mapping[str, Any] | Decline:
    """What the loop is, where it is exactly a layer under a mask; nobody expects it of others."""
    loop = counted(match)
    recognized = masked(loop)
    return Decline("") if recognized is None else {"layer": recognized}


def masked(loop: CountedLoop) -> Masked | None:
    """The layer that a loop over one sequence, of a known number of time steps, is."""
    trips = loop.trip_count()
    if not isinstance(trips, int) or trips < 1:
        return None
    for op in loop.graph.operators:
        slot = loop.read_slot(op)
        if slot is None or loop.op[slot].dtype != "bool" or loop.op[slot].dims != (trips, 1, 1):
            continue
        after = {k: new for k in range(len(loop.graph.outputs)) if (new := chosen(loop, k, op[~0])) is not None}
        for sequence, x in sequences(loop, trips):
            stage = next(cells(loop, x, after), None)
            if stage is None:
                continue
            others = [k for k in after if k not in stage.states and after[k] is after[stage.states[0]]]
            for shown in others[:1]:
                results = [result(loop, k, trips, stage, shown) for k in range(len(loop.graph.outputs))]
                told = tuple(one for one in results if one is not None)
                if len(told) == len(results):
                    return Masked(stage, sequence, slot, shown, told)
    return None


def chosen(loop: CountedLoop, k: int, mask: Tensor) -> Tensor | None:
    """What a slot is given where the mask says so, and is left as it was elsewhere."""
    tensor = loop.graph.outputs[k]
    op = loop.body.producer(tensor, "SELECT_V2") or loop.body.producer(tensor, "SELECT")
    return op[1] if op is not None and op[0] is mask and op[2] is loop.graph.inputs[k] else None


def result(loop: CountedLoop, k: int, trips: int, stage: Stage, shown: int) -> tuple[str, int] | None:
    """What the loop gives in a slot."""
    if k in loop.counters:
        return "count", loop.counters[k] + trips
    if k in loop.forwarded:
        return "carried", k
    if k in stage.states:
        return "state", stage.states.index(k)
    if k == shown:
        return "shown", k
    seen = loop.graph.outputs[shown]
    if is_row(loop, loop.graph.outputs[k], seen):
        return "last", k
    row = loop.written_row(k) if loop.has_row_per_step(k, trips) else None
    return ("every", k) if row is not None and is_row(loop, row, seen) else None


@fusion(
    "WHILE_RECURRENT_MASKED",
    pattern=LOOPS,
    inputs=CARRIED,
    where=layer,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent_masked(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """Compress, GRU, LSTM or RNN, and Gather; an If around where every time step may be masked."""
    ops, of = ctx.ops, ctx.options.layer
    mask = ops.Reshape(carried[of.mask], [-1])
    steps = ops.CumSum(ops.Cast(mask, to="int64"), np.int64(0))
    before = ops.Unsqueeze(carried[of.shown], [0])
    computed = {k: kind for k, (kind, _) in enumerate(of.results) if kind not in ("carried", "count") and ctx.wanted(k)}

    def through() -> list[Value]:
        starts = [start(ctx, carried, [slot]) for slot in of.stage.states]
        y, *states = node(ctx, [of.stage.cell], ops.Compress(carried[of.sequence], mask, axis=0), starts)
        kinds: Kinds = {
            "state": lambda k: ops.Squeeze(states[of.results[k][1]], [0]),
            "shown": lambda _: ops.Squeeze(states[0], [0]),
            "last": lambda _: states[0],
            "every": lambda _: ops.Gather(ops.Concat(before, ops.Squeeze(y, [1]), axis=0), steps, axis=0),
        }
        return [kinds[kind](k) for k, kind in computed.items()]

    def nothing() -> list[Value]:
        every = np.array([ctx.op[of.mask].dims[0], 1, 1], np.int64)
        kinds: Kinds = {
            "state": lambda k: carried[of.stage.states[of.results[k][1]]],
            "shown": lambda _: carried[of.shown],
            "last": lambda _: before,
            "every": lambda _: ops.Expand(before, every),
        }
        return [kinds[kind](k) for k, kind in computed.items()]

    results = dict.fromkeys(range(len(of.results)), None) | {
        k: carried[slot] for k, (kind, slot) in enumerate(of.results) if kind == "carried"
    }
    results |= {
        k: ops.Identity(np.asarray(number, ctx.op[~k].dtype))
        for k, (kind, number) in enumerate(of.results)
        if kind == "count" and ctx.wanted(k)
    }
    if computed:
        some = ops.Squeeze(ops.ReduceMax(ops.Cast(mask, to="int32"), keepdims=0))
        branches = ops.If(
            ops.Cast(some, to="bool"),
            then_branch=ctx.graph(through),
            else_branch=ctx.graph(nothing),
            outputs=len(computed),
        )
        results.update(zip(computed, branches, strict=True))
    return tuple(results[k] for k in range(len(of.results)))
