"""Arithmetic with constants behind a convolution or a dense layer, put into its weights and bias.

The same real numbers with fewer roundings: each weight and each bias is rounded once, where every element of the result
was rounded for every operator. What is quantized rounds to integers in between, so there it is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Call, Context, Decline, Handler, Match, Operand, Operator, fusion, operands, out
from op_handlers.convolution import conv_2d, depthwise_conv_2d, transpose_conv
from op_handlers.matrix import fully_connected

x, shape = operands("x shape")
w, bias, first, second = operands("w bias first second", constant=True)
FUSED = "fused_activation_function"
RAMPS = {"NONE": None, "RELU": None, "RELU6": 6.0}
"""Activations that let a positive factor through: where they end."""


def chains(code: str, *taken: Operand) -> tuple[Call, ...]:
    """One or two steps behind the operator, which has a bias or none."""
    return tuple(last for base in (Call(code, *taken, bias), Call(code, *taken)) for last in steps(base))


def steps(base: Call) -> Iterator[Call]:
    for code in ("MUL", "ADD", "SUB"):
        step = Call(code, base, first, commutes=code != "SUB")
        for more in ("MUL", "ADD", "SUB"):
            yield Call(more, step, second, commutes=more != "SUB")
        yield step


def constant_per_channel(match: Match) -> Mapping[str, Any] | Decline:
    """The options of the operator in front, with the steps behind it and the last one's activation."""
    *reverse, base = match.calls.values()
    behind = reverse[::-1]
    if match[x].dtype != "float32":
        return Decline(f"it computes in {match[x].dtype}, which is rounded in between")
    if match[w].dtype != "float32" or (bias in match.tensors and match[bias].dtype != "float32"):
        return Decline(f"its weights are {match[w].dtype}")
    if bias not in match.tensors and sum(t is not None for t in base.inputs) != sum(o in match.tensors for o in (x, shape, w)):
        return Decline("its bias is no constant")
    numbers = [match.constant(operand) for operand in (first, second)[: len(behind)]]
    channels = base[out(0)].dims[-1]
    if not all(held is not None and per_channel(held, channels, base[out(0)].rank) for held in numbers):
        return Decline("a constant is not one number, or one number per channel")
    activation = let_through([base, *behind], numbers)
    if isinstance(activation, Decline):
        return activation
    return {**base.options, "steps": tuple(op.code for op in behind), **activation}


def per_channel(held: Array, channels: int | None, rank: int) -> bool:
    alone = held.ndim <= rank and held.size in (1, channels) and (held.size == 1 or held.shape[-1] == channels)
    return alone and bool(np.isfinite(held).all())


def let_through(ops: Sequence[Operator], numbers: Sequence[Any]) -> Mapping[str, Any] | Decline:
    """The activation of the whole. One in front of the last step is let through by a positive factor, its end is scaled."""
    *earlier, before, last = (op.options.get(FUSED, "NONE") for op in ops)
    if any(activation != "NONE" for activation in earlier) or before not in RAMPS:
        return Decline(f"{before} comes in between")
    if before == "NONE":
        return {FUSED: last, "end": None}
    factor = numbers[-1]
    if last != "NONE" or ops[-1].code != "MUL" or not (factor > 0).all() or (RAMPS[before] and factor.size > 1):
        return Decline(f"{before} comes in between")
    end = RAMPS[before]
    return {FUSED: "RELU", "end": None} if end is None else {FUSED: "NONE", "end": end * factor.item()}


def absorbed(ctx: Context, base: Handler, *operands: Any, weight: int, channel: int) -> Any:
    """The operator in front, lowered with weights and a bias that the steps behind it went into."""
    weights, biases = ctx.constant(weight), ctx.constant(weight + base_bias(weight))
    assert weights is not None
    channels = weights.shape[ctx.axis(channel, weight)]
    along = [channels if axis == channel else 1 for axis in ctx.perm(weight)]
    scaled, added = weights.astype(np.float64), np.zeros(channels) if biases is None else biases.astype(np.float64)
    for k, code in enumerate(ctx.options.steps):
        held = ctx.op.constant(len(operands) + k)
        assert held is not None
        number = np.broadcast_to(held.reshape(-1).astype(np.float64), [channels])
        if code == "MUL":
            scaled, added = scaled * number.reshape(along), added * number
        else:
            added = added + (number if code == "ADD" else -number)
    return scaled, added
