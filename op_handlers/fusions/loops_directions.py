"""Recurrent loops on a sequence and on the reversed sequence, fused into one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operator,
    Terminate,
    Value,
    fusion,
    operands,
)
from op_handlers.fusions.loops import CARRIED_OPERANDS, Directions, Layer, Result

LOOP, REVERSE = "WHILE_RECURRENT", "REVERSE_V2"
ARRAY_SLOT = 2  # slot of the array of all outputs in Keras loops; their last slot is the sequence

x, time_axis, output_time_axis, perm_or_shape = (
    *operands("x"),
    *operands("time_axis output_time_axis perm_or_shape", constant=True),
)
FORWARD, BACKWARD = (
    operands(" ".join(f"{name}{k}" for k in range(len(CARRIED_OPERANDS) - 1))) for name in ("forward", "backward")
)
REVERSED = Call(REVERSE, x, time_axis, shared=True)
BACKWARD_LOOPS = tuple(Call(LOOP, *BACKWARD[:n], REVERSED) for n in range(ARRAY_SLOT + 1, len(BACKWARD) + 1))


def bidirectional_patterns() -> Iterator[Call]:
    """Yield patterns of a forward loop with a backward loop as its sibling.

    The output of the backward loop may be reversed.
    """
    for backward_call in BACKWARD_LOOPS:
        forward_operands = (*FORWARD[: len(backward_call.operands) - 1], x)
        for code in ("TRANSPOSE", "RESHAPE"):
            yield Call(
                LOOP,
                *forward_operands,
                siblings=(Call(REVERSE, Call(code, backward_call[ARRAY_SLOT], perm_or_shape), output_time_axis),),
            )
        yield Call(LOOP, *forward_operands, siblings=(backward_call,))


def match_directions(match: Match) -> Mapping[str, Any] | Decline:
    """Return the layers and results of both loops, or a Decline.

    The layers may differ only in the values of weights and initial states.
    """
    forward_call, backward_call = (call for call in match.calls if call.code == LOOP)
    if forward_call in BACKWARD_LOOPS:
        forward_call, backward_call = backward_call, forward_call
    layers: tuple[Layer, Layer] = (match.calls[forward_call].options.layer, match.calls[backward_call].options.layer)
    last_slot = len(backward_call.operands) - 1
    if any(len(layer.stages) != 1 or layer.sequence_slot != last_slot for layer in layers):
        return Decline("one of the loops has several stages, or reads a different sequence")
    if cell_signature(layers[0]) != cell_signature(layers[1]):
        return Decline("the directions have cells of different kinds or sizes")
    output_reversal = next((call for call in match.calls if call.code == REVERSE and call is not REVERSED), None)
    reversed_axes = [(match[time_axis], 0)]
    if output_reversal:
        reversed_axes.append((match[output_time_axis], 1))
    if any((axes.array.reshape(-1) % 3).tolist() != [expected_axis] for axes, expected_axis in reversed_axes):
        return Decline("REVERSE_V2 reverses an axis other than time")
    if output_reversal is None:
        backward_results = tuple(mark_backward(result) for result in layers[1].results)
    else:
        batch_first_op = next(op for call, op in match.calls.items() if call.code in ("TRANSPOSE", "RESHAPE"))
        if layers[1].results[ARRAY_SLOT].kind != "all" or not is_batch_first(batch_first_op):
            return Decline("the reversed tensor is not the full output sequence in batch-first layout")
        backward_results = (Result("batch_first", ARRAY_SLOT, ARRAY_SLOT, 1),)
    return {"layers": layers, "results": (*layers[0].results, *backward_results)}


def cell_signature(layer: Layer) -> Sequence[Any]:
    """Return the properties that both directions of one node must share."""
    cell = layer.stages[0].cell
    weights = [
        (matrix.values.shape, matrix.values.dtype, matrix.scales is None)
        for matrix in (cell.input_weights, cell.recurrent_weights)
    ]
    return (
        cell.op_type,
        cell.linear_before_reset,
        cell.activations,
        layer.trip_count_slot,
        layer.stages[0].state_slots,
        *weights,
    )


def mark_backward(result: Result) -> Result:
    """Return a result of the loop on the reversed sequence as a backward result."""
    return replace(result, kind="reversed" if result.kind == "all" else result.kind, direction=1)


def is_batch_first(op: Operator) -> bool:
    """True if the operator transposes or reshapes (T, B, n) to (B, T, n)."""
    source, result = op[0], op[~0]
    if op.code == "TRANSPOSE":
        perm = op.constant(1)
        return perm is not None and perm.tolist() == [1, 0, 2]
    time, batch, size = source.dims
    return batch == 1 and time is not None and result.dims == (1, time, size)


@fusion(
    "WHILE_RECURRENT_BOTH_WAYS",
    pattern=list(bidirectional_patterns()),
    inputs=(x, *FORWARD, *BACKWARD),
    check=match_directions,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent_both_ways(ctx: Context, sequence: Value, *carried: Value) -> tuple[Value | None, ...]:
    """Emit a bidirectional GRU, LSTM or RNN.

    If the sequence may be empty, the node is inside an If.
    """
    operands, offsets = (sequence, *carried), (1, 1 + len(FORWARD))
    return Directions(ctx, ctx.options.layers, operands, offsets, sequence, ctx.options.results).emit_results()
