"""Real values of quantized tensors: ``scale * (stored - zero point)``.

Scales and zero points are per tensor, per axis or per block.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.source.dtypes import QUANTIZED
from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Tensor


def affine(tensor: Tensor | None) -> Quantization | None:
    """Return the affine parameters of a quantized tensor, ``None`` for other tensors."""
    if tensor is None or tensor.dtype not in QUANTIZED:
        return None
    return tensor.quantization if isinstance(tensor.quantization, Quantization) else None


def is_quantized(tensor: Tensor) -> bool:
    """True if the tensor has a scale: per tensor, per channel or per block."""
    return affine(tensor) is not None or tensor.blocks is not None


def dequantize_constant(tensor: Tensor) -> Array:
    """Return the value of a quantized constant as float32."""
    if tensor.blocks is not None:
        by_block = tensor.array.astype(np.float32).reshape(-1, tensor.blocks.block_size)
        return (by_block * tensor.blocks.flat()[:, None]).reshape(tensor.shape)
    quantization = affine(tensor)
    assert quantization is not None
    broadcast_shape = [len(quantization.scale) if axis == quantization.axis else 1 for axis in range(tensor.rank)]
    scale = np.asarray(quantization.scale, np.float32).reshape(broadcast_shape)
    zero_point = np.asarray(quantization.zero_point, np.int32).reshape(broadcast_shape)
    return np.asarray((tensor.array.astype(np.int32) - zero_point).astype(np.float32) * scale)


def bias_scale(op: Operator, factors: tuple[int, int | float]) -> Array | None:
    """Return the scale of an integer bias as float64; None if a slot is not quantized.

    ``factors``: the bias scale is their product. An int is a slot and stands for its operand's scale, which may be per
    channel for the second factor. A float is a number.
    """
    first_slot, second_factor = factors
    first = affine(op[first_slot])
    second = affine(op[second_factor]) if isinstance(second_factor, int) else None
    if first is None or (second is None and isinstance(second_factor, int)):
        return None
    return first.scale[0] * np.atleast_1d(np.asarray(second.scale if second else second_factor, np.float64))
