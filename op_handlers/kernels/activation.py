"""Fused activations that several operators share."""

from __future__ import annotations

from onnx_tflite_plugin.api import ActivationKernel, FusedActivation, Instance


def _unless_float16(at: Instance) -> ActivationKernel:
    return ActivationKernel.CLAMPED_ONLY if at.op[0].dtype == "float16" else ActivationKernel.CLAMPED


CLAMPED_UNLESS_FLOAT16 = FusedActivation(_unless_float16)
"""Kernel family of operators that compute float16 with XNNPACK alone, which refuses TANH and SIGN_BIT."""
