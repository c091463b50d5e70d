"""Rounding errors in products of int16 activations.

The kernels rescale 64-bit accumulators by 15-bit multipliers.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Quantization, Value, ValueLike, out
from op_handlers.kernels.fixed_point import quantized_multiplier, round_to_15_bits


def scale_weights(
    ctx: Context, w: ValueLike, b: ValueLike | None, trailing_axes: int
) -> tuple[ValueLike, ValueLike | None]:
    """Return weights and bias times the error factor of 15-bit multipliers.

    ``trailing_axes``: number of weight axes after the channel axis. If the option quantized_bias_type is INT32, the
    kernel accumulates in 32 bits without this error (EvalQuantizedPerChannel16x8, conv.cc).
    """
    factors = multiplier_errors(ctx)
    if factors is None or ctx.options.get("quantized_bias_type") == "INT32":
        return w, b
    by_channel = factors.reshape(-1, *[1] * trailing_axes) if factors.size > 1 else factors
    return ctx.ops.Mul(w, by_channel), None if b is None else ctx.ops.Mul(b, factors)


def scale_product(ctx: Context, product: Value) -> Value:
    """Return a matrix product times the error factor of the 15-bit multiplier.

    See :func:`scale_weights`.
    """
    factors = multiplier_errors(ctx)
    return product if factors is None else ctx.ops.Mul(product, factors)


def multiplier_errors(ctx: Context) -> Array | None:
    """Return the kernel's 15-bit multipliers divided by the exact ones.

    There is one quotient per channel, or one for all channels. Return ``None`` unless the result is int16. Source:
    64-bit MultiplyByQuantizedMultiplier (internal/common.cc).
    """
    tensors = [
        *(t for t in ctx.op.inputs[:3] if t is not None and t.dtype in ("int4", "int8", "int16")),
        ctx.op[out(0)],
    ]
    scales = [np.asarray(t.quantization.scale) for t in tensors if isinstance(t.quantization, Quantization)]
    if tensors[-1].dtype != "int16" or len(scales) != 3 or not all(scale.all() for scale in scales):
        return None
    multipliers = scales[0] * scales[1] / scales[2]
    errors = np.asarray(
        [round_multiplier(float(multiplier)) / multiplier for multiplier in np.ravel(multipliers)], np.float32
    )
    return errors if errors.size > 1 else errors.reshape(())


def round_multiplier(multiplier: float) -> float:
    """Return a multiplier rounded to 15 bits, or 0 if its exponent is below -31.

    Source: QuantizeMultiplier (internal/quantization_util.cc).
    """
    mantissa, exponent = quantized_multiplier(multiplier)
    return round_to_15_bits(mantissa) * 2.0 ** (exponent - 15) if exponent >= -31 else 0.0
