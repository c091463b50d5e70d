"""Models of int8 operators, and their storage plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.quantization.plan import StoragePlan, plan_storage
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

QUANTIZATION = quant(0.05, 3)
SHAPE = (2, 3)


def plan_model(
    build: Callable[[GraphBuilder], None], target: str = "onnxruntime", **handlers: Handler
) -> tuple[BoundModel, StoragePlan]:
    """Return the bound model of a graph, and its storage plan."""
    model = ModelBuilder()
    build(model.main)
    bound = Host(packs="builtin", handlers=handlers).bind(read(model.build()), TARGETS[target], 18)
    resolved = resolve(bound, TARGETS[target], 18)
    return resolved, plan_storage(resolved, TARGETS[target])


def storage_by_name(model: BoundModel, plan: StoragePlan) -> dict[str, str]:
    """Return the storage dtype of each tensor by name."""
    return {t.name: plan.storage(t).dtype for graph in model.graphs for t in graph.subgraph.tensors}


def call(g: GraphBuilder, code: str, x: int, name: str, shape: tuple[int, ...] = SHAPE, **options: object) -> TensorRef:
    y = g.tensor(name, shape, "int8", quantization=QUANTIZATION)
    g.operator(code, [x], [y], options)
    return y


def dense(g: GraphBuilder, x: int, name: str = "y") -> TensorRef:
    w = g.constant("w", np.ones((3, 3), np.int8), quantization=quant(0.1))
    y = g.tensor(name, SHAPE, "int8", quantization=QUANTIZATION)
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    return y


def int8_input(g: GraphBuilder, name: str = "x") -> TensorRef:
    return g.input(name, SHAPE, "int8", quantization=QUANTIZATION)
