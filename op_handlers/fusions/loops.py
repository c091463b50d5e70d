"""Loops that decompose recurrent layers, as Keras 3 exports them: WHILE with GATHER, cells, and a write into an array."""

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
from op_handlers.sequence.directions import split_directions

CARRIED = operands(" ".join(f"value{k}" for k in range(12)))
LOOPS = tuple(Call("WHILE", *CARRIED[:n]) for n in range(4, len(CARRIED) + 1))


@dataclass(frozen=True)
class Stage:
    """Cell on the sequence or on the outputs of the stage before, and the slots of its states among the carried values."""

    cell: Cell
    states: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """Meaning of a loop's output in a slot, of direction ``direction`` if there are two.

    ``kind`` and ``number``: "count", final value of a counter; "carried", the slot; "state", index among all stages'
    states; "all", outputs of all time steps; "last", output of the last step, by its index among the states.
    """

    kind: str
    number: int
    slot: int
    direction: int = 0


@dataclass(frozen=True)
class Layer:
    """Consecutive stages, the slot of the sequence, and the meaning of each result.

    ``trip_count``: slot of the trip count if it is a runtime value.
    """

    stages: tuple[Stage, ...]
    sequence: int
    results: tuple[Result, ...]
    trip_count: int | None


def counted_loop(match: Match) -> CountedLoop:
    """Return the loop of a match."""
    op = match.calls[next(pattern for pattern in LOOPS if pattern in match.calls)]
    graphs, options = match.graphs, op.options
    cond, body = graphs[options.cond_subgraph_index], graphs[options.body_subgraph_index]
    return CountedLoop(op, cond, body, graphs[op.subgraph])


def match_layer(match: Match) -> Mapping[str, Any] | Decline:
    """Return the layer that the loop is; other loops are skipped without a reason."""
    recognized = recurrent_layer(counted_loop(match))
    return Decline("") if recognized is None else {"layer": recognized}


def recurrent_layer(loop: CountedLoop) -> Layer | None:
    """Return the recurrent layer that a loop decomposes, else ``None``."""
    trips = loop.trip_count()
    if trips is None or (isinstance(trips, int) and trips < 1):
        return None
    for sequence, x in sequences(loop, trips):
        stages = stack_cells(loop, x)
        if stages:
            results = [classify_result(loop, k, trips, stages) for k in range(len(loop.graph.outputs))]
            classified = tuple(Result(*one, slot) for slot, one in enumerate(results) if one is not None)
            if len(classified) == len(results):
                return Layer(
                    stages, sequence, classified, None if isinstance(trips, int) else loop.trip_count_slot(trips)
                )
    return None


def sequences(loop: CountedLoop, trips: int | Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the slot of each sequence as long as the loop, with the body's element at the loop counter."""
    for op in loop.graph.operators:
        slot = loop.read_slot(op)
        if slot is None or loop.op[slot].rank != 3 or loop.op[slot].dtype != "float32":
            continue
        if loop.has_row_per_step(slot, trips):
            yield slot, op[~0]


def stack_cells(loop: CountedLoop, x: Tensor) -> tuple[Stage, ...]:
    """Return the cells on the sequence, each on the outputs of the one before."""
    used_slots = {*loop.counters, *loop.forwarded}
    stages: list[Stage] = []
    outputs = loop.graph.outputs
    while stage := next(
        matching_stages(loop, x, {k: tensor for k, tensor in enumerate(outputs) if k not in used_slots}), None
    ):
        stages.append(stage)
        used_slots.update(stage.states)
        x = loop.graph.outputs[stage.states[0]]
    return tuple(stages)


def matching_stages(loop: CountedLoop, x: Tensor, after: Mapping[int, Tensor]) -> Iterator[Stage]:
    """Yield cells with one or two carried slots. ``after``: value of each slot after the step."""
    before, body = loop.graph.inputs, loop.body
    for h in after:
        for c in after:
            cell = body.match_lstm(x, after[h], before[h], after[c], before[c]) if c != h else None
            if cell is not None:
                yield Stage(cell, (h, c))
        cell_of_one_state = body.match_gru(x, after[h], before[h]) or body.match_rnn(x, after[h], before[h])
        if cell_of_one_state is not None:
            yield Stage(cell_of_one_state, (h,))


def classify_result(loop: CountedLoop, k: int, trips: int | Tensor, stages: Sequence[Stage]) -> tuple[str, int] | None:
    """Return kind and number of the loop's output in slot ``k``, or ``None`` if it has no meaning in a layer."""
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
    row = loop.row_written_at(k) if loop.has_row_per_step(k, trips) else None
    return ("all", 0) if row is output or (row is not None and is_row(loop, row, output)) else None


def is_row(loop: CountedLoop, tensor: Tensor, output: Tensor) -> bool:
    """True if a tensor is the output reshaped to a leading axis of size 1."""
    return loop.body.operand(tensor, "RESHAPE") is output and tensor.shape == (1, *output.shape)


@fusion(
    "WHILE_RECURRENT",
    pattern=LOOPS,
    inputs=CARRIED,
    check=match_layer,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """Emit one GRU, LSTM or RNN per stage, in an If on the trip count where the loop may not run."""
    layer: Layer = ctx.options.layer
    return Directions(ctx, [layer], carried, [0], carried[layer.sequence], layer.results).emit_results()


@dataclass(frozen=True)
class Directions:
    """Layers on the same sequence, the second backward, and the results to emit.

    ``first``: index of each loop's first operand among the operands.
    """

    ctx: Context
    layers: Sequence[Layer]
    operands: Sequence[Value]
    first: Sequence[int]
    sequence: Value
    results: Sequence[Result]

    def emit_results(self) -> tuple[Value | None, ...]:
        """Return all results that are used."""
        ctx, trips = self.ctx, self.layers[0].trip_count
        wanted = {k: result for k, result in enumerate(self.results) if ctx.is_used(k)}
        values_by_slot = {k: self.forwarded_operand(one) for k, one in wanted.items() if one.kind == "carried"}
        computed = {k: result for k, result in wanted.items() if k not in values_by_slot}
        if trips is None or not self.fails_without_steps(computed.values()):
            values: Sequence[Value] = self.emit_layers(computed)
        else:
            values = ctx.ops.If(
                ctx.ops.Greater(self.operands[self.first[0] + trips], ctx.scalar(0, self.first[0] + trips)),
                then_branch=ctx.graph(lambda: self.emit_layers(computed)),
                else_branch=ctx.graph(lambda: [self.initial_value(result) for result in computed.values()]),
                outputs=len(computed),
            )
        values_by_slot.update(zip(computed, values, strict=True))
        return tuple(values_by_slot.get(k) for k in range(len(self.results)))

    def forwarded_operand(self, result: Result) -> Value:
        """Return the loop's operand of a forwarded slot."""
        if result.number != self.layers[result.direction].sequence:
            return self.operands[self.first[result.direction] + result.number]
        return reverse_time(self.ctx.ops, self.sequence) if result.direction else self.sequence

    def fails_without_steps(self, results: Iterable[Result]) -> bool:
        """True if ONNX Runtime fails on an empty sequence: GRU ends the process, others leave states undefined."""
        gated = any(stage.cell.op_type == "GRU" for stage in self.layers[0].stages)
        return gated or any(result.kind in ("state", "last") for result in results)

    def initial_value(self, result: Result) -> Value:
        """Return a result after zero iterations: the loop's operand."""
        value = self.operands[self.first[result.direction] + result.slot]
        return self.to_batch_first(value) if result.kind == "batch_first" else value

    def emit_layers(self, results: Mapping[int, Result]) -> list[Value]:
        """Emit the layers and return these results."""
        ctx, ops, directions = self.ctx, self.ctx.ops, range(len(self.layers))
        y, last = [self.sequence], [list[Value]() for _ in directions]
        for stages in zip(*(layer.stages for layer in self.layers), strict=True):
            sequence, *states = emit_layer(ctx, [stage.cell for stage in stages], y[0], self.initial_states(stages))
            y = list(split_directions(ctx, sequence, len(directions), axis=1))
            for state in states:
                each = ops.Split(state, [1, 1], axis=0, outputs=2) if len(directions) > 1 else [state]
                for d in directions:
                    last[d].append(each[d])
        kinds: Mapping[str, Callable[[int, Result], Value]] = {
            "count": lambda k, one: ops.Identity(np.asarray(one.number, ctx.op[~k].dtype)),
            "state": lambda _, one: ops.Squeeze(last[one.direction][one.number], [0]),
            "all": lambda _, one: y[one.direction],
            "last": lambda _, one: last[one.direction][one.number],
            "reversed": lambda _, one: reverse_time(ops, y[one.direction]),
            "batch_first": lambda _, one: self.to_batch_first(y[one.direction]),
        }
        return [kinds[result.kind](k, result) for k, result in results.items()]

    def initial_states(self, stages: Sequence[Stage]) -> Sequence[Value | None]:
        """Return each state of all directions, as the node takes it."""
        slots = zip(*(stage.states for stage in stages), strict=True)
        return [
            initial_state(self.ctx, self.operands, [first + k for first, k in zip(self.first, each, strict=True)])
            for each in slots
        ]

    def to_batch_first(self, y: Value) -> Value:
        """Transpose (T, B, n) to (B, T, n)."""
        return self.ctx.ops.Transpose(y, perm=[1, 0, 2])


def initial_state(ctx: Context, operands: Sequence[Value], places: Sequence[int]) -> Value | None:
    """Return a state of all directions; ``None`` for constant zeros, ONNX's default."""
    constants = [ctx.op.constant(place) for place in places]
    zero = all(constant is not None and not constant.any() for constant in constants)
    return None if zero else stack_initial_states(ctx, [operands[place] for place in places])


def reverse_time(ops: Ops, sequence: Value) -> Value:
    """Reverse a sequence along the first axis."""
    return ops.Slice(sequence, [-1], [-(2**31) + 1], [0], [-1])


def emit_layer(
    ctx: Context, cells: Sequence[Cell], x: Value, starts: Sequence[Value | None], direction: str = "forward"
) -> Sequence[Value]:
    """Emit a layer and return its outputs (T, D, B, n) of D directions and last states (D, B, n)."""
    cell, n = cells[0], len(cells)
    direction = "bidirectional" if n > 1 else direction
    return ctx.ops.named(cell.op_type)(
        x,
        stack_weights(ctx, [each.inward for each in cells]),
        stack_weights(ctx, [each.recurrent for each in cells]),
        np.stack([each.bias for each in cells]),
        None,
        *starts,
        hidden_size=cell.recurrent.stored.shape[1],
        **({} if direction == "forward" else {"direction": direction}),
        **({"linear_before_reset": 1} if cell.after else {}),
        **({"activations": [*cell.activations] * n} if cell.activations else {}),
        outputs=1 + len(starts),
    )


def stack_weights(ctx: Context, matrices: Sequence[Matrix]) -> Value | Array:
    """Return a weight of each direction in the dtype of the file; the cast to float32 is folded when the model is loaded."""
    array = np.stack([matrix.stored for matrix in matrices])
    if array.dtype == np.float32:
        return array
    value, scales = ctx.ops.Cast(array, to="float32"), [one.scales for one in matrices if one.scales is not None]
    return ctx.ops.Mul(value, np.stack(scales)[..., np.newaxis]) if scales else value
