"""Products with blockwise 4-bit and 2-bit weights: models and fused operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from conformance.case import Case
from conformance.cases.fusions.blocks import INT2, INT4, cases
from conformance.cases.matrix.fully_connected import dense_case
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import OnnxRuntime

FUSION = "FULLY_CONNECTED_BLOCKS"
LARGE = dense_case("large", (1, 384), out=347, **INT4)


def convert_model(case: Case, **options: Any) -> Conversion:
    return convert(case.build(), host=Host(packs="builtin"), **{**case.options, **options})


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
@pytest.mark.needs("onnxruntime", "1.25", "fusing weights with a scale per block")
def test_onnx_runtime_fuses_a_blockwise_product(case: Case, tmp_path: Path) -> None:
    conversion = convert_model(case)
    assert conversion.report.fused == {FUSION: 1}
    assert conversion.report.opset == 21
    OnnxRuntime(conversion.proto, optimized=tmp_path / "optimized.onnx")
    nodes = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert nodes.count("MatMulNBits") == 1
    assert not {"Gemm", "MatMul", "DequantizeLinear"} & {*nodes}


@pytest.mark.parametrize(("depth", "block"), [(384, 128), (576, 64), (1056, 32), (1280, 128)])
def test_block_size_is_a_power_of_two_up_to_128_that_divides_the_rows(depth: int, block: int) -> None:
    proto = convert_model(dense_case("one row", (1, depth), out=347, **INT4)).proto
    [node] = [node for node in proto.graph.node if node.op_type == "DequantizeLinear"]
    assert {a.name: a.i for a in node.attribute} == {"axis": 0, "block_size": block}


def test_blockwise_product_equals_folded_weights() -> None:
    """Compare without ONNX Runtime's fusion, which rounds differently."""
    exact = onnxruntime.SessionOptions()
    exact.add_session_config_entry("session.disable_quant_qdq", "1")
    x = np.random.default_rng(1).standard_normal((1, 384)).astype(np.float32)
    results = [
        onnxruntime.InferenceSession(convert_model(LARGE, **options).proto.SerializeToString(), exact).run(
            None, {"x0": x}
        )
        for options in ({}, {"weights": "fold"})
    ]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "case",
    [
        dense_case("three rows", (3, 384), out=347, **INT4),
        dense_case("few weights", (1, 384), out=37, **INT4),
        dense_case("rows of 16 times an odd number", (1, 1040), out=347, **INT4),
        dense_case("int8", (1, 384), out=347, weights="int8", per_axis=True),
        dense_case("a row without batch", (384,), out=347, keep_num_dims=True, **INT4),
    ],
    ids=lambda case: case.name,
)
def test_other_products_are_not_fused(case: Case) -> None:
    report = convert_model(case).report
    assert FUSION not in report.fused
    assert report.opset == 18


@pytest.mark.parametrize("weights", [INT4, INT2])
@pytest.mark.parametrize(("options", "opset"), [({"opset": 18}, 18), ({"opset": 20}, 20), ({"weights": "fold"}, 18)])
def test_requested_opset_or_float_weights_prevent_blocks(
    weights: dict[str, Any], options: dict[str, Any], opset: int
) -> None:
    report = convert_model(dense_case("large", (1, 384), out=347, **weights), **options).report
    assert FUSION not in report.fused
    assert report.opset == opset


@pytest.mark.parametrize("target", ["generic", "openvino", "tvm", "tensorrt", "qnn", "portable"])
def test_other_targets_get_no_repeated_scales(target: str) -> None:
    assert FUSION not in convert_model(LARGE, target=target).report.fused


def test_file_size_is_that_of_4_bit_weights() -> None:
    assert convert_model(LARGE).proto.ByteSize() < 384 * 347 * 0.6
