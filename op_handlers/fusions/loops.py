"""Loops that spell out recurrent layers, as Keras 3 leaves them: a WHILE of GATHER, cells, and a write into an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
)
from op_handlers.kernels.counted_loops import CountedLoop
from op_handlers.kernels.recurrent import begun
from op_handlers.kernels.spelled_cells import Cell, Matrix

CARRIED = operands(" ".join(f"value{k}" for k in range(12)))
LOOPS = tuple(Call("WHILE", *CARRIED[:n]) for n in range(4, len(CARRIED) + 1))


@dataclass(frozen=True)
class Stage:
    """A cell, which sees the sequence or the outputs of the stage before, and its states' slots among the values carried."""

    cell: Cell
    states: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Stages one after the other, the slot of the sequence, and what each result is.

    ``results``: ("count", what a counter ends with), ("carried", slot), ("state", number of all stages' states), "every" (the
    outputs of all time steps) or "last" (the one of the last). ``trips``: the slot of how often it runs, where only that
    run tells.
    """

    stages: tuple[Stage, ...]
    sequence: int
    results: tuple[tuple[str, int], ...]
    trips: int | None


def layer(match: Match) -> Mapping[str, Any] | Decline:
    """What the loop is, where it is exactly a layer; nobody expects it of others."""
    op = match.calls[next(pattern for pattern in LOOPS if pattern in match.calls)]
    graphs, options = match.graphs, op.options
    cond, body = graphs[options.cond_subgraph_index], graphs[options.body_subgraph_index]
    recognized = recurrent(CountedLoop(op, cond, body, graphs[op.subgraph]))
    return Decline("") if recognized is None else {"layer": recognized}


def recurrent(loop: CountedLoop) -> Layer | None:
    """The layer that a loop is."""
    trips = loop.trips()
    if trips is None or (isinstance(trips, int) and trips < 1):
        return None
    for sequence, x in sequences(loop, trips):
        stages = stacked(loop, x)
        if stages:
            results = tuple(result(loop, k, trips, stages) for k in range(len(loop.graph.outputs)))
            if None not in results:
                slot = None if isinstance(trips, int) else loop.slot(trips)
                return Layer(stages, sequence, results, slot)  # type: ignore[arg-type]
    return None


def sequences(loop: CountedLoop, trips: int | Tensor) -> Iterator[tuple[int, Tensor]]:
    """Sequences of as many time steps, and what the body has of the one that a counter tells."""
    for op in loop.graph.operators:
        slot = loop.read(op)
        if slot is None or loop.op[slot].rank != 3 or loop.op[slot].dtype != "float32":
            continue
        if loop.has_a_row_each(slot, trips):
            yield slot, op[~0]


def stacked(loop: CountedLoop, x: Tensor) -> tuple[Stage, ...]:
    """Cells that see the sequence, or what the one before gives."""
    taken = {*loop.counters, *loop.forwarded}
    stages: list[Stage] = []
    while stage := next(cells(loop, x, [k for k in range(len(loop.graph.outputs)) if k not in taken]), None):
        stages.append(stage)
        taken.update(stage.states)
        x = loop.graph.outputs[stage.states[0]]
    return tuple(stages)


def cells(loop: CountedLoop, x: Tensor, slots: Sequence[int]) -> Iterator[Stage]:
    """Cells that two of these slots carry, or one."""
    before, after, body = loop.graph.inputs, loop.graph.outputs, loop.body
    for h in slots:
        for c in slots:
            cell = body.lstm(x, after[h], before[h], after[c], before[c]) if c != h else None
            if cell is not None:
                yield Stage(cell, (h, c))
        plain = body.gru(x, after[h], before[h]) or body.plain(x, after[h], before[h])
        if plain is not None:
            yield Stage(plain, (h,))


def result(loop: CountedLoop, k: int, trips: int | Tensor, stages: Sequence[Stage]) -> tuple[str, int] | None:
    """What the loop gives in a slot."""
    if k in loop.counters:
        if isinstance(trips, int):
            return "count", loop.counters[k] + trips
        return ("carried", loop.slot(trips)) if loop.counters[k] == 0 else None
    if k in loop.forwarded:
        return "carried", k
    states = [slot for stage in stages for slot in stage.states]
    if k in states:
        return "state", states.index(k)
    output = loop.graph.outputs[stages[-1].states[0]]
    if is_row(loop, loop.graph.outputs[k], output):
        return "last", states.index(stages[-1].states[0])
    row = loop.written(k) if loop.has_a_row_each(k, trips) else None
    return ("every", 0) if row is not None and is_row(loop, row, output) else None


def is_row(loop: CountedLoop, tensor: Tensor, output: Tensor) -> bool:
    """Whether a tensor is the output with an axis of size 1 in front."""
    return loop.body.of(tensor, "RESHAPE") is output and tensor.shape == (1, *output.shape)


@fusion(
    "WHILE_RECURRENT", pattern=LOOPS, inputs=CARRIED, where=layer, layout=Terminate(), quantization=NotQuantizable()
)
def while_recurrent(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """GRU, LSTM or RNN over the whole sequence, one for each stage; an If around where there may be no time step."""
    recurrent_layer: Layer = ctx.options.layer
    computed = [k for k, (kind, _) in enumerate(recurrent_layer.results) if kind != "carried" and ctx.wanted(k)]
    results = {k: carried[slot] for k, (kind, slot) in enumerate(recurrent_layer.results) if kind == "carried"}
    if recurrent_layer.trips is None or not needs_a_step(recurrent_layer, computed):
        given: Sequence[Value] = through(ctx, recurrent_layer, carried, computed)
    else:
        given = ctx.ops.If(
            ctx.ops.Greater(carried[recurrent_layer.trips], ctx.scalar(0, recurrent_layer.trips)),
            then_branch=ctx.graph(lambda: through(ctx, recurrent_layer, carried, computed)),
            else_branch=ctx.graph(lambda: [carried[k] for k in computed]),
            outputs=len(computed),
        )
    results.update(zip(computed, given, strict=True))
    return tuple(results.get(k) for k in range(len(recurrent_layer.results)))


def through(ctx: Context, layers: Layer, carried: Sequence[Value], computed: Sequence[int]) -> list[Value]:
    """These results of the layer."""
    ops, y, last = ctx.ops, carried[layers.sequence], list[Value]()
    for stage in layers.stages:
        sequence, *states = node(ctx, stage, y, carried)
        y = ops.Squeeze(sequence, [1])
        last += states
    kinds = {
        "count": lambda k, number: ops.Identity(np.asarray(number, ctx.op[~k].dtype)),
        "state": lambda k, number: ops.Squeeze(last[number], [0]),
        "every": lambda k, number: y,
        "last": lambda k, number: last[number],
    }
    return [kinds[kind](k, number) for k in computed for kind, number in (layers.results[k],)]


def node(ctx: Context, stage: Stage, x: Value, carried: Sequence[Value]) -> Sequence[Value]:
    """Outputs [time, 1, batch, n] of a stage, and its last states [1, batch, n]."""
    cell = stage.cell
    return ctx.ops.named(cell.op_type)(
        x,
        stored(ctx, cell.inward),
        stored(ctx, cell.recurrent),
        cell.bias[np.newaxis],
        None,
        *(None if is_zero(ctx, slot) else begun(ctx, [carried[slot]]) for slot in stage.states),
        hidden_size=cell.recurrent.stored.shape[1],
        **({"linear_before_reset": 1} if cell.after else {}),
        **({"activations": [*cell.activations]} if cell.activations else {}),
        outputs=1 + len(stage.states),
    )


def needs_a_step(layers: Layer, computed: Sequence[int]) -> bool:
    """Whether ONNX Runtime goes wrong where there is no time step: its GRU ends the process, others give any state."""
    gated = any(stage.cell.op_type == "GRU" for stage in layers.stages)
    return gated or any(kind in ("state", "last") for k in computed for kind, _ in (layers.results[k],))


def is_zero(ctx: Context, slot: int) -> bool:
    constant = ctx.op.constant(slot)
    return constant is not None and not constant.any()


def stored(ctx: Context, matrix: Matrix) -> Value | Array:
    """A weight of one direction, as small as in the file; what makes it float32 is computed once, as the model loads."""
    array = matrix.stored[np.newaxis]
    if array.dtype == np.float32:
        return array
    value = ctx.ops.Cast(array, to="float32")
    return value if matrix.scales is None else ctx.ops.Mul(value, matrix.scales[np.newaxis, :, np.newaxis])
