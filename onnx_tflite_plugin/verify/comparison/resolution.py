"""Errors of ONNX Runtime's own kernels, where they are more than a share of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import TensorValue

if TYPE_CHECKING:
    from onnx import ModelProto

ABSOLUTE: Mapping[str, float] = {"Sigmoid": 3 * 2.0**-24}
"""By ONNX operator: absolute errors of float32 kernels. A sigmoid is one half and a quotient of polynomials, so what comes near 0
has the rounding of one half, up to three units in its last place, and beyond -18 it is 0 (MlasComputeLogistic, mlas/lib/logistic.cpp).
"""
_MOVES = {"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}


def resolutions(proto: ModelProto, values: Sequence[TensorValue], subgraph: int) -> dict[int, float]:
    """Return the absolute error of the kernels by tensor of a subgraph; operators that only move elements pass it on."""
    errors: dict[str, float] = {}
    for node in proto.graph.node:
        error = ABSOLUTE.get(node.op_type, 0.0)
        if node.op_type in _MOVES:
            error = max((errors.get(name, 0.0) for name in node.input), default=0.0)
        if error:
            errors.update(dict.fromkeys(node.output, error))
    return {value.tensor: errors[value.name] for value in values if value.subgraph == subgraph and value.name in errors}
