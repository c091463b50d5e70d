"""LSTMs on reversed sequences, as Keras decomposes them: REVERSE_V2 before, and usually after the LSTM.

If another LSTM reads the same sequence forwards, both become ONNX's bidirectional LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from onnx_tflite_plugin.api import Call, Context, Decline, Match, Operand, Options, Value, fusion, operands, out
from op_handlers.kernels.operands import present_operands
from op_handlers.sequence.directions import bidirectional_axes, bidirectional_layout
from op_handlers.sequence.lstm.bidirectional import AHEAD, BACK, bidirectional_sequence_lstm
from op_handlers.sequence.lstm.bidirectional import weight_quantization as both_products
from op_handlers.sequence.lstm.handlers import (
    CELL_ACTIVATION,
    emit_sequence,
    required_opset,
    sequence_axes,
    time_first,
    weight_quantization,
)

LSTM, BACKWARDS = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM_BACKWARDS"
SLOTS = 24
INPUT_GATE, PEEPHOLES = (1, 5, 9, 12), (9, 10, 11)
ABSENT = (16, 17, *range(20, 24))  # projections and normalizations, not expressible in ONNX's LSTM

(x,) = operands("x")
time, again = operands("time again", constant=True)
ahead, back = ((x, *operands(" ".join(f"{name}{slot}" for slot in range(1, SLOTS)))) for name in ("ahead", "back"))


def operand_variants() -> Iterator[tuple[int, ...]]:
    """Yield the slots of an LSTM's operands: with and without a coupled input gate, with and without peepholes."""
    for coupled, peeps in product((False, True), repeat=2):
        left_out = {*ABSENT, *(INPUT_GATE if coupled else ()), *(() if peeps else PEEPHOLES)}
        yield tuple(slot for slot in range(1, SLOTS) if slot not in left_out)


def lstm_call(
    seen: Call | Operand, own: tuple[Operand, ...], slots: tuple[int, ...], code: str = LSTM, **more: Any
) -> Call:
    """Return an LSTM's pattern with the operands of these slots."""
    return Call(code, seen, *(own[slot] for slot in slots), **more)


# --- backward direction -----------------------------------------------------------------------

REVERSED = {slots: lstm_call(Call("REVERSE_V2", x, time), back, slots) for slots in operand_variants()}


def match_reversed(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of the reversed LSTM."""
    op = next(op for op in match.calls.values() if op.code == LSTM)
    for reversal in (op for op in match.calls.values() if op.code != LSTM):
        if reversal[0].quantization != reversal[out(0)].quantization:
            return Decline("REVERSE_V2 changes scale or zero point")
    return check_reversed_axis(match, op.options) or dict(op.options)


def check_reversed_axis(match: Match, options: Options) -> Decline | None:
    """Return a Decline unless REVERSE_V2 reverses the time axis only."""
    axes = [match[operand].array.reshape(-1) % match[x].rank for operand in (time, again) if operand in match.tensors]
    if any(axis.tolist() != [0 if options.time_major else 1] for axis in axes):
        return Decline("REVERSE_V2 reverses another axis than time")
    return None


@fusion(
    BACKWARDS,
    pattern=[Call("REVERSE_V2", inner, again) for inner in REVERSED.values()],
    inputs=back,
    check=match_reversed,
    layout=time_first,
    axes=sequence_axes,
    quantization=weight_quantization,
    activation=CELL_ACTIVATION,
    min_opset=required_opset,
)
def lstm_backwards(ctx: Context, *operands: Value | None) -> Value:
    """Emit a reverse LSTM, or a backward Scan."""
    return emit_sequence(ctx, present_operands(operands), reverse=True)


# --- both directions --------------------------------------------------------------------------


def bidirectional_patterns() -> Iterator[Call]:
    """Yield a backward LSTM, its output reversed or not, beside a forward one."""
    for slots, inner in REVERSED.items():
        for other in (lstm_call(x, back, slots, BACKWARDS), inner):
            yield lstm_call(x, ahead, slots, siblings=(other,))


def match_directions(match: Match) -> Mapping[str, Any] | Decline:
    """Return the common options of both float32 LSTMs; ``reversed_output``: the backward output stays reversed."""
    options = [op.options for op in match.calls.values() if op.code in (LSTM, BACKWARDS)]
    options_by_direction = [dict(one) for one in options]
    if match[x].dtype != "float32":
        return Decline("")
    if options_by_direction[0] != options_by_direction[1]:
        return Decline("the directions have different options")
    weights = [match[own[slot]].dtype for own in (ahead, back) for slot in (2, 6)]
    if len({*weights}) != 1 or match[ahead[2]].shape != match[back[2]].shape:
        return Decline("the directions have weights of different dtypes or sizes")
    is_reversed = time in match.tensors
    if is_reversed and (reason := check_reversed_axis(match, options[0])):
        return reason
    return {**options_by_direction[0], "merge_outputs": False, "reversed_output": is_reversed}


def bidirectional_operands() -> list[Operand]:
    """Return the operands in the slots of BIDIRECTIONAL_SEQUENCE_LSTM."""
    slots = {slot: own[k] for own, places in ((ahead, AHEAD), (back, BACK)) for k, slot in enumerate(places[:SLOTS])}
    missing = Operand("missing")
    return [slots.get(slot, missing) for slot in range(48)]


@fusion(
    "BIDIRECTIONAL_SEQUENCE_LSTM_APART",
    pattern=list(bidirectional_patterns()),
    inputs=bidirectional_operands(),
    check=match_directions,
    layout=bidirectional_layout,
    axes=bidirectional_axes,
    quantization=both_products,
    activation=bidirectional_sequence_lstm.activation,
)
def lstm_bidirectional(ctx: Context, *operands: Value | None) -> tuple[Value, ...]:
    """Emit a bidirectional LSTM."""
    forwards, backwards = bidirectional_sequence_lstm(ctx, *operands)
    if not ctx.options.reversed_output:
        return forwards, backwards
    return forwards, ctx.ops.Slice(backwards, [-1], [-(2**31) + 1], [0], [-1])
