"""Bidirectional LSTMs.

Forward operands come first, then backward ones (kernels/bidirectional_sequence_lstm.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Array,
    Context,
    Decline,
    Dequantized,
    FusedActivation,
    Instance,
    Operator,
    Quantization,
    Value,
    handler,
)
from op_handlers.kernels.operands import present_operands
from op_handlers.kernels.recurrent import check_float_operands, check_symmetric_weights, check_variable_states
from op_handlers.sequence.directions import (
    auxiliary_slot,
    bidirectional_axes,
    bidirectional_layout,
    check_auxiliary_size,
    check_directions,
    merge_outputs,
)
from op_handlers.sequence.lstm.cell import GATES, PROJECTION, Cell, check_state_batch
from op_handlers.sequence.lstm.sequences import choose_emitter

CODE = "BIDIRECTIONAL_SEQUENCE_LSTM"
NO_NORMS = (None,) * 4
FORWARD_SLOTS = (0, *range(1, 18), 35, 36, *NO_NORMS, *range(40, 44))
BACKWARD_SLOTS = (0, *range(18, 35), 37, 38, *NO_NORMS, *range(44, 48))
STATES = (35, 36, 37, 38)
PEEPHOLES = tuple(gate.peephole for gate in GATES if gate.peephole is not None)
MATRICES = (*tuple(slot for gate in GATES for slot in (gate.weights, gate.recurrent, gate.auxiliary)), PROJECTION)


def direction_operator(op: Operator, slots: Sequence[int | None]) -> Operator:
    """Return the operator of one direction, with the slots of a unidirectional LSTM."""
    return replace(op, inputs=tuple(None if slot is None else op.tensor(slot) for slot in slots))


class DirectionContext:
    """Context with the operands of one direction; everything else is delegated."""

    def __init__(self, ctx: Context, slots: Sequence[int | None]) -> None:
        self._ctx, self._slots = ctx, slots
        self.op = direction_operator(ctx.op, slots)

    def constant(self, slot: int) -> Array | None:
        operator_slot = self._slots[slot]
        return None if operator_slot is None else self._ctx.constant(operator_slot)

    def reinterpret_constant(self, slot: int, dtype: str, quantization: Quantization) -> Value:
        return self._ctx.reinterpret_constant(self._slots[slot] or 0, dtype, quantization)

    def assign(self, slot: int, value: Value) -> None:
        self._ctx.assign(self._slots[slot] or 0, value)

    def reshape_to_slot(self, value: Value, slot: int) -> Value:
        return self._ctx.reshape_to_slot(value, self._slots[slot] or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def operator_slots(lstm_slots: Sequence[int]) -> tuple[int, ...]:
    """Return the slots in both directions of slots of a unidirectional LSTM."""
    return tuple(direction[slot] or 0 for direction in (FORWARD_SLOTS, BACKWARD_SLOTS) for slot in lstm_slots)


def weight_quantization(_at: Instance) -> Dequantized:
    return Dequantized(weights=operator_slots(MATRICES))


def check_operands(op: Operator) -> Decline | None:
    """Return a Decline for operands that the kernel refuses or misreads."""
    if len(op.inputs) != 48 or op[0].dtype != "float32" or op[0].rank != 3:
        return Decline(
            f"{len(op.inputs)} operands, the first {op[0].dtype} of rank {op[0].rank}; LiteRT requires 48, the first float32 of rank 3"
        )
    matrix_slots, peephole_slots = operator_slots(MATRICES), operator_slots(PEEPHOLES)
    weights = [op[slot] for slot in matrix_slots if op.tensor(slot) is not None]
    dtypes = {weight.dtype for weight in weights}
    if len(dtypes) != 1 or not dtypes <= {"float32", "int8", "uint8"}:
        return Decline(f"no kernel multiplies float32 by {', '.join(sorted(dtypes))}")
    return (
        check_float_operands(op)
        or check_directions(op, 41, 45)
        or check_state_offsets(op)
        or (None if shares_auxiliary(op) else check_auxiliary_size(op))
        or check_variable_states(op, STATES)
        or check_state_batches(op)
        or check_symmetric_weights(op, (*matrix_slots, *peephole_slots))
    )


def check_state_batches(op: Operator) -> Decline | None:
    batch = op[0].dims[int(bool(op.options.time_major))]
    checks = (check_state_batch(direction_operator(op, slots), batch) for slots in (FORWARD_SLOTS, BACKWARD_SLOTS))
    return next((declined for declined in checks if declined), None)


def check_state_offsets(op: Operator) -> Decline | None:
    """Return a Decline for merged outputs with the batch first.

    The kernel then uses the offset of a batch in the outputs also for the states. Merged outputs are twice as wide.
    """
    if op.options.merge_outputs and not op.options.time_major and op[0].dims[0] not in (1, None):
        problem = "with merged outputs and the batch first, LiteRT's kernel reads states beyond their end"
        return Decline(f"{problem}; put time first, or give a batch of 1")
    return None


def shares_auxiliary(op: Operator) -> bool:
    """True if both directions read input and auxiliary input."""
    return op.tensor(41) is not None


@handler(
    CODE,
    max_version=3,
    layout=bidirectional_layout,
    axes=bidirectional_axes,
    quantization=weight_quantization,
    activation=FusedActivation(ActivationKernel.CELLS, in_lowering=True),
    accepts=lambda at: check_operands(at.op),
)
def bidirectional_sequence_lstm(ctx: Context, *operands: Value | None) -> Value | tuple[Value, ...]:
    """Emit one bidirectional LSTM, or one LSTM per direction.

    One LSTM is emitted if both directions have the same input and emitter, and both or neither have peepholes.
    """
    inputs = present_operands(operands)
    x, auxiliary = inputs[0], inputs.get(auxiliary_slot(ctx.op))
    forward_input = x if auxiliary is None or not shares_auxiliary(ctx.op) else ctx.ops.Concat(x, auxiliary, axis=2)
    backward_input = forward_input if auxiliary is None or shares_auxiliary(ctx.op) else auxiliary
    cells = [
        make_cell(ctx, inputs, slots, reverse) for slots, reverse in ((FORWARD_SLOTS, False), (BACKWARD_SLOTS, True))
    ]
    initial_states = [cell.initial_states() for cell in cells]
    emitters = [choose_emitter(cell) for cell in cells]
    if forward_input is backward_input and len({*emitters}) == len({cell.has_peepholes for cell in cells}) == 1:
        outputs = emitters[0](cells, forward_input, initial_states)
    else:
        directions = zip(emitters, cells, (forward_input, backward_input), initial_states, strict=True)
        outputs = [
            output
            for emit, cell, sequence, initial_state in directions
            for output in emit([cell], sequence, [initial_state])
        ]
    for cell, (_, *states) in zip(cells, outputs, strict=True):
        cell.store_states(*states)
    return merge_outputs(ctx, [y for y, *_ in outputs])


def make_cell(ctx: Context, inputs: Mapping[int, Value], slots: Sequence[int | None], reverse: bool) -> Cell:
    direction_context: Any = DirectionContext(ctx, slots)
    operands = {k: inputs[slot] for k, slot in enumerate(slots) if slot is not None and slot in inputs}
    return Cell(direction_context, operands, reverse)
