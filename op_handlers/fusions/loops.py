"""Loops that decompose recurrent layers, as Keras 3 exports them.

In each iteration, a WHILE gathers one row of the sequence, computes one or more cells, and writes the output into an
array.
"""

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

CARRIED_OPERANDS = operands(" ".join(f"value{k}" for k in range(12)))
LOOP_PATTERNS = tuple(Call("WHILE", *CARRIED_OPERANDS[:n]) for n in range(4, len(CARRIED_OPERANDS) + 1))


@dataclass(frozen=True)
class Stage:
    """A cell of a recurrent layer, and the slots of its states.

    The cell reads the sequence or the output of the previous stage.
    """

    cell: Cell
    state_slots: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """The meaning of a loop's output in a slot.

    ``direction``: 1 for the second layer of a bidirectional node, otherwise 0.

    ``number`` depends on ``kind``:

    - "count": the final value of a counter.
    - "carried": the slot of the operand that is returned unchanged.
    - "state": the index of a final state among the states of all stages.
    - "last": the index of the state that is the output of the last time step.
    - "all": unused, for the outputs of all time steps.
    - "reversed", "batch_first": unused, for the outputs of all time steps of a backward layer, in reverse order or
      with the batch as first axis (see ``loops_directions``).
    """

    kind: str
    number: int
    slot: int
    direction: int = 0


@dataclass(frozen=True)
class Layer:
    """A recurrent layer that a loop decomposes.

    ``stages``: consecutive cells. ``results``: the meaning of each result. ``trip_count_slot``: None if the trip count is
    constant.
    """

    stages: tuple[Stage, ...]
    sequence_slot: int
    results: tuple[Result, ...]
    trip_count_slot: int | None


def counted_loop(match: Match) -> CountedLoop:
    """Return the loop of a match."""
    op = match.calls[next(pattern for pattern in LOOP_PATTERNS if pattern in match.calls)]
    graphs, options = match.graphs, op.options
    cond, body = graphs[options.cond_subgraph_index], graphs[options.body_subgraph_index]
    return CountedLoop(op, cond, body, graphs[op.subgraph])


def match_layer(match: Match) -> Mapping[str, Any] | Decline:
    """Return the recurrent layer that a loop decomposes. Declines for other loops."""
    layer = recurrent_layer(counted_loop(match))
    return Decline("") if layer is None else {"layer": layer}


def recurrent_layer(loop: CountedLoop) -> Layer | None:
    """Return the recurrent layer that a loop decomposes, else ``None``."""
    trips = loop.trip_count()
    if trips is None or (isinstance(trips, int) and trips < 1):
        return None
    for sequence_slot, x in sequences(loop, trips):
        stages = stack_cells(loop, x)
        if stages:
            results = [classify_result(loop, k, trips, stages) for k in range(len(loop.body.outputs))]
            classified = tuple(Result(*result, slot) for slot, result in enumerate(results) if result is not None)
            if len(classified) == len(results):
                return Layer(
                    stages, sequence_slot, classified, None if isinstance(trips, int) else loop.trip_count_slot(trips)
                )
    return None


def sequences(loop: CountedLoop, trips: int | Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the slot of each sequence with a row per step, and the row that is read."""
    for op in loop.body.operators:
        slot = loop.read_slot(op)
        if slot is None or loop.op[slot].rank != 3 or loop.op[slot].dtype != "float32":
            continue
        if loop.has_row_per_step(slot, trips):
            yield slot, op[~0]


def stack_cells(loop: CountedLoop, x: Tensor) -> tuple[Stage, ...]:
    """Return consecutive stages. The first reads ``x``, a row of the sequence."""
    used_slots = {*loop.counters, *loop.forwarded}
    stages: list[Stage] = []
    outputs = loop.body.outputs
    while stage := next(
        matching_stages(loop, x, {k: tensor for k, tensor in enumerate(outputs) if k not in used_slots}), None
    ):
        stages.append(stage)
        used_slots.update(stage.state_slots)
        x = loop.body.outputs[stage.state_slots[0]]
    return tuple(stages)


def matching_stages(loop: CountedLoop, x: Tensor, new_values: Mapping[int, Tensor]) -> Iterator[Stage]:
    """Yield stages that read ``x``, with one or two states.

    ``new_values``: slot -> value after the step.
    """
    old_values, dataflow = loop.body.inputs, loop.body_dataflow
    for h in new_values:
        for c in new_values:
            cell = (
                dataflow.match_lstm(x, new_values[h], old_values[h], new_values[c], old_values[c]) if c != h else None
            )
            if cell is not None:
                yield Stage(cell, (h, c))
        gru_or_rnn = dataflow.match_gru(x, new_values[h], old_values[h]) or dataflow.match_rnn(
            x, new_values[h], old_values[h]
        )
        if gru_or_rnn is not None:
            yield Stage(gru_or_rnn, (h,))


def classify_result(
    loop: CountedLoop, slot: int, trips: int | Tensor, stages: Sequence[Stage]
) -> tuple[str, int] | None:
    """Return kind and number of the result in ``slot`` (see :class:`Result`).

    Return ``None`` if a recurrent layer has no such result.
    """
    if slot in loop.counters:
        if isinstance(trips, int):
            return "count", loop.counters[slot] + trips
        return ("carried", loop.trip_count_slot(trips)) if loop.counters[slot] == 0 else None
    if slot in loop.forwarded:
        return "carried", slot
    states = [state_slot for stage in stages for state_slot in stage.state_slots]
    if slot in states:
        return "state", states.index(slot)
    output = loop.body.outputs[stages[-1].state_slots[0]]
    if is_row(loop, loop.body.outputs[slot], output) or loop.single_element(slot) is output:
        return "last", states.index(stages[-1].state_slots[0])
    row = loop.row_written_at(slot) if loop.has_row_per_step(slot, trips) else None
    return ("all", 0) if row is output or (row is not None and is_row(loop, row, output)) else None


def is_row(loop: CountedLoop, tensor: Tensor, output: Tensor) -> bool:
    """True if a tensor is the output of a step, reshaped to a row with a leading axis."""
    return loop.body_dataflow.operand(tensor, "RESHAPE") is output and tensor.shape == (1, *output.shape)


@fusion(
    "WHILE_RECURRENT",
    pattern=LOOP_PATTERNS,
    inputs=CARRIED_OPERANDS,
    check=match_layer,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """Emit one GRU, LSTM or RNN per stage.

    If the sequence may be empty, the nodes are inside an If.
    """
    layer: Layer = ctx.options.layer
    return Directions(ctx, [layer], carried, [0], carried[layer.sequence_slot], layer.results).emit_results()


@dataclass(frozen=True)
class Directions:
    """One layer, or a forward and a backward layer on the same sequence.

    ``offsets``: the index of each loop's first operand among ``operands``. ``results``: the results to emit.
    """

    ctx: Context
    layers: Sequence[Layer]
    operands: Sequence[Value]
    offsets: Sequence[int]
    sequence: Value
    results: Sequence[Result]

    def emit_results(self) -> tuple[Value | None, ...]:
        """Emit the used results. Return None for each unused result."""
        ctx, trip_count_slot = self.ctx, self.layers[0].trip_count_slot
        used_results = {k: result for k, result in enumerate(self.results) if ctx.is_used(k)}
        values_by_slot = {
            k: self.forwarded_operand(result) for k, result in used_results.items() if result.kind == "carried"
        }
        computed_results = {k: result for k, result in used_results.items() if k not in values_by_slot}
        if trip_count_slot is None or not self.fails_without_steps(computed_results.values()):
            values: Sequence[Value] = self.emit_layers(computed_results)
        else:
            operand_slot = self.offsets[0] + trip_count_slot
            values = ctx.ops.If(
                ctx.ops.Greater(self.operands[operand_slot], ctx.scalar(0, operand_slot)),
                then_branch=ctx.graph(lambda: self.emit_layers(computed_results)),
                else_branch=ctx.graph(lambda: [self.initial_value(result) for result in computed_results.values()]),
                outputs=len(computed_results),
            )
        values_by_slot.update(zip(computed_results, values, strict=True))
        return tuple(values_by_slot.get(k) for k in range(len(self.results)))

    def forwarded_operand(self, result: Result) -> Value:
        """Return the operand that a loop returns unchanged."""
        if result.number != self.layers[result.direction].sequence_slot:
            return self.operands[self.offsets[result.direction] + result.number]
        return reverse_time(self.ctx.ops, self.sequence) if result.direction else self.sequence

    def fails_without_steps(self, results: Iterable[Result]) -> bool:
        """True if ONNX Runtime fails on an empty sequence.

        GRU crashes the process, and LSTM and RNN return undefined states.
        """
        has_gru = any(stage.cell.op_type == "GRU" for stage in self.layers[0].stages)
        return has_gru or any(result.kind in ("state", "last") for result in results)

    def initial_value(self, result: Result) -> Value:
        """Return the operand that is the result of zero iterations."""
        value = self.operands[self.offsets[result.direction] + result.slot]
        return self.to_batch_first(value) if result.kind == "batch_first" else value

    def emit_layers(self, results: Mapping[int, Result]) -> list[Value]:
        """Emit the layers. Return the values of ``results``."""
        ctx, ops, directions = self.ctx, self.ctx.ops, range(len(self.layers))
        outputs, final_states = [self.sequence], [list[Value]() for _ in directions]
        for stages in zip(*(layer.stages for layer in self.layers), strict=True):
            sequence, *states = emit_layer(
                ctx, [stage.cell for stage in stages], outputs[0], self.initial_states(stages)
            )
            outputs = list(split_directions(ctx, sequence, len(directions), axis=1))
            for state in states:
                states_by_direction = ops.Split(state, [1, 1], axis=0, outputs=2) if len(directions) > 1 else [state]
                for d in directions:
                    final_states[d].append(states_by_direction[d])
        emitters: Mapping[str, Callable[[int, Result], Value]] = {
            "count": lambda k, result: ops.Identity(np.asarray(result.number, ctx.op[~k].dtype)),
            "state": lambda _, result: ops.Squeeze(final_states[result.direction][result.number], [0]),
            "all": lambda _, result: outputs[result.direction],
            "last": lambda _, result: final_states[result.direction][result.number],
            "reversed": lambda _, result: reverse_time(ops, outputs[result.direction]),
            "batch_first": lambda _, result: self.to_batch_first(outputs[result.direction]),
        }
        return [emitters[result.kind](k, result) for k, result in results.items()]

    def initial_states(self, stages: Sequence[Stage]) -> Sequence[Value | None]:
        """Return each initial state of the stages, stacked over directions."""
        slots_by_state = zip(*(stage.state_slots for stage in stages), strict=True)
        return [
            initial_state(self.ctx, self.operands, [offset + k for offset, k in zip(self.offsets, slots, strict=True)])
            for slots in slots_by_state
        ]

    def to_batch_first(self, y: Value) -> Value:
        """Transpose (T, B, n) to (B, T, n)."""
        return self.ctx.ops.Transpose(y, perm=[1, 0, 2])


def initial_state(ctx: Context, operands: Sequence[Value], slots: Sequence[int]) -> Value | None:
    """Return an initial state, stacked over directions.

    Return ``None`` for constant zeros, which are the default in ONNX.
    """
    constants = [ctx.op.constant(slot) for slot in slots]
    is_zero = all(constant is not None and not constant.any() for constant in constants)
    return None if is_zero else stack_initial_states(ctx, [operands[slot] for slot in slots])


def reverse_time(ops: Ops, sequence: Value) -> Value:
    """Reverse a sequence along the first axis."""
    return ops.Slice(sequence, [-1], [-(2**31) + 1], [0], [-1])


def emit_layer(
    ctx: Context, cells: Sequence[Cell], x: Value, initial_states: Sequence[Value | None], direction: str = "forward"
) -> Sequence[Value]:
    """Emit a layer. Return its outputs (T, D, B, n) and its last states (D, B, n).

    ``cells``: one cell for each of the D directions.
    """
    first_cell, directions = cells[0], len(cells)
    direction = "bidirectional" if directions > 1 else direction
    return ctx.ops.named(first_cell.op_type)(
        x,
        stack_weights(ctx, [cell.input_weights for cell in cells]),
        stack_weights(ctx, [cell.recurrent_weights for cell in cells]),
        np.stack([cell.bias for cell in cells]),
        None,
        *initial_states,
        hidden_size=first_cell.recurrent_weights.values.shape[1],
        **({} if direction == "forward" else {"direction": direction}),
        **({"linear_before_reset": 1} if first_cell.linear_before_reset else {}),
        **({"activations": [*first_cell.activations] * directions} if first_cell.activations else {}),
        outputs=1 + len(initial_states),
    )


def stack_weights(ctx: Context, matrices: Sequence[Matrix]) -> Value | Array:
    """Return weights in float32, stacked over directions.

    The weights are stored in the dtype of the file. Runtimes fold the Cast to float32 at load time.
    """
    array = np.stack([matrix.values for matrix in matrices])
    if array.dtype == np.float32:
        return array
    value = ctx.ops.Cast(array, to="float32")
    scales = [matrix.scales for matrix in matrices if matrix.scales is not None]
    return ctx.ops.Mul(value, np.stack(scales)[..., np.newaxis]) if scales else value
