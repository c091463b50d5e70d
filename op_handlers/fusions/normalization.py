"""Normalizations spelled out by Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operator,
    Terminate,
    fusion,
    operands,
)

x, gamma, beta, epsilon, axes = operands("x gamma beta epsilon axes")

_mean = Call("MEAN", x, axes, keep_dims=True)
_variance = Call("MEAN", Call("SQUARED_DIFFERENCE", x, _mean, commutes=True), axes, keep_dims=True)
_scale = Call("MUL", Call("RSQRT", Call("ADD", _variance, epsilon, commutes=True)), gamma, commutes=True)
KERAS = Call(
    "ADD",
    Call("MUL", x, _scale, commutes=True),
    Call("SUB", beta, Call("MUL", _mean, _scale, commutes=True)),
    commutes=True,
)


def last_axis_only(match: Match) -> Mapping[str, Any] | Decline:
    over, size, small = match.constant(axes), match[x].dims[-1], match.constant(epsilon)
    if over is None or {int(a) % match[x].rank for a in over.reshape(-1)} != {match[x].rank - 1}:
        return Decline("it normalizes over other axes than the last")
    if small is None or small.size != 1:
        return Decline("its epsilon is not a constant")
    if size is None or any(int(np.prod(match[operand].shape)) != size for operand in (gamma, beta)):
        return Decline("its scale or offset is not one number per element of the last axis")
    if match[x].dtype != "float32":
        return Decline(f"it computes in {match[x].dtype}")
    return {"epsilon": float(small.reshape(-1)[0])}


def normalized(op: Operator) -> str:
    """The scale and offset have the normalized axis last, and axes of size 1 before it."""
    units = [" ".join([f"u{k}{i}" for i in range(op[k].rank - 1)] + ["k"]) for k in (1, 2)]
    return f"... k, {units[0]}, {units[1]} -> ... k"


@fusion(
    "LAYER_NORMALIZATION",
    pattern=KERAS,
    inputs=(x, gamma, beta),
    where=last_axis_only,
    layout=Terminate(unordered="..."),
    axes=normalized,
    quantization=NotQuantizable(),
    min_opset=17,
)
def layer_normalization(ctx: Context, x: Any, gamma: Any, beta: Any) -> Any:
    """LayerNormalization over the last TFLite axis."""
    flat = [ctx.ops.Reshape(v, [-1]) for v in (gamma, beta)]
    return ctx.ops.LayerNormalization(x, *flat, axis=-1, epsilon=ctx.options.epsilon)
