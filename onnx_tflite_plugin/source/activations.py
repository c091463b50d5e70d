"""Fused activations, by the names that operators' options give them, and their float bounds."""

from __future__ import annotations

# Names of the schema's ActivationFunctionType → float bounds. The kernels of ADD, CONV_2D, ... clamp to these
# (CalculateActivationRange, kernels/kernel_util.h) and ignore TANH and SIGN_BIT.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
}

ACTIVATIONS = frozenset({*BOUNDS, "TANH", "SIGN_BIT"})
