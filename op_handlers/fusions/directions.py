"""LSTMs on reversed sequences, which become backward or bidirectional LSTMs.

Keras exports a backward LSTM with REVERSE_V2 before it and usually after it. Together with a forward LSTM on the same
sequence, it becomes one bidirectional LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from onnx_tflite_plugin.api import Call, Context, Decline, Match, Operand, Options, Value, fusion, operands, out
from op_handlers.kernels.operands import present_operands
from op_handlers.sequence.directions import bidirectional_axes, bidirectional_layout
from op_handlers.sequence.lstm.bidirectional import BACKWARD_SLOTS, FORWARD_SLOTS, bidirectional_sequence_lstm
from op_handlers.sequence.lstm.bidirectional import weight_quantization as bidirectional_weight_quantization
from op_handlers.sequence.lstm.handlers import (
    CELL_ACTIVATION,
    emit_sequence,
    required_opset,
    sequence_axes,
    time_first_layout,
    weight_quantization,
)

LSTM, BACKWARDS = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM_BACKWARDS"
SLOT_COUNT = 24
INPUT_GATE_SLOTS, PEEPHOLE_SLOTS = (1, 5, 9, 12), (9, 10, 11)
UNSUPPORTED_SLOTS = (16, 17, *range(20, 24))  # slots of projections and normalizations, which ONNX's LSTM does not have

(x,) = operands("x")
time_axis, output_time_axis = operands("time_axis output_time_axis", constant=True)
forward, backward = (
    (x, *operands(" ".join(f"{name}{slot}" for slot in range(1, SLOT_COUNT)))) for name in ("forward", "backward")
)


def operand_variants() -> Iterator[tuple[int, ...]]:
    """Yield the operand slots of LSTMs with and without input gate and peepholes."""
    for lacks_input_gate, has_peepholes in product((False, True), repeat=2):
        absent = {
            *UNSUPPORTED_SLOTS,
            *(INPUT_GATE_SLOTS if lacks_input_gate else ()),
            *(() if has_peepholes else PEEPHOLE_SLOTS),
        }
        yield tuple(slot for slot in range(1, SLOT_COUNT) if slot not in absent)


def lstm_call(
    sequence: Call | Operand,
    lstm_operands: tuple[Operand, ...],
    slots: tuple[int, ...],
    code: str = LSTM,
    **constraints: Any,
) -> Call:
    """Return the pattern of an LSTM of ``sequence`` with the operands in ``slots``."""
    return Call(code, sequence, *(lstm_operands[slot] for slot in slots), **constraints)


# --- backward direction -----------------------------------------------------------------------

REVERSED = {slots: lstm_call(Call("REVERSE_V2", x, time_axis), backward, slots) for slots in operand_variants()}


def match_reversed(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of the LSTM on the reversed sequence, or a Decline."""
    op = next(op for op in match.calls.values() if op.code == LSTM)
    for reversal in (op for op in match.calls.values() if op.code != LSTM):
        if reversal[0].quantization != reversal[out(0)].quantization:
            return Decline("REVERSE_V2 changes scale or zero point")
    return check_reversed_axis(match, op.options) or dict(op.options)


def check_reversed_axis(match: Match, options: Options) -> Decline | None:
    """Return a Decline unless REVERSE_V2 reverses the time axis only."""
    axes = [
        match[operand].array.reshape(-1) % match[x].rank
        for operand in (time_axis, output_time_axis)
        if operand in match.tensors
    ]
    if any(axis.tolist() != [0 if options.time_major else 1] for axis in axes):
        return Decline("REVERSE_V2 reverses an axis other than time")
    return None


@fusion(
    BACKWARDS,
    pattern=[Call("REVERSE_V2", call, output_time_axis) for call in REVERSED.values()],
    inputs=backward,
    check=match_reversed,
    layout=time_first_layout,
    axes=sequence_axes,
    quantization=weight_quantization,
    activation=CELL_ACTIVATION,
    min_opset=required_opset,
)
def lstm_backwards(ctx: Context, *operands: Value | None) -> Value:
    """Emit an LSTM with direction reverse, or a backward Scan."""
    return emit_sequence(ctx, present_operands(operands), reverse=True)


# --- both directions --------------------------------------------------------------------------


def bidirectional_patterns() -> Iterator[Call]:
    """Yield patterns of a forward LSTM with a backward LSTM as its sibling.

    The output of the backward LSTM may be reversed.
    """
    for slots, reversed_call in REVERSED.items():
        for backward_call in (lstm_call(x, backward, slots, BACKWARDS), reversed_call):
            yield lstm_call(x, forward, slots, siblings=(backward_call,))


def match_directions(match: Match) -> Mapping[str, Any] | Decline:
    """Return the common options of two float32 LSTMs, or a Decline.

    The result includes the option ``reversed_output``: True if the file leaves the output of the backward LSTM reversed.
    """
    options, backward_options = [op.options for op in match.calls.values() if op.code in (LSTM, BACKWARDS)]
    if match[x].dtype != "float32":
        return Decline("")
    if dict(options) != dict(backward_options):
        return Decline("the directions have different options")
    weights = [match[lstm_operands[slot]].dtype for lstm_operands in (forward, backward) for slot in (2, 6)]
    if len({*weights}) != 1 or match[forward[2]].shape != match[backward[2]].shape:
        return Decline("the directions have weights of different dtypes or sizes")
    is_reversed = time_axis in match.tensors
    if is_reversed and (reason := check_reversed_axis(match, options)):
        return reason
    return {**options, "merge_outputs": False, "reversed_output": is_reversed}


def bidirectional_operands() -> list[Operand]:
    """Return the operands in the slots of BIDIRECTIONAL_SEQUENCE_LSTM."""
    slots = {
        slot: lstm_operands[k]
        for lstm_operands, lstm_slots in ((forward, FORWARD_SLOTS), (backward, BACKWARD_SLOTS))
        for k, slot in enumerate(lstm_slots[:SLOT_COUNT])
    }
    absent = Operand("absent")  # occurs in no pattern, so its slots stay empty
    return [slots.get(slot, absent) for slot in range(48)]


@fusion(
    "BIDIRECTIONAL_SEQUENCE_LSTM_APART",
    pattern=list(bidirectional_patterns()),
    inputs=bidirectional_operands(),
    check=match_directions,
    layout=bidirectional_layout,
    axes=bidirectional_axes,
    quantization=bidirectional_weight_quantization,
    activation=bidirectional_sequence_lstm.activation,
)
def lstm_bidirectional(ctx: Context, *operands: Value | None) -> tuple[Value, ...]:
    """Emit a bidirectional LSTM, and a Slice if its backward output stays reversed."""
    forwards, backwards = bidirectional_sequence_lstm(ctx, *operands)
    if not ctx.options.reversed_output:
        return forwards, backwards
    return forwards, ctx.ops.Slice(backwards, [-1], [-(2**31) + 1], [0], [-1])
