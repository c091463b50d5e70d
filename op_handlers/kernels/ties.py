"""Halves that come of integers and one constant: XNNPACK rounds them in fixed point, QuantizeLinear to the even one."""

from __future__ import annotations

import math

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Quantization, out

LITTLE = 2.0**-11
"""LSB: more than float32 rounds off in sums and means of 8 bits, less than the next result of other numbers, or a mean of
places in 1/32, is from a half."""


def moved_from_halves(op: Operator, sign: int) -> float:
    """What is to be added to ``x + sign * y`` so that it rounds as XNNPACK's; 0 where it does, or nothing makes it so.

    Where one is a constant number and the other has the result's scale, as in ``x / 127.5 - 1`` of an image, either none or
    all of its 256 values come to halves.
    """
    slots = (op[0], op[1], op[out(0)])
    parameters = [q for t in slots if isinstance(q := t.quantization, Quantization) and not q.per_axis]
    constants = [k for k in (0, 1) if op[k].constant and math.prod(op[k].shape) == 1]
    dtypes = {tensor.dtype for tensor in slots}
    if dtypes not in ({"int8"}, {"uint8"}) or len(constants) != 1 or len(parameters) != len(slots):
        return 0.0
    scales, points = [np.float32(q.scale[0]) for q in parameters], [q.zero_point[0] for q in parameters]
    every = np.arange(256) - (128 if slots[0].dtype == "int8" else 0)
    x, y = (
        op[k].array.reshape(-1).astype(np.int64) - points[k] if k in constants else every - points[k] for k in (0, 1)
    )
    wanted = in_fixed_point(x, y, float(scales[0] / scales[2]), sign * float(scales[1] / scales[2]))
    real = scales[0] * x.astype(np.float32) + np.float32(sign) * (scales[1] * y.astype(np.float32))
    moves = (scales[2] * np.float32(move) for move in (0.0, LITTLE, -LITTLE))
    return next((float(move) for move in moves if np.array_equal(np.rint((real + move) / scales[2]), wanted)), 0.0)


def in_fixed_point(x: Array, y: Array, first: float, second: float) -> Array:
    """``first * x + second * y`` with multipliers of 21 bits, halves up (xnn_init_qs8_add_minmax_scalar_params)."""
    shift = 20 - math.frexp(max(abs(first), abs(second)))[1] + 1
    multipliers = [round(math.ldexp(ratio, shift)) for ratio in (first, second)]
    return np.asarray((x * multipliers[0] + y * multipliers[1] + (1 << shift - 1)) >> shift)
