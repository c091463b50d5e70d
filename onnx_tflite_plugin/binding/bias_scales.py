"""Comparison of declared bias scales with the scales in the file."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api.behavior import Behavior
from onnx_tflite_plugin.codes import has_custom_name
from onnx_tflite_plugin.source.affine import bias_scale
from onnx_tflite_plugin.source.model import Operator, Quantization

TOLERANCE = 0.02
"""Maximum relative difference between the two scales. The largest in 325 biases of public models is 1.2e-7."""


def describe_bias_scale(op: Operator, slot: int, behavior: Behavior) -> str:
    """Return a message if the declared scale of a bias contradicts the file; else "".

    Only custom operators are checked, because LiteRT's kernels of builtin operators ignore the scale in the file. A file
    without a scale for the bias contradicts nothing. Per-channel scales are compared by channel.
    """
    if not has_custom_name(op.code):
        return ""
    factors, tensor = behavior.biases[slot], op.tensor(slot)
    declared = bias_scale(op, factors)
    if declared is None or tensor is None or not isinstance(tensor.quantization, Quantization):
        return ""
    stored = np.asarray(tensor.quantization.scale, np.float64)
    if 1 not in (len(stored), len(declared)) and len(stored) != len(declared):
        return ""
    stored, declared = np.broadcast_arrays(stored, declared)
    differs = (stored > 0) & (np.abs(stored - declared) > TOLERANCE * np.maximum(stored, declared))
    if not differs.any():
        return ""
    first = int(np.argmax(differs))
    return (
        f"slot {slot} has the scale {stored[first]:.3g} in the file, but bias={{{slot}: {tuple(factors)}}} gives "
        f"{declared[first]:.3g}, so the bias is multiplied by {declared[first] / stored[first]:.3g}; correct the declaration"
    )
