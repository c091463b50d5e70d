"""Rounding of ties in sums of quantized values and a constant.

XNNPACK rounds ties up in fixed point, but QuantizeLinear rounds them to even.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Quantization, out

OFFSET_LSB = 2.0**-11
"""Offset in LSB that moves results away from a tie.

The offset exceeds the float32 rounding errors in sums and means of 8-bit values. It is too small to move any other
result across a tie. This also holds for bilinear interpolation at coordinates that are multiples of 1/32.
"""


def rounding_offset(op: Operator, sign: int) -> float:
    """Return the offset that makes ``x + sign * y`` round as in XNNPACK.

    The offset is 0 if the sum rounds correctly without it, or if no offset helps. An offset is needed, for example, for
    an image ``x / 127.5 - 1``: with a constant scalar operand, the sums of all 256 values may be ties.
    """
    tensors = (op[0], op[1], op[out(0)])
    parameters = [q for t in tensors if isinstance(q := t.quantization, Quantization) and not q.per_axis]
    constants = [k for k in (0, 1) if op[k].is_constant and math.prod(op[k].shape) == 1]
    dtypes = {tensor.dtype for tensor in tensors}
    if dtypes not in ({"int8"}, {"uint8"}) or len(constants) != 1 or len(parameters) != len(tensors):
        return 0.0
    scales, zero_points = [np.float32(q.scale[0]) for q in parameters], [q.zero_point[0] for q in parameters]
    all_values = np.arange(256) - (128 if tensors[0].dtype == "int8" else 0)
    x, y = (
        op[k].array.reshape(-1).astype(np.int64) - zero_points[k] if k in constants else all_values - zero_points[k]
        for k in (0, 1)
    )
    xnnpack_sums = xnnpack_sum(x, y, float(scales[0] / scales[2]), sign * float(scales[1] / scales[2]))
    real_sums = scales[0] * x.astype(np.float32) + np.float32(sign) * (scales[1] * y.astype(np.float32))
    offsets = (scales[2] * np.float32(offset) for offset in (0.0, OFFSET_LSB, -OFFSET_LSB))
    return next(
        (
            float(offset)
            for offset in offsets
            if np.array_equal(np.rint((real_sums + offset) / scales[2]), xnnpack_sums)
        ),
        0.0,
    )


def xnnpack_sum(x: Array, y: Array, x_factor: float, y_factor: float) -> Array:
    """Return ``x_factor * x + y_factor * y``, rounded half up as in XNNPACK.

    The multipliers have 21 bits. Source: xnn_init_qs8_add_minmax_scalar_params.
    """
    shift = 20 - math.frexp(max(abs(x_factor), abs(y_factor)))[1] + 1
    multipliers = [round(math.ldexp(factor, shift)) for factor in (x_factor, y_factor)]
    return np.asarray((x * multipliers[0] + y * multipliers[1] + (1 << shift - 1)) >> shift)
