"""A window over each frame, in integers."""

from __future__ import annotations

import numpy as np

from onnx_tflite_audio.arithmetic import shifted_right
from onnx_tflite_plugin.api import Array, Context, Decline, Instance, Operator, Raw, Transparent, Value, handler

LEAST, MOST = -(1 << 15), (1 << 15) - 1


def whole_frames(at: Instance) -> Decline | None:
    """The kernel goes over the input in steps of the window's length, whatever the input's axes are."""
    if "shift" not in at.op.options:
        return Decline("its options lack shift")
    length, frame = at.op[1].dims[-1], at.op[0].dims[-1]
    return (
        None if length is not None and length == frame else Decline(f"its window of {length} is not a frame of {frame}")
    )


def kernel(op: Operator, x: Array, weights: Array) -> Array:
    """The product, shifted right and saturated (ApplyWindow, window.cc); a shift of a negative number rounds down."""
    product = x.astype(np.int64) * weights.astype(np.int64)
    return np.asarray(np.clip(product >> op.options.shift, LEAST, MOST), np.int16)


@handler(
    "CUSTOM.SignalWindow",
    max_version=1,
    layout=Transparent(),
    quantization=Raw(),
    types="int16, int16 -> int16",
    accepts=whole_frames,
    kernel=kernel,
)
def window(ctx: Context, x: Value, weights: Value) -> Value:
    """Mul, a shift, Min and Max."""
    ops = ctx.ops
    product = ops.Mul(ops.Cast(x, to="int64"), ops.Cast(weights, to="int64"))
    return ops.Cast(ops.Min(ops.Max(shifted_right(ctx, product, ctx.options.shift), LEAST), MOST), to="int16")
