"""Random numbers with the distributions of TensorFlow, but different sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Operator
from op_handlers.custom.select.nodedef import NodeDef, node_of
from op_handlers.custom.select.rewriting import rewrite_to
from op_handlers.math import random as builtin


def seeds(node: NodeDef, op: Operator) -> dict[str, Any]:
    return {"seed": node.integer("seed"), "seed2": node.integer("seed2")}


def generator(op: Operator) -> np.random.Generator:
    """Return NumPy's generator for the seeds; unseeded if both are 0."""
    seed, seed2 = seeds(node_of(op), op).values()
    return np.random.default_rng([seed & 2**64 - 1, seed2 & 2**64 - 1] if seed or seed2 else None)


def normal(op: Operator, shape: Array) -> Array:
    return np.asarray(generator(op).standard_normal(shape.tolist(), np.float32))


def uniform(op: Operator, shape: Array) -> Array:
    return np.asarray(generator(op).random(shape.tolist(), np.float32))


SHAPE_TYPES = "int32 int64 -> float32"
random_standard_normal = rewrite_to(
    "RandomStandardNormal", builtin.random_standard_normal, normal, options=seeds, types=SHAPE_TYPES
)
random_uniform = rewrite_to("RandomUniform", builtin.random_uniform, uniform, options=seeds, types=SHAPE_TYPES)
