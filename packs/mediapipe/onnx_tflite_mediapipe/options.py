"""Options stored as C structs (lite/core/c/builtin_op_data.h).

The structs are little-endian, as on every platform that TFLite runs on.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Decline,
    Instance,
    Operator,
    Refusal,
    activation_bounds,
    effective_activation,
)

PADDINGS = {1: "SAME", 2: "VALID"}
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Fused activations by number (``TfLiteFusedActivation``)."""


class TransposedConvolutionOptions(NamedTuple):
    """Fields of ``TfLiteTransposeConvParams`` that the kernel reads."""

    padding: str
    strides: tuple[int, int]


class PoolOptions(NamedTuple):
    """``TfLitePoolParams``; height before width."""

    padding: str
    strides: tuple[int, int]
    size: tuple[int, int]
    bounds: tuple[float | None, float | None]


def read_transposed_convolution_options(op: Operator) -> TransposedConvolutionOptions:
    """Return the options of a transposed convolution.

    Raises Refusal if the options are too short or have an unknown padding.
    """
    padding, width, height = _integers(op, 3)
    return TransposedConvolutionOptions(_padding(op, padding), (height, width))


def read_pool_options(op: Operator) -> PoolOptions:
    """Return the options of a pooling operator.

    Raises Refusal if the options are too short or have an unknown padding.
    """
    padding, stride_width, stride_height, width, height, activation = _integers(op, 6)
    return PoolOptions(_padding(op, padding), (stride_height, stride_width), (height, width), _bounds(activation))


def _bounds(number: int) -> tuple[float | None, float | None]:
    """Return the bounds of a fused activation; (None, None) for an unknown one.

    The kernels ignore unknown activations.
    """
    name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else "NONE"
    return activation_bounds(effective_activation(ActivationKernel.CLAMPED, name)) or (None, None)


def _integers(op: Operator, count: int) -> tuple[int, ...]:
    if len(op.custom_options) < 4 * count:
        raise Refusal(f"the options have {len(op.custom_options)} bytes, but the kernel reads {4 * count}")
    return struct.unpack_from(f"<{count}i", op.custom_options)


def _padding(op: Operator, number: int) -> str:
    if number not in PADDINGS:
        raise Refusal(f"padding is {number}; the kernel supports 1 (SAME) and 2 (VALID)")
    return PADDINGS[number]


def check_version(at: Instance) -> Decline | None:
    """Return a Decline for version 1, which MediaPipe does not register."""
    return None if at.op.version == 2 else Decline("MediaPipe only has version 2 kernels")
