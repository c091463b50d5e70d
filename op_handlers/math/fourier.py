"""Fourier transforms."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Instance, Terminate, Value, handler
from op_handlers.kernels.operands import cast_to_int64


def check_width(at: Instance) -> Decline | None:
    lengths = at.op.constant(1)
    if lengths is not None and lengths.reshape(-1)[1:].tolist() == [1]:
        return Decline(
            "for rows of one number LiteRT's kernel confuses real and imaginary parts (Rfft2dReorder, rfft2d.cc)"
        )
    return None


@handler(
    "RFFT2D",
    max_version=1,
    layout=Terminate(),
    min_opset=17,
    types="float32, int32 -> complex64",
    accepts=check_width,
)
def rfft_2d(ctx: Context, x: Value, lengths: Value) -> Value:
    """Emit DFT of each row, one-sided, then of each column (rfft2d.cc).


    Rows and columns are cropped or padded to their lengths, which are powers of two.
    """
    ops, rank = ctx.ops, ctx.op[0].rank
    sizes = cast_to_int64(ctx, 1, lengths)
    height, width = (
        sizes[k].reshape(()) if isinstance(sizes, np.ndarray) else ops.Gather(sizes, np.asarray(k)) for k in (0, 1)
    )
    if 0 in ctx.op[0].dims[-2:]:  # an empty input gives zeros, but DFT refuses it
        x = ops.Pad(x, np.asarray([0] * (2 * rank - 2) + [1, 1]), np.float32(0), mode="constant")
    value = ops.Unsqueeze(x, [rank] if rank > 2 else [0, 3])  # leading batch axis, trailing axis of pairs
    axis = max(rank, 3) - 1
    for length, at, onesided in ((width, axis, 1), (height, axis - 1, 0)):
        value = ops.DFT(value, length, np.asarray(at), onesided=onesided)
    return value if rank > 2 else ops.Squeeze(value, [0])
