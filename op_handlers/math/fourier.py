"""Fourier transforms."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Terminate, Value, handler
from op_handlers.kernels.operands import as_int64


@handler("RFFT2D", max_version=1, layout=Terminate(), min_opset=17, types="float32, int32 -> complex64")
def rfft_2d(ctx: Context, x: Value, lengths: Value) -> Value:
    """DFT of each row, one-sided, then of each column; both cut or pad to their length, which is a power of two (rfft2d.cc)."""
    ops, rank = ctx.ops, ctx.op[0].rank
    sizes = as_int64(ctx, 1, lengths)
    height, width = (
        sizes[k].reshape(()) if isinstance(sizes, np.ndarray) else ops.Gather(sizes, np.asarray(k)) for k in (0, 1)
    )
    value = ops.Unsqueeze(x, [rank] if rank > 2 else [0, 3])  # a batch in front, pairs behind
    axis = max(rank, 3) - 1
    for length, at, onesided in ((width, axis, 1), (height, axis - 1, 0)):
        value = ops.DFT(value, length, np.asarray(at), onesided=onesided)
    return value if rank > 2 else ops.Squeeze(value, [0])
