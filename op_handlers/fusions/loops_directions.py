"""Two recurrent loops, one on the reversed sequence, fused into one bidirectional node."""

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
from op_handlers.fusions.loops import CARRIED, Directions, Layer, Result

LOOP, REVERSE = "WHILE_RECURRENT", "REVERSE_V2"
ARRAY = 2  # slot of the array of all outputs in Keras; the sequence is in the last slot

x, time, again, moved = *operands("x"), *operands("time again moved", constant=True)
AHEAD, BACK = (operands(" ".join(f"{name}{k}" for k in range(len(CARRIED) - 1))) for name in ("ahead", "back"))
REVERSED = Call(REVERSE, x, time, shared=True)
BACKWARDS = tuple(Call(LOOP, *BACK[:n], REVERSED) for n in range(ARRAY + 1, len(BACK) + 1))


def bidirectional_patterns() -> Iterator[Call]:
    """Yield a backward loop, its output reversed or not, beside a forward one."""
    for back in BACKWARDS:
        ahead = (*AHEAD[: len(back.operands) - 1], x)
        for code in ("TRANSPOSE", "RESHAPE"):
            yield Call(LOOP, *ahead, siblings=(Call(REVERSE, Call(code, back[ARRAY], moved), again),))
        yield Call(LOOP, *ahead, siblings=(back,))


def match_directions(match: Match) -> Mapping[str, Any] | Decline:
    """Return both layers and all results; a Decline unless the layers differ in weights and states only."""
    one, other = (call for call in match.calls if call.code == LOOP)
    if one in BACKWARDS:
        one, other = other, one
    layers: tuple[Layer, Layer] = (match.calls[one].options.layer, match.calls[other].options.layer)
    last = len(other.operands) - 1
    if any(len(layer.stages) != 1 or layer.sequence != last for layer in layers):
        return Decline("one of the loops has several stages, or another sequence")
    if cell_signature(layers[0]) != cell_signature(layers[1]):
        return Decline("the directions have cells of different kinds or sizes")
    output_reversal = next((call for call in match.calls if call.code == REVERSE and call is not REVERSED), None)
    expected_axes = [*((match[time], 0),), *(((match[again], 1),) if output_reversal else ())]
    if any((axes.array.reshape(-1) % 3).tolist() != [axis] for axes, axis in expected_axes):
        return Decline("REVERSE_V2 reverses another axis than time")
    if output_reversal is None:
        back = tuple(mark_backward(result) for result in layers[1].results)
    else:
        between = next(op for call, op in match.calls.items() if call.code in ("TRANSPOSE", "RESHAPE"))
        if layers[1].results[ARRAY].kind != "all" or not is_batch_first(between):
            return Decline("the reversed result is not the array of all outputs, batch first")
        back = (Result("batch_first", ARRAY, ARRAY, 1),)
    return {"layers": layers, "results": (*layers[0].results, *back)}


def cell_signature(layer: Layer) -> Sequence[Any]:
    """Return the properties that both directions of one node must share."""
    cell = layer.stages[0].cell
    weights = [(one.stored.shape, one.stored.dtype, one.scales is None) for one in (cell.inward, cell.recurrent)]
    return cell.op_type, cell.after, cell.activations, layer.trip_count, layer.stages[0].states, *weights


def mark_backward(result: Result) -> Result:
    """Return a result of the backward direction; its time steps are reversed."""
    return replace(result, kind="reversed" if result.kind == "all" else result.kind, direction=1)


def is_batch_first(op: Operator) -> bool:
    """True if the operator transposes (T, B, n) to (B, T, n)."""
    before, after = op[0], op[~0]
    if op.code == "TRANSPOSE":
        perm = op.constant(1)
        return perm is not None and perm.tolist() == [1, 0, 2]
    time, batch, size = before.dims
    return batch == 1 and time is not None and after.dims == (1, time, size)


@fusion(
    "WHILE_RECURRENT_BOTH_WAYS",
    pattern=list(bidirectional_patterns()),
    inputs=(x, *AHEAD, *BACK),
    check=match_directions,
    layout=Terminate(),
    quantization=NotQuantizable(),
)
def while_recurrent_both_ways(ctx: Context, sequence: Value, *carried: Value) -> tuple[Value | None, ...]:
    """Emit a bidirectional GRU, LSTM or RNN, in an If on the trip count where the loop may not run."""
    operands, first = (sequence, *carried), (1, 1 + len(AHEAD))
    return Directions(ctx, ctx.options.layers, operands, first, sequence, ctx.options.results).emit_results()
