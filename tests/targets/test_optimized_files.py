"""Other tools on models with selected weights, and with uint8 weights."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.compose
import onnxruntime
import pytest
from click.testing import CliRunner

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.cli import cli

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def convert_model(weights_dtype: str) -> onnx.ModelProto:
    return otp.convert(DIGITS, weights_dtype=weights_dtype).proto  # type: ignore[arg-type]


def optimize_with_ort(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Return the model that ONNX Runtime writes after its general optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return onnx.load(path)


def test_an_optimized_file_keeps_the_selection_of_its_processor(tmp_path: Path) -> None:
    before = convert_model("auto")
    assert "If" in {node.op_type for node in before.graph.node}
    after = {node.op_type for node in optimize_with_ort(before, tmp_path / "auto.onnx").graph.node}
    assert not {"If", "MatMulInteger"} & after
    assert "QLinearConv" in after


def test_uint8_weights_need_no_if(tmp_path: Path) -> None:
    assert not {"If", "MatMulInteger"} & {node.op_type for node in convert_model("uint8").graph.node}


@pytest.mark.parametrize(
    ("options", "has_if"),
    [([], True), (["--weights-dtype", "uint8"], False), (["--target", "generic"], False)],
)
def test_models_with_an_if_record_the_target(options: list[str], has_if: bool, tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    result = CliRunner().invoke(cli, ["convert", str(DIGITS), str(path), "-v", *options])
    assert result.exit_code == 0, result.output
    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert ("onnx_tflite_plugin.runtime" in properties) == has_if
    assert ("for ONNX Runtime" in result.output and "another --target" in result.output) == has_if


@pytest.mark.parametrize(("weights_dtype", "valid"), [("auto", False), ("uint8", True)])
def test_prefixes_of_onnx_compose_need_a_model_without_if(weights_dtype: str, valid: bool) -> None:
    prefixed = onnx.compose.add_prefix(convert_model(weights_dtype), "a_")
    if valid:
        onnx.checker.check_model(prefixed, full_check=True)
        onnxruntime.InferenceSession(prefixed.SerializeToString())
        return
    with pytest.raises(Exception, match=r"(?i)invalid|not in any|Node input"):
        onnxruntime.InferenceSession(prefixed.SerializeToString())


@pytest.mark.parametrize(("opset", "loads"), [(18, False), (19, True)])
def test_float16_converter_needs_an_opset_with_float16_scales(opset: int, loads: bool) -> None:
    float16 = pytest.importorskip("onnxconverter_common.float16")
    proto = otp.convert(DIGITS, opset=opset).proto
    float16_model = float16.convert_float_to_float16(proto, keep_io_types=True).SerializeToString()
    if loads:
        assert onnxruntime.InferenceSession(float16_model).get_inputs()[0].type == "tensor(int8)"
        return
    with pytest.raises(Exception, match="DequantizeLinear"):
        onnxruntime.InferenceSession(float16_model)
