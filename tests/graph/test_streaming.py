"""Large models are written without a copy of their weights, as by protobuf."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin import conversion as conversions
from onnx_tflite_plugin.graph import streaming
from onnx_tflite_plugin.graph.validity import find_violation
from tests.helpers.passes_networks import parse_model


def layer(dtype: str, outputs: int = 53, inputs: int = 41) -> bytes:
    model, rng = ModelBuilder(), np.random.default_rng(5)
    g = model.main
    x = g.input("x", (3, inputs))
    quantization = {} if dtype == "float32" else {"quantization": quant(0.01, 0)}
    w = rng.integers(-7, 8, (outputs, inputs)).astype(np.float32 if dtype == "float32" else dtype)
    g.operator("FULLY_CONNECTED", [x, g.constant("w", w, **quantization), None], [y := g.tensor("y", (3, outputs))])
    g.output(y)
    return model.build()


def stream(model: ir.Model) -> bytes:
    file = io.BytesIO()
    streaming.write_streamed(model, file)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
def test_streamed_bytes_are_those_of_protobuf(dtype: str) -> None:
    conversion = otp.convert(layer(dtype))
    assert any(value.const_value.nbytes > streaming.INLINE_BYTES for value in constants(conversion.model))
    assert stream(conversion.model) == conversion.proto.SerializeToString()


def constants(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.initializers.values() if value.const_value is not None]


def test_weights_are_restored_after_writing() -> None:
    model = otp.convert(layer("float32")).model
    before = [value.const_value for value in constants(model)]
    stream(model)
    assert [value.const_value for value in constants(model)] == before


def test_states_with_large_initial_values_are_listed_once() -> None:
    text = "(float[29,31] s) => (float[29,31] y) { y = Neg (s) }"
    model = parse_model(text, 18, s=np.ones((29, 31), np.float32))
    proto = streaming.proto_to_check(model)
    assert [info.name for info in proto.graph.input] == ["s"]
    assert not find_violation(proto)


def test_shape_errors_with_large_weights_are_found() -> None:
    text = "(float[3,41] x) => (float[3,53] y) { y = MatMul (x, w) }"
    assert not find_violation(streaming.proto_to_check(parse_model(text, 18, w=np.ones((41, 53), np.float32))))
    wrong = parse_model(text, 18, w=np.ones((43, 53), np.float32))
    assert "Incompatible dimensions" in find_violation(streaming.proto_to_check(wrong))


def test_large_models_of_rare_dtypes_are_opened_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    original = conversions.check_opens

    def record(model: ir.Model, source: str | bytes, opsets: tuple[int, int]) -> None:
        opened.append(source)
        original(model, source, opsets)

    monkeypatch.setattr(conversions, "STREAMED_BYTES", 1)
    monkeypatch.setattr(conversions, "check_opens", record)
    otp.convert(layer("int4"), check="full")
    assert [type(source) for source in opened] == [str]


def test_an_unwritable_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = otp.convert(layer("float32")).model
    monkeypatch.setattr(streaming, "_tensor_size", lambda fields, nbytes: 1 << 31)
    with pytest.raises(ValueError, match="protobuf allows less than 2 GiB"):
        stream(model)


MEMORY_PROGRAM = """
import resource, sys
import onnx_tflite_plugin as otp
otp.convert(sys.argv[1]).save(sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
otp.convert(sys.argv[2]).save(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kB on Linux")
def test_peak_memory_of_a_large_conversion_is_close_to_the_file_size(tmp_path: Path) -> None:
    small, large = tmp_path / "small.tflite", tmp_path / "large.tflite"
    small.write_bytes(layer("float32"))
    large.write_bytes(layer("float32", 3001, 4001))
    process = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, small, large, tmp_path / "model.onnx"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(process.stdout) * 1024 < 2.5 * large.stat().st_size
