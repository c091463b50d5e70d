"""LSTMs that take a sequence from its end, as Keras spells them: reversed in front, and behind as a rule.

Where another one takes the same sequence from its start, both are ONNX's LSTM of two directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from onnx_tflite_plugin.api import Call, Context, Decline, Match, Operand, Options, Value, fusion, operands, out
from op_handlers.kernels.operands import present_operands
from op_handlers.sequence.directions import both_axes, time_first_both
from op_handlers.sequence.lstm.bidirectional import AHEAD, BACK, bidirectional_sequence_lstm
from op_handlers.sequence.lstm.bidirectional import products as both_products
from op_handlers.sequence.lstm.handlers import ACTIVATED, newest, products, sequence_axes, through, time_first

LSTM, BACKWARDS = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM_BACKWARDS"
SLOTS = 24
INPUT_GATE, PEEPHOLES = (1, 5, 9, 12), (9, 10, 11)
ABSENT = (16, 17, *range(20, 24))  # projections and normalizations, which ONNX's LSTM lacks

(x,) = operands("x")
time, again = operands("time again", constant=True)
ahead, back = ((x, *operands(" ".join(f"{name}{slot}" for slot in range(1, SLOTS)))) for name in ("ahead", "back"))


def variants() -> Iterator[tuple[int, ...]]:
    """The operands that an LSTM may have: without an input gate of its own, with peepholes."""
    for coupled, peeps in product((False, True), repeat=2):
        left_out = {*ABSENT, *(INPUT_GATE if coupled else ()), *(() if peeps else PEEPHOLES)}
        yield tuple(slot for slot in range(1, SLOTS) if slot not in left_out)


def lstm(seen: Call | Operand, own: tuple[Operand, ...], slots: tuple[int, ...], code: str = LSTM, **more: Any) -> Call:
    return Call(code, seen, *(own[slot] for slot in slots), **more)


# --- from the end -----------------------------------------------------------------------------

REVERSED = {slots: lstm(Call("REVERSE_V2", x, time), back, slots) for slots in variants()}


def along_time(match: Match) -> Mapping[str, Any] | Decline:
    """The options of the LSTM between."""
    op = next(op for op in match.calls.values() if op.code == LSTM)
    for moved in (op for op in match.calls.values() if op.code != LSTM):
        if moved[0].quantization != moved[out(0)].quantization:
            return Decline("what is reversed has another scale behind, by which nothing is rescaled")
    return turned(match, op.options) or dict(op.options)


def turned(match: Match, options: Options) -> Decline | None:
    """Why what is around does not just reverse the sequence; None where it does."""
    axes = [match[operand].array.reshape(-1) % match[x].rank for operand in (time, again) if operand in match.tensors]
    if any(axis.tolist() != [0 if options.time_major else 1] for axis in axes):
        return Decline("what is around reverses another axis than time")
    return None


@fusion(
    BACKWARDS,
    pattern=[Call("REVERSE_V2", inner, again) for inner in REVERSED.values()],
    inputs=back,
    where=along_time,
    layout=time_first,
    axes=sequence_axes,
    quantization=products,
    activation=ACTIVATED,
    min_opset=newest,
)
def lstm_backwards(ctx: Context, *operands: Value | None) -> Value:
    """LSTM in reverse, or a Scan from the end."""
    return through(ctx, present_operands(operands), reverse=True)


# --- both ways --------------------------------------------------------------------------------


def pairs() -> Iterator[Call]:
    """One that runs back, reversed behind or not, is found beside one that runs ahead."""
    for slots, inner in REVERSED.items():
        for other in (lstm(x, back, slots, BACKWARDS), inner):
            yield lstm(x, ahead, slots, beside=(other,))


def alike(match: Match) -> Mapping[str, Any] | Decline:
    """What both do, in float32; ``turned``: whether nothing reverses what comes from the end."""
    options = [op.options for op in match.calls.values() if op.code in (LSTM, BACKWARDS)]
    shared = [dict(one) for one in options]
    if match[x].dtype != "float32":
        return Decline("")
    if shared[0] != shared[1]:
        return Decline("its directions have different options")
    weights = [match[own[slot]].dtype for own in (ahead, back) for slot in (2, 6)]
    if len({*weights}) != 1 or match[ahead[2]].shape != match[back[2]].shape:
        return Decline("its directions have weights of different dtypes or sizes")
    behind = time in match.tensors
    if behind and (reason := turned(match, options[0])):
        return reason
    return {**shared[0], "merge_outputs": False, "turned": behind}


def both_operands() -> list[Operand]:
    """Where BIDIRECTIONAL_SEQUENCE_LSTM has them."""
    slots = {slot: own[k] for own, places in ((ahead, AHEAD), (back, BACK)) for k, slot in enumerate(places[:SLOTS])}
    missing = Operand("missing")
    return [slots.get(slot, missing) for slot in range(48)]


@fusion(
    "BIDIRECTIONAL_SEQUENCE_LSTM_APART",
    pattern=list(pairs()),
    inputs=both_operands(),
    where=alike,
    layout=time_first_both,
    axes=both_axes,
    quantization=both_products,
    activation=bidirectional_sequence_lstm.activation,
)
def lstm_bidirectional(ctx: Context, *operands: Value | None) -> tuple[Value, ...]:
    """LSTM of both directions."""
    forwards, backwards = bidirectional_sequence_lstm(ctx, *operands)
    if not ctx.options.turned:
        return forwards, backwards
    return forwards, ctx.ops.Slice(backwards, [-1], [-(2**31) + 1], [0], [-1])
