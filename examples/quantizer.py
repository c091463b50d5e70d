"""Full-integer post-training quantization, as in TFLite's converter.

A real number is ``scale * (quantized - zero_point)``. Activations are int8 with one scale, from their range over the
training images. Convolution weights are int8 with a scale per output channel, dense weights int8 with one scale. A bias is
int32, with the scale of the products that it is added to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from network import Array, Arrays

LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True)
class Stored:
    """Storage of a tensor in the file: dtype, constant values, and scales (empty for floats)."""

    dtype: str = "float32"
    value: Array | None = None
    scale: Array = field(default_factory=lambda: np.empty(0))
    zero_point: int = 0
    axis: int = 0


def as_float(parameters: Arrays, activations: Arrays) -> dict[str, Stored]:
    """Return all tensors as float32."""
    computed = {name: Stored() for name in activations}
    return computed | {name: Stored(value=value) for name, value in parameters.items()}


def as_int8(parameters: Arrays, activations: Arrays, feeds: Mapping[str, str]) -> dict[str, Stored]:
    """Return all tensors quantized; ``feeds`` maps each layer with weights to the activation that it reads."""
    stored = {name: activation(values) for name, values in activations.items()}
    stored["probabilities"] = Stored(
        "int8", scale=np.array([1 / 256]), zero_point=LOWEST
    )  # SOFTMAX requires these parameters
    for layer, source in feeds.items():
        kernel = weights(parameters[f"{layer}/weights"])
        stored[f"{layer}/weights"] = kernel
        stored[f"{layer}/bias"] = bias(parameters[f"{layer}/bias"], stored[source], kernel)
    return stored


def activation(values: Array) -> Stored:
    """Return parameters that map the calibrated range to all 256 steps; 0 is one of them.

    The result of a RELU starts at 0, so its zero point is -128, and saturation computes the RELU.
    """
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / (HIGHEST - LOWEST)
    return Stored("int8", scale=np.array([scale]), zero_point=round(LOWEST - low / scale))


def weights(values: Array) -> Stored:
    """Return symmetric weights: the largest absolute value becomes 127, per channel for convolutions."""
    axis = 3 if values.shape[0] == 1 else 0  # depthwise kernels have their channels last
    reduced_axes = tuple(k for k in range(values.ndim) if k != axis) if values.ndim == 4 else None
    largest = np.abs(values).max(axis=reduced_axes, keepdims=True).astype(np.float64)
    scale = np.where(largest > 0, largest, 1.0) / HIGHEST
    return Stored("int8", np.round(values / scale).astype(np.int8), scale.reshape(-1), axis=axis)


def bias(values: Array, source: Stored, kernel: Stored) -> Stored:
    """Return the bias as int32 with the accumulator's scale: input scale × weight scale."""
    scale = source.scale * kernel.scale
    return Stored("int32", np.round(values / scale).astype(np.int32), scale)
