"""Window function over each frame, in integers."""

from __future__ import annotations

import numpy as np

from onnx_tflite_audio.arithmetic import emit_shift_right
from onnx_tflite_plugin.api import Array, Context, Decline, Instance, Operator, Raw, Transparent, Value, handler

MIN_INT16, MAX_INT16 = -(1 << 15), (1 << 15) - 1


def check_frames(at: Instance) -> Decline | None:
    """Return a Decline unless frames are as long as the window.

    The kernel reads the input in steps of the window's length.
    """
    if "shift" not in at.op.options:
        return Decline("the options lack shift")
    length, frame = at.op[1].dims[-1], at.op[0].dims[-1]
    return (
        None
        if length is not None and length == frame
        else Decline(f"a window of length {length} does not fit a frame of {frame} samples")
    )


def apply_window(op: Operator, x: Array, weights: Array) -> Array:
    """Return the product, shifted right (rounding down) and saturated.

    The kernel is ApplyWindow, window.cc.
    """
    product = x.astype(np.int64) * weights.astype(np.int64)
    return np.asarray(np.clip(product >> op.options.shift, MIN_INT16, MAX_INT16), np.int16)


@handler(
    "CUSTOM.SignalWindow",
    max_version=1,
    layout=Transparent(),
    quantization=Raw(),
    types="int16, int16 -> int16",
    accepts=check_frames,
    kernel=apply_window,
)
def window(ctx: Context, x: Value, weights: Value) -> Value:
    """Emit Mul, a shift, Min and Max."""
    ops = ctx.ops
    product = ops.Mul(ops.Cast(x, to="int64"), ops.Cast(weights, to="int64"))
    return ops.Cast(
        ops.Min(ops.Max(emit_shift_right(ctx, product, ctx.options.shift), MIN_INT16), MAX_INT16), to="int16"
    )
