"""Conversion end to end: names, inputs, outputs, files, errors, metadata."""

from __future__ import annotations

import gc
import json
import os
import re
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from ai_edge_litert import schema_py_generated

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from conformance.cases import builtin_cases
from conformance.models import Net, tensor
from onnx_tflite_plugin import conversion as stage
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from tests.helpers.wrong_models import without_digest


def unary(g: GraphBuilder, code: str, x: TensorRef, name: str = "y") -> TensorRef:
    y = g.tensor(name, x.shape)
    g.operator(code, [x], [y])
    return y


def network(**names: str) -> bytes:
    """Return a model with outputs relu(x) and -relu(x)."""
    model = ModelBuilder()
    g = model.main
    x = g.input(names.get("x", "x"), (2, 3))
    y = unary(g, "RELU", x, names.get("y", "y"))
    z = unary(g, "NEG", y, names.get("z", "z"))
    g.output(y, z)
    return model.build()


def interface(conversion: otp.Conversion) -> tuple[list[str], list[str]]:
    graph = conversion.proto.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def test_inputs_and_outputs_keep_names_and_order() -> None:
    assert interface(otp.convert(network())) == (["x"], ["y", "z"])


def test_empty_and_repeated_names_get_the_tensor_index() -> None:
    assert interface(otp.convert(network(x="", y="z", z="z"))) == (["#0"], ["z", "z#2"])
    assert verify(network(x="", y="z", z="z"), otp.convert(network(x="", y="z", z="z")).proto.SerializeToString()).ok


def test_signature_names_graph_inputs_and_outputs() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("serving_x:0", (2, 3))
    y = unary(g, "NEG", x, "PartitionedCall:0")
    g.output(y)
    model.signature("serving_default", {"image": x}, {"scores": y})
    assert interface(otp.convert(model.build(), signature="serving_default")) == (["image"], ["scores"])
    with pytest.raises(otp.ConversionError, match="available signatures: 'serving_default'"):
        otp.convert(model.build(), signature="other")


def two_signatures() -> bytes:
    """Return a model with the signatures "negate" and "add".

    "negate" is the main subgraph; "add" is quantized and has a state.
    """
    model = ModelBuilder()
    g = model.main
    x = g.input("a", (2, 3))
    g.output(unary(g, "NEG", x, "b"))
    model.signature("negate", {"x": 0}, {"y": 1})
    subgraph = model.subgraph("other")
    parameters = quant(0.05, -3)
    u, v = (subgraph.input(name, (5, 7), "int8", quantization=parameters) for name in ("u", "v"))
    w = subgraph.tensor("w", (5, 7), "int8", quantization=quant(0.07, 4))
    subgraph.operator("ADD", [u, v], [w])
    subgraph.output(w)
    model.signature("add", {"value": u, "state": v}, {"state": w}, subgraph=subgraph.index)
    return model.build()


@pytest.mark.parametrize(("key", "names"), [("negate", (["x"], ["y"])), ("add", (["value", "state"], ["state:next"]))])
def test_each_signature_is_converted_and_verified(key: str, names: tuple[list[str], list[str]]) -> None:
    conversion = otp.convert(two_signatures(), signature=key, verify=True)
    assert interface(conversion) == names
    assert verify(two_signatures(), conversion.proto.SerializeToString(), signature=key).ok
    codes = {"negate": {"NEG": 1}, "add": {"ADD": 1}}
    assert conversion.report.operators == codes[key]


def test_signature_exports_every_name_and_inner_tensors() -> None:
    """Some signatures name quantized tensors, whose DEQUANTIZE is the graph output."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3), "int8", quantization=quant(0.05, -3))
    inner = g.tensor("inner", (2, 3), "int8", quantization=quant(0.07, 4))
    g.operator("ADD", [x, x], [inner])
    g.output(unary(g, "DEQUANTIZE", inner, "outer"), unary(g, "DEQUANTIZE", x, "unnamed"))
    model.signature("step", {"cache": x}, {"cache": inner, "same": inner, "scores": 2})
    conversion = otp.convert(model.build(), signature="step")
    assert interface(conversion) == (["cache"], ["scores", "unnamed", "cache:next", "same"])
    assert [info.type.tensor_type.elem_type for info in conversion.proto.graph.output] == [1, 1, 3, 3]
    verification = verify(model.build(), conversion.proto.SerializeToString(), signature="step")
    assert verification.ok
    assert "xnnpack" in verification.kernels


def test_aliased_output_has_its_own_value() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    c = g.constant("c", np.arange(4, dtype=np.float32))
    y = unary(g, "NEG", x)
    g.output(y, x, c, y)
    conversion = otp.convert(model.build())
    assert interface(conversion) == (["x"], ["y", "x#0", "c", "y#2"])
    session = onnxruntime.InferenceSession(conversion.proto.SerializeToString())
    array = np.ones((2, 3), np.float32)
    for result, expected in zip(session.run(None, {"x": array}), (-array, array, np.arange(4), -array), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_dynamic_dimensions_stay_dynamic() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 3), signature=(-1, 3))
    y = g.tensor("y", (1, 3), signature=(-1, 3))
    g.operator("NEG", [x], [y])
    g.output(y)
    session = onnxruntime.InferenceSession(otp.convert(model.build()).proto.SerializeToString())
    assert session.run(None, {"x": np.ones((5, 3), np.float32)})[0].shape == (5, 3)


def test_nodes_record_operator_handler_and_pack() -> None:
    for node in otp.convert(network()).proto.graph.node:
        properties = {prop.key.removeprefix("onnx_tflite_plugin."): prop.value for prop in node.metadata_props}
        assert properties["handler"].startswith("op_handlers.math.")
        assert properties["operators"] in ("0:0", "0:1")
        assert properties["pack"] == "onnx-tflite-plugin"


def test_inner_int8_values_are_stored_as_uint8_with_metadata() -> None:
    model = ModelBuilder()
    g = model.main
    q = quant(0.1, 5)
    x = g.input("x", (2, 3), "int8", quantization=q)
    y = g.tensor("y", (2, 3), "int8", quantization=q)
    z = g.tensor("z", (2, 3), "int8", quantization=q)
    g.operator("ADD", [x, x], [y], version=2)
    g.operator("ADD", [y, x], [z], version=2)
    g.output(z)
    graph = otp.convert(model.build()).proto.graph
    (inner_value,) = [v for v in graph.value_info if v.name == "y"]
    properties = {prop.key.removeprefix("onnx_tflite_plugin."): prop.value for prop in inner_value.metadata_props}
    assert inner_value.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert properties == {"tensor": "0:1", "form": "stored", "shift": "128"}
    assert [v.type.tensor_type.elem_type for v in (graph.input[0], graph.output[0])] == [onnx.TensorProto.INT8] * 2
    generic = otp.convert(model.build(), target="generic").proto.graph
    assert onnx.TensorProto.UINT8 not in {v.type.tensor_type.elem_type for v in generic.value_info}


def test_states_are_inputs_with_defaults_and_trailing_outputs() -> None:
    model = ModelBuilder()
    g = model.main
    start = model.subgraph("start")
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": start.index})
    for graph in (start, g):
        graph.operator("VAR_HANDLE", [], [graph.tensor("handle", (), "resource")], {"shared_name": "count"})
    start.operator("ASSIGN_VARIABLE", [0, start.constant("ten", np.full((1, 2), 10, np.float32))], [])
    x = g.input("x", (1, 2))
    before, after = g.tensor("before", (1, 2)), g.tensor("after", (1, 2))
    g.operator("READ_VARIABLE", [0], [before])
    g.operator("ADD", [before, x], [after])
    g.operator("ASSIGN_VARIABLE", [0, after], [])
    g.output(after)
    conversion = otp.convert(model.build())
    assert interface(conversion) == (["x", "count"], ["after", "count:next"])
    props = {prop.key: prop.value for prop in conversion.proto.metadata_props}
    states = [{"input": "count", "output": "count:next", "dtype": "float32", "shape": [1, 2]}]
    assert json.loads(props["onnx_tflite_plugin.state"]) == states
    session = onnxruntime.InferenceSession(conversion.proto.SerializeToString())
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert session.run(["after"], {"x": np.ones((1, 2), np.float32)})[0].tolist() == [[11, 11]]


def test_unknown_target_error_lists_targets() -> None:
    with pytest.raises(otp.ConversionError, match="only generic, onnxruntime"):
        otp.convert(network(), target="abacus")


def test_reports_all_unsupported_operators_at_once() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    for k, code in enumerate(("CUSTOM.Alpha", "CUSTOM.Beta", "CUSTOM.Alpha")):
        g.operator(code, [x], [g.tensor(f"t{k}", (2, 3))])
    g.operator("NEG", [x], [y := g.tensor("y", (2, 3))], version=99)
    g.output(y)
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(model.build())
    text = str(caught.value)
    assert "CUSTOM.Alpha v1 (op 0, output 't0', 2 in all)" in text
    assert "CUSTOM.Beta" in text
    assert "version 99 is not supported" in text


def test_save_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion = otp.convert(network())
    path = tmp_path / "model.onnx"
    path.write_bytes(b"older")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            conversion.save(path)
    assert path.read_bytes() == b"older"
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    assert conversion.save(path) == [path]
    onnx.checker.check_model(onnx.load(path))


def test_large_weights_are_external(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (50, 60))
    y = g.tensor("y", (50, 60))
    weights = np.random.default_rng(0).standard_normal((50, 60)).astype(np.float32)
    g.operator("ADD", [x, g.constant("w", weights)], [y])
    g.output(y)
    monkeypatch.setattr(stage, "MAX_PROTO_BYTES", 1000)
    paths = otp.convert(model.build()).save(tmp_path / "model.onnx")
    assert re.fullmatch(r"model\.onnx model\.onnx\.[0-9a-f]{16}\.data", " ".join(p.name for p in paths))
    assert paths[0].stat().st_size < 2000
    session = onnxruntime.InferenceSession(paths[0])
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((50, 60), np.float32)})[0], weights)


def test_conversion_is_deterministic() -> None:
    assert otp.convert(network()).proto.SerializeToString() == otp.convert(network()).proto.SerializeToString()


def test_verified_model_is_serialized_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[object] = []
    to_proto = stage.to_proto

    def record_model(model: ir.Model) -> onnx.ModelProto:
        models.append(model)
        return to_proto(model)

    monkeypatch.setattr(stage, "to_proto", record_model)
    (path,) = otp.convert(network(), verify=True).save(tmp_path / "m.onnx")
    assert len(models) == 1
    assert path.stat().st_size


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_collection_is_restored_after_a_conversion(collecting: bool) -> None:
    (gc.enable if collecting else gc.disable)()
    try:
        is_enabled_by_stage: dict[str, bool] = {}
        otp.convert(network(), progress=lambda stage: is_enabled_by_stage.update({stage: gc.isenabled()}))
        assert not is_enabled_by_stage["lowering"]
        assert gc.isenabled() is collecting
        with pytest.raises(otp.ConversionError):
            otp.convert(network(), inputs_at=["nothing of this name"])
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


def test_warns_of_a_product_that_litert_computes_as_zeros() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 5), "int8", quantization=quant(0.1, 3))
    w = g.constant("w", np.ones((5, 3), np.int8), quantization=quant([0.1, 0.2, 0.3], [0, 0, 0], 1))
    y = g.tensor("y", (2, 3), "int8", quantization=quant(0.5, 7))
    g.operator("BATCH_MATMUL", [x, w], [y])
    g.output(y)
    conversion = otp.convert(data := model.build())
    (warning,) = conversion.report.warnings
    assert "BATCH_MATMUL" in warning
    assert "returns zeros" in warning
    assert verify(data, conversion.proto).ok


def test_per_tensor_depthwise_scale_applies_to_all_channels() -> None:
    """LiteRT reads one scale per channel; the reference has float32 weights."""
    weights = np.random.default_rng(0).integers(-127, 128, (1, 3, 3, 5), np.int8)

    def depthwise(kernel: Array, **quantization: Any) -> bytes:
        model = ModelBuilder()
        g = model.main
        x, y = g.input("x", (1, 7, 11, 5)), g.tensor("y", (1, 7, 11, 5))
        b = g.constant("b", np.zeros(5, np.float32))
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
        g.operator("DEPTHWISE_CONV_2D", [x, g.constant("w", kernel, **quantization), b], [y], options)
        g.output(y)
        return model.build()

    conversion = otp.convert(depthwise(weights, quantization=quant(0.02, 0)))
    (warning,) = conversion.report.warnings
    assert "LiteRT's kernel reads a scale per channel" in warning
    assert verify(depthwise(weights.astype(np.float32) * np.float32(0.02)), without_digest(conversion.proto)).ok


def test_rejects_an_lstm_with_one_tensor_for_both_states() -> None:
    """Converters of 2020 merged both states, because both start as zeros."""
    [case] = [case for case in builtin_cases() if case.id == "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain"]
    model = schema_py_generated.ModelT.InitFromPackedBuf(case.build())
    lstm = next(op for op in model.subgraphs[0].operators if len(op.inputs) > 19)
    lstm.inputs = [*lstm.inputs[:19], lstm.inputs[18], *lstm.inputs[20:]]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    with pytest.raises(UnsupportedOperator, match="two states share tensor"):
        otp.convert(bytes(builder.Output()))


@pytest.mark.parametrize(("opset", "version"), [(13, 8), (18, 8), (19, 9), (21, 10), (23, 11)])
def test_ir_version_is_the_first_with_the_opset(opset: int, version: int) -> None:
    """ONNX's table (docs/Versioning.md) gives the version; the minimum is 8."""
    net = Net()
    net.output(net.call("NEG", [tensor(2, 3)], tensor(2, 3)))
    assert otp.convert(net.build(), opset=opset, check="standard").proto.ir_version == version


@pytest.mark.parametrize(("name", "graph_name"), [("inference", "inference"), ("", "main")])
def test_graph_has_the_name_of_the_subgraph(name: str, graph_name: str) -> None:
    model = ModelBuilder()
    model.main.name = name
    x = model.main.input("x", (2, 3))
    model.main.operator("ABS", [x], [y := model.main.tensor("y", (2, 3))])
    model.main.output(y)
    assert otp.convert(model.build()).proto.graph.name == graph_name
