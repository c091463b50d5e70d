"""Recurrent loops with a mask of time steps, as Keras exports them.

A time step with a false mask keeps the states and repeats the previous output. The emitted node therefore processes only
the time steps with a true mask.
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
from op_handlers.fusions.loops import (
    CARRIED_OPERANDS,
    LOOP_PATTERNS,
    Stage,
    counted_loop,
    emit_layer,
    initial_state,
    is_row,
    matching_stages,
    sequences,
)
from op_handlers.kernels.counted_loops import CountedLoop

Emitters = Mapping[str, Callable[[int], Value]]
"""For each kind of result, a function that emits the value of a slot."""


@dataclass(frozen=True)
class MaskedLayer:
    """A masked recurrent layer.

    ``results``: kind and number of the result in each slot:

    - "count": the final value of a counter.
    - "carried": the slot of the operand that is returned unchanged.
    - "state": the index of a final state among the states of the cell.
    - "last_output", "last", "all": the slot. The results are, in this order, the last output, the last output with
      a leading axis of size 1, and the outputs of all time steps.
    """

    stage: Stage
    sequence_slot: int
    mask_slot: int
    last_output_slot: int
    results: tuple[tuple[str, int], ...]


def match_masked_layer(match: Match) -> Mapping[str, Any] | Decline:
    """Return the masked layer that a loop decomposes. Declines for other loops."""
    loop = counted_loop(match)
    layer = find_masked_layer(loop)
    return Decline("") if layer is None else {"layer": layer}


def find_masked_layer(loop: CountedLoop) -> MaskedLayer | None:
    """Return the masked layer that a loop of constant trip count decomposes, or None."""
    trips = loop.trip_count()
    if not isinstance(trips, int) or trips < 1:
        return None
    for op in loop.body.operators:
        mask_slot = loop.read_slot(op)
        if mask_slot is None or loop.op[mask_slot].dtype != "bool" or loop.op[mask_slot].dims != (trips, 1, 1):
            continue
        new_values = {
            k: new_value
            for k in range(len(loop.body.outputs))
            if (new_value := masked_update(loop, k, op[~0])) is not None
        }
        for sequence_slot, x in sequences(loop, trips):
            stage = next(matching_stages(loop, x, new_values), None)
            if stage is None:
                continue
            output_slots = [
                k
                for k in new_values
                if k not in stage.state_slots and new_values[k] is new_values[stage.state_slots[0]]
            ]
            for last_output_slot in output_slots[:1]:
                results = [
                    classify_masked_result(loop, k, trips, stage, last_output_slot)
                    for k in range(len(loop.body.outputs))
                ]
                classified = tuple(result for result in results if result is not None)
                if len(classified) == len(results):
                    return MaskedLayer(stage, sequence_slot, mask_slot, last_output_slot, classified)
    return None


def masked_update(loop: CountedLoop, slot: int, mask: Tensor) -> Tensor | None:
    """Return the new value of a slot that the mask updates, or None for other slots."""
    tensor = loop.body.outputs[slot]
    op = loop.body_dataflow.producer(tensor, "SELECT_V2") or loop.body_dataflow.producer(tensor, "SELECT")
    return op[1] if op is not None and op[0] is mask and op[2] is loop.body.inputs[slot] else None


def classify_masked_result(
    loop: CountedLoop, slot: int, trips: int, stage: Stage, last_output_slot: int
) -> tuple[str, int] | None:
    """Return kind and number of the result in ``slot`` (see :class:`MaskedLayer`).

    Return ``None`` if a masked layer has no such result.
    """
    if slot in loop.counters:
        return "count", loop.counters[slot] + trips
    if slot in loop.forwarded:
        return "carried", slot
    if slot in stage.state_slots:
        return "state", stage.state_slots.index(slot)
    if slot == last_output_slot:
        return "last_output", slot
    step_output = loop.body.outputs[last_output_slot]
    if is_row(loop, loop.body.outputs[slot], step_output):
        return "last", slot
    row = loop.row_written_at(slot) if loop.has_row_per_step(slot, trips) else None
    return ("all", slot) if row is not None and is_row(loop, row, step_output) else None


@fusion(
    "WHILE_RECURRENT_MASKED",
    pattern=LOOP_PATTERNS,
    inputs=CARRIED_OPERANDS,
    check=match_masked_layer,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent_masked(ctx: Context, *carried: Value) -> tuple[Value | None, ...]:
    """Emit Compress, a GRU, LSTM or RNN, and Gather, in an If.

    The else branch applies if the mask is false for all time steps.
    """
    ops, layer = ctx.ops, ctx.options.layer
    mask = ops.Reshape(carried[layer.mask_slot], [-1])
    output_indices = ops.CumSum(ops.Cast(mask, to="int64"), np.int64(0))
    initial_output = ops.Unsqueeze(carried[layer.last_output_slot], [0])
    computed_kinds = {
        k: kind for k, (kind, _) in enumerate(layer.results) if kind not in ("carried", "count") and ctx.is_used(k)
    }

    def emit_steps() -> list[Value]:
        initial_states = [initial_state(ctx, carried, [slot]) for slot in layer.stage.state_slots]
        y, *states = emit_layer(
            ctx, [layer.stage.cell], ops.Compress(carried[layer.sequence_slot], mask, axis=0), initial_states
        )
        emitters: Emitters = {
            "state": lambda k: ops.Squeeze(states[layer.results[k][1]], [0]),
            "last_output": lambda _: ops.Squeeze(states[0], [0]),
            "last": lambda _: states[0],
            "all": lambda _: ops.Gather(
                ops.Concat(initial_output, ops.Squeeze(y, [1]), axis=0), output_indices, axis=0
            ),
        }
        return [emitters[kind](k) for k, kind in computed_kinds.items()]

    def emit_unchanged() -> list[Value]:
        expanded_shape = np.array([ctx.op[layer.mask_slot].dims[0], 1, 1], np.int64)
        emitters: Emitters = {
            "state": lambda k: carried[layer.stage.state_slots[layer.results[k][1]]],
            "last_output": lambda _: carried[layer.last_output_slot],
            "last": lambda _: initial_output,
            "all": lambda _: ops.Expand(initial_output, expanded_shape),
        }
        return [emitters[kind](k) for k, kind in computed_kinds.items()]

    results = dict.fromkeys(range(len(layer.results)), None) | {
        k: carried[slot] for k, (kind, slot) in enumerate(layer.results) if kind == "carried"
    }
    results |= {
        k: ops.Identity(np.asarray(number, ctx.op[~k].dtype))
        for k, (kind, number) in enumerate(layer.results)
        if kind == "count" and ctx.is_used(k)
    }
    if computed_kinds:
        has_steps = ops.Squeeze(ops.ReduceMax(ops.Cast(mask, to="int32"), keepdims=0))
        branches = ops.If(
            ops.Cast(has_steps, to="bool"),
            then_branch=ctx.graph(emit_steps),
            else_branch=ctx.graph(emit_unchanged),
            outputs=len(computed_kinds),
        )
        results.update(zip(computed_kinds, branches, strict=True))
    return tuple(results[k] for k in range(len(layer.results)))
