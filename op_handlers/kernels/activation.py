"""Fused activations shared by several operators."""

from __future__ import annotations

from onnx_tflite_plugin.api import ActivationKernel, FusedActivation, Instance


def _clamped_kernel_family(at: Instance) -> ActivationKernel:
    """Return the kernel family of a clamped activation.

    float16 runs on XNNPACK only, which refuses TANH and SIGN_BIT.
    """
    return ActivationKernel.CLAMPED_ONLY if at.op[0].dtype == "float16" else ActivationKernel.CLAMPED


CLAMPED_UNLESS_FLOAT16 = FusedActivation(_clamped_kernel_family)
"""Fused activation of operators that compute float16 with XNNPACK only, which refuses TANH and SIGN_BIT."""
