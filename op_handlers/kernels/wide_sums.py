"""Sums of 64 bits, which the kernels of int16 multiply by 15 bits: floats are multiplied as coarsely."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Quantization, Value, ValueLike, out
from op_handlers.kernels.fixed_point import of_15_bits, quantized_multiplier


def scaled_as_sums(ctx: Context, w: ValueLike, b: ValueLike | None, behind: int) -> tuple[ValueLike, ValueLike | None]:
    """The weights and bias of a convolution times what the kernel's multipliers are of the real ones.

    ``behind``: how many axes the weights have behind that of the channels. Those whose option says that the bias is int32
    are summed up in 32 bits (EvalQuantizedPerChannel16x8, conv.cc).
    """
    factors = coarse_multipliers(ctx)
    if factors is None or ctx.options.get("quantized_bias_type") == "INT32":
        return w, b
    by_channel = factors.reshape(-1, *[1] * behind) if factors.size > 1 else factors
    return ctx.ops.Mul(w, by_channel), None if b is None else ctx.ops.Mul(b, factors)


def scaled_as_sum(ctx: Context, product: Value) -> Value:
    """A product of matrices, as :func:`scaled_as_sums`."""
    factors = coarse_multipliers(ctx)
    return product if factors is None else ctx.ops.Mul(product, factors)


def coarse_multipliers(ctx: Context) -> Array | None:
    """What the kernel's multipliers, one a channel of the weights or one for all, are of the real ones; float32.

    None where the result is not of 16 bits. (MultiplyByQuantizedMultiplier of 64 bits, internal/common.cc)
    """
    tensors = [
        *(t for t in ctx.op.inputs[:3] if t is not None and t.dtype in ("int4", "int8", "int16")),
        ctx.op[out(0)],
    ]
    scales = [np.asarray(t.quantization.scale) for t in tensors if isinstance(t.quantization, Quantization)]
    if tensors[-1].dtype != "int16" or len(scales) != 3 or not all(scale.all() for scale in scales):
        return None
    real = scales[0] * scales[1] / scales[2]
    factors = np.asarray([rounded(float(each)) / each for each in np.ravel(real)], np.float32)
    return factors if factors.size > 1 else factors.reshape(())


def rounded(multiplier: float) -> float:
    """A multiplier of 15 bits, or 0 where the kernel takes it for that (QuantizeMultiplier, internal/quantization_util.cc)."""
    mantissa, exponent = quantized_multiplier(multiplier)
    return of_15_bits(mantissa) * 2.0 ** (exponent - 15) if exponent >= -31 else 0.0
