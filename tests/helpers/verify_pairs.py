"""Pairs of a TFLite model and a handwritten ONNX model, for tests of verification."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.source.model import Array

FLOAT, INT8, UINT8, INT32 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32


def build_model(build: Callable[[Any], None], name: str = "") -> bytes:
    model = ModelBuilder(name)
    build(model.main)
    return model.build()


def build_chain(g: Any) -> None:
    """Build |-(x + c)|."""
    x = g.input("x", (1, 2, 3, 5))
    tensors = [g.tensor(name, (1, 2, 3, 5)) for name in ("sum", "negated", "y")]
    g.operator("ADD", [x, g.constant("c", np.arange(5, dtype=np.float32))], [tensors[0]])
    g.operator("NEG", [tensors[0]], [tensors[1]])
    g.operator("ABS", [tensors[1]], [tensors[2]])
    g.output(tensors[2])


def value_info_with_tensor(
    name: str, elem_type: int, shape: Sequence[int | str], **metadata: Any
) -> onnx.ValueInfoProto:
    info = helper.make_tensor_value_info(name, elem_type, shape)
    for key, value in metadata.items():
        info.metadata_props.add(key=f"onnx_tflite_plugin.{key}", value=str(value))
    return info


def onnx_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Array] | None = None,
    values: Sequence[onnx.ValueInfoProto] = (),
    state: object = None,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers, value_info=values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if state is not None:
        helper.set_model_props(model, {"onnx_tflite_plugin.state": json.dumps(state)})
    return model


def channels_first(offset: float = 0.0, middle: str = "Neg", scale: float = 1.0) -> onnx.ModelProto:
    """Return the channels-first ONNX model of ``build_chain``, with metadata."""
    constant = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    constant[3] += offset
    nodes = [
        helper.make_node("Transpose", ["x"], ["xt"], perm=[0, 3, 1, 2]),
        helper.make_node("Add", ["xt", "c"], ["sum"]),
        helper.make_node(middle, ["sum"], ["negated"]),
        helper.make_node("Abs", ["negated"], ["yt"]),
        helper.make_node("Transpose", ["yt"], ["y0"], perm=[0, 2, 3, 1]),
        helper.make_node("Mul", ["y0", "k"], ["y"]),
    ]
    transposed_values = [
        value_info_with_tensor(name, FLOAT, [1, 5, 2, 3], tensor=f"0:{tensor}", order="0,3,1,2", form="float")
        for name, tensor in (("sum", 1), ("negated", 2), ("yt", 3))
    ]
    interface = [
        value_info_with_tensor(name, FLOAT, [1, 2, 3, 5], tensor=tensor)
        for name, tensor in (("x", "0:0"), ("y", "0:3"))
    ]
    return onnx_model(
        nodes, interface[:1], interface[1:], {"c": constant, "k": np.array(scale, np.float32)}, transposed_values
    )


def two_signatures() -> bytes:
    """Return a model with NEG in the main subgraph and EXP in another, each with a signature."""
    model = ModelBuilder()
    for name, code in (("first", "NEG"), ("second", "EXP")):
        graph = model.main if name == "first" else model.subgraph(name)
        x, y = graph.input("x", (3,)), graph.tensor("y", (3,))
        graph.operator(code, [x], [y])
        graph.output(y)
        model.signature(name, {"a": x}, {"b": y}, subgraph=0 if name == "first" else 1)
    return model.build()
