"""``--optimize readable``: a graph as a textbook draws it, with names that say what a constant is for; and short names."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder

EXAMPLES = Path(__file__).parents[2] / "examples"


def names(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in (*node.input, *node.output) if name}


@pytest.mark.int8_products
def test_quantized_network_has_no_if_and_uint8_weights() -> None:
    conversion = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable", verify=True)
    graph = conversion.proto.graph
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert {"If", "MatMulInteger"}.isdisjoint(node.op_type for node in graph.node)
    assert conversion.report.passes == {}
    assert conversion.report.weights == {"uint8": 3, "int8": 1}  # no sum of the depthwise convolution can overflow
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    made = {output: node.op_type for node in graph.node for output in node.output}
    assert {made[name] for node in convolutions for name in node.input} == {"DequantizeLinear"}


def test_requested_weight_dtype_is_kept() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable", weights_dtype="int8").proto.graph
    assert onnx.TensorProto.INT8 in {i.data_type for i in graph.initializer}


def test_constants_are_named_by_tensor_or_role() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    stored = {initializer.name for initializer in graph.initializer}
    assert {
        "strokes/weights",
        "strokes/weights/scale",
        "strokes/bias/scale",
        "strokes/scale",
        "features/axes",
    } <= stored
    assert not [name for name in stored if name.rpartition("/")[2].startswith("constant")]
    assert len(stored) == len(graph.initializer)


@pytest.mark.parametrize("optimize", ["none", "readable", "faithful"])
def test_internal_names_keep_the_end_of_long_ones_and_interface_names_are_whole(optimize: str) -> None:
    long = "scope/" * 40
    model = ModelBuilder()
    g = model.main
    x = g.input(f"{long}input", (2, 3))
    y = g.tensor(f"{long}inner", (2, 3))
    g.operator("NEG", [x], [y])
    g.operator("EXP", [y], [z := g.tensor(f"{long}output", (2, 3))])
    g.output(z)
    graph = otp.convert(model.build(), optimize=optimize).proto.graph  # type: ignore[arg-type]
    assert [graph.input[0].name, graph.output[0].name] == [f"{long}input", f"{long}output"]
    (inner,) = names(graph) - {f"{long}input", f"{long}output"}
    assert inner.endswith("scope/inner")
    assert len(inner) <= 80
