"""Loops that spell out recurrent layers, as Keras 3 leaves them: a WHILE of GATHER, cells, and a write into an array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Ops,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
)
from op_handlers.kernels.counted_loops import CountedLoop
from op_handlers.kernels.recurrent import stack_initial_states
from op_handlers.kernels.recurrent_cells import Cell, Matrix
from op_handlers.sequence.directions import apart

CARRIED = operands(" ".join(f"value{k}" for k in range(12)))
LOOPS = tuple(Call("WHILE", *CARRIED[:n]) for n in range(4, len(CARRIED) + 1))


@dataclass(frozen=True)
class Stage:
    """A cell, which sees the sequence or the outputs of the stage before, and its states' slots among the values carried."""

    cell: Cell
    states: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """What a loop gives in a slot, that of direction ``direction`` where there are two.

    ``kind`` and ``number``: "count", what a counter ends with; "carried", the slot; "state", which of all stages' states;
    "every", the outputs of all time steps; "last", that of the last one, by its number among the states.
    """

    kind: str
    number: int
    slot: int
    direction: int = 0


@dataclass(frozen=True)
class Layer:
    """Stages one after the other, the slot of the sequence, and what each result is.

    ``trip_count``: the slot of the trip count if that is a runtime value.
    """

    stages: tuple[Stage, ...]
    sequence: int
    results: tuple[Result, ...]
    trip_count: int | None


def counted(match: Match) -> CountedLoop:
    """The loop of a match."""
    op = match.calls[next(pattern for pattern in LOOPS if pattern in match.calls)]
    graphs, options = match.graphs, op.options
    cond, body = graphs[options.cond_subgraph_index], graphs[options.body_subgraph_index]
    return CountedLoop(op, cond, body, graphs[op.subgraph])


def layer(match: Match) -> Mapping[str, Any] | Decline:
    """What the loop is, where it is exactly a layer; nobody expects it of others."""
    recognized = recurrent(counted(match))
    return Decline("") if recognized is None else {"layer": recognized}


def recurrent(loop: CountedLoop) -> Layer | None:
    """The layer that a loop is."""
    trips = loop.trip_count()
    if trips is None or (isinstance(trips, int) and trips < 1):
        return None
    for sequence, x in sequences(loop, trips):
        stages = stacked(loop, x)
        if stages:
            results = [result(loop, k, trips, stages) for k in range(len(loop.graph.outputs))]
            told = tuple(Result(*one, slot) for slot, one in enumerate(results) if one is not None)
            if len(told) == len(results):
                return Layer(stages, sequence, told, None if isinstance(trips, int) else loop.trip_count_slot(trips))
    return None


def sequences(loop: CountedLoop, trips: int | Tensor) -> Iterator[tuple[int, Tensor]]:
    """Sequences of as many time steps, and what the body has of the one that a counter tells."""
    for op in loop.graph.operators:
        slot = loop.read_slot(op)
        if slot is None or loop.op[slot].rank != 3 or loop.op[slot].dtype != "float32":
            continue
        if loop.has_row_per_step(slot, trips):
            yield slot, op[~0]


def stacked(loop: CountedLoop, x: Tensor) -> tuple[Stage, ...]:
    """Cells that see the sequence, or what the one before gives."""
    taken = {*loop.counters, *loop.forwarded}
    stages: list[Stage] = []
    outputs = loop.graph.outputs
    while stage := next(cells(loop, x, {k: tensor for k, tensor in enumerate(outputs) if k not in taken}), None):
        stages.append(stage)
        taken.update(stage.states)
        x = loop.graph.outputs[stage.states[0]]
    return tuple(stages)


def cells(loop: CountedLoop, x: Tensor, after: Mapping[int, Tensor]) -> Iterator[Stage]:
    """Cells that two slots carry, or one. ``after``: what becomes of each slot."""
    before, body = loop.graph.inputs, loop.body
    for h in after:
        for c in after:
            cell = body.match_lstm(x, after[h], before[h], after[c], before[c]) if c != h else None
            if cell is not None:
                yield Stage(cell, (h, c))
        plain = body.match_gru(x, after[h], before[h]) or body.match_rnn(x, after[h], before[h])
        if plain is not None:
            yield Stage(plain, (h,))


def result(loop: CountedLoop, k: int, trips: int | Tensor, stages: Sequence[Stage]) -> tuple[str, int] | None:
    """What the loop gives in a slot: kind and number."""
    if k in loop.counters:
        if isinstance(trips, int):
            return "count", loop.counters[k] + trips
        return ("carried", loop.trip_count_slot(trips)) if loop.counters[k] == 0 else None
    if k in loop.forwarded:
        return "carried", k
    states = [slot for stage in stages for slot in stage.states]
    if k in states:
        return "state", states.index(k)
    output = loop.graph.outputs[stages[-1].states[0]]
    if is_row(loop, loop.graph.outputs[k], output) or loop.single_element(k) is output:
        return "last", states.index(stages[-1].states[0])
    row = loop.written_row(k) if loop.has_row_per_step(k, trips) else None
    return ("every", 0) if row is output or (row is not None and is_row(loop, row, output)) else None


def is_row(loop: CountedLoop, tensor: Tensor, output: Tensor) -> bool:
    """Whether a tensor is the output with an axis of size 1 in front."""
    return loop.body.operand(tensor, "RESHAPE") is output and tensor.shape == (1, *output.shape)


@fusion(
    "WHILE_RECURRENT", pattern=LOOPS, inputs=CARRIED, where=layer, layout=Terminate(), quantization=NotQuantizable()
)
def while_recurrent(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """GRU, LSTM or RNN over the whole sequence, one for each stage; an If around where there may be no time step."""
    layer: Layer = ctx.options.layer
    return Directions(ctx, [layer], carried, [0], carried[layer.sequence], layer.results).given()


@dataclass(frozen=True)
class Directions:
    """Layers that see the same sequence, the second from its end, and what is wanted of them.

    ``first``: where among the operands those of each loop begin.
    """

    ctx: Context
    layers: Sequence[Layer]
    operands: Sequence[Value]
    first: Sequence[int]
    sequence: Value
    results: Sequence[Result]

    def given(self) -> tuple[Value | None, ...]:
        """All results that are used."""
        ctx, trips = self.ctx, self.layers[0].trip_count
        wanted = {k: result for k, result in enumerate(self.results) if ctx.wanted(k)}
        by_place = {k: self.handed_on(one) for k, one in wanted.items() if one.kind == "carried"}
        computed = {k: result for k, result in wanted.items() if k not in by_place}
        if trips is None or not self.needs_a_step(computed.values()):
            values: Sequence[Value] = self.through(computed)
        else:
            values = ctx.ops.If(
                ctx.ops.Greater(self.operands[self.first[0] + trips], ctx.scalar(0, self.first[0] + trips)),
                then_branch=ctx.graph(lambda: self.through(computed)),
                else_branch=ctx.graph(lambda: [self.unchanged(result) for result in computed.values()]),
                outputs=len(computed),
            )
        by_place.update(zip(computed, values, strict=True))
        return tuple(by_place.get(k) for k in range(len(self.results)))

    def handed_on(self, result: Result) -> Value:
        """The loop's operand."""
        if result.number != self.layers[result.direction].sequence:
            return self.operands[self.first[result.direction] + result.number]
        return turned(self.ctx.ops, self.sequence) if result.direction else self.sequence

    def needs_a_step(self, results: Iterable[Result]) -> bool:
        """Whether ONNX Runtime goes wrong where there is no time step: its GRU ends the process, others give any state."""
        gated = any(stage.cell.op_type == "GRU" for stage in self.layers[0].stages)
        return gated or any(result.kind in ("state", "last") for result in results)

    def unchanged(self, result: Result) -> Value:
        """What is left of a loop's operand after no time step."""
        value = self.operands[self.first[result.direction] + result.slot]
        return self.batch_first(value) if result.kind == "behind" else value

    def through(self, results: Mapping[int, Result]) -> list[Value]:
        """These results, by their places."""
        ctx, ops, directions = self.ctx, self.ctx.ops, range(len(self.layers))
        y, last = [self.sequence], [list[Value]() for _ in directions]
        for stages in zip(*(layer.stages for layer in self.layers), strict=True):
            sequence, *states = node(ctx, [stage.cell for stage in stages], y[0], self.starts(stages))
            y = list(apart(ctx, sequence, len(directions), axis=1))
            for state in states:
                each = ops.Split(state, [1, 1], axis=0, outputs=2) if len(directions) > 1 else [state]
                for d in directions:
                    last[d].append(each[d])
        kinds: Mapping[str, Callable[[int, Result], Value]] = {
            "count": lambda k, one: ops.Identity(np.asarray(one.number, ctx.op[~k].dtype)),
            "state": lambda _, one: ops.Squeeze(last[one.direction][one.number], [0]),
            "every": lambda _, one: y[one.direction],
            "last": lambda _, one: last[one.direction][one.number],
            "turned": lambda _, one: turned(ops, y[one.direction]),
            "behind": lambda _, one: self.batch_first(y[one.direction]),
        }
        return [kinds[result.kind](k, result) for k, result in results.items()]

    def starts(self, stages: Sequence[Stage]) -> Sequence[Value | None]:
        """Each state of all directions, as a node takes it."""
        slots = zip(*(stage.states for stage in stages), strict=True)
        return [
            start(self.ctx, self.operands, [first + k for first, k in zip(self.first, each, strict=True)])
            for each in slots
        ]

    def batch_first(self, y: Value) -> Value:
        """(T, B, n) as (B, T, n)."""
        return self.ctx.ops.Transpose(y, perm=[1, 0, 2])


def start(ctx: Context, operands: Sequence[Value], places: Sequence[int]) -> Value | None:
    """A state of all directions; ``None`` where it is the zeros that ONNX begins with."""
    constants = [ctx.op.constant(place) for place in places]
    zero = all(constant is not None and not constant.any() for constant in constants)
    return None if zero else stack_initial_states(ctx, [operands[place] for place in places])


def turned(ops: Ops, sequence: Value) -> Value:
    """From the end, along the first axis."""
    return ops.Slice(sequence, [-1], [-(2**31) + 1], [0], [-1])


def node(
    ctx: Context, cells: Sequence[Cell], x: Value, starts: Sequence[Value | None], direction: str = "forward"
) -> Sequence[Value]:
    """Outputs (T, D, B, n) of D directions, and their last states (D, B, n)."""
    cell, n = cells[0], len(cells)
    direction = "bidirectional" if n > 1 else direction
    return ctx.ops.named(cell.op_type)(
        x,
        stored(ctx, [each.inward for each in cells]),
        stored(ctx, [each.recurrent for each in cells]),
        np.stack([each.bias for each in cells]),
        None,
        *starts,
        hidden_size=cell.recurrent.stored.shape[1],
        **({} if direction == "forward" else {"direction": direction}),
        **({"linear_before_reset": 1} if cell.after else {}),
        **({"activations": [*cell.activations] * n} if cell.activations else {}),
        outputs=1 + len(starts),
    )


def stored(ctx: Context, matrices: Sequence[Matrix]) -> Value | Array:
    """A weight of each direction, as small as in the file; what makes it float32 is computed once, as the model loads."""
    array = np.stack([matrix.stored for matrix in matrices])
    if array.dtype == np.float32:
        return array
    value, scales = ctx.ops.Cast(array, to="float32"), [one.scales for one in matrices if one.scales is not None]
    return ctx.ops.Mul(value, np.stack(scales)[..., np.newaxis]) if scales else value
