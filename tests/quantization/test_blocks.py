"""Blockwise weights stay small if the runtime fuses them, else become float."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, blockwise
from conformance.cases import builtin_cases
from conformance.runner import run_case
from onnx_tflite_plugin.api import Handler, Terminate
from onnx_tflite_plugin.errors import InvalidModel, UnsupportedOperator
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify import Tolerance
from onnx_tflite_plugin.verify.comparison.rounding import weight_scale
from onnx_tflite_plugin.verify.runtimes import structure

ROWS, DEPTH, OUT = 3, 768, 173  # too many weights for float products of rounded activations


def layer(size: int, depth: int = DEPTH, first_scale: float = 0.1) -> bytes:
    """Return a layer with random weights in blocks of ``size``.

    ``first_scale``: the scale of the first block.
    """
    random = np.random.default_rng(size)
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (ROWS, depth)), g.tensor("y", (ROWS, OUT))
    values = random.uniform(0.05, 0.2, (OUT, depth // size)).astype(np.float16)
    values[0, 0] = first_scale
    scales = g.constant("scales", values)
    stored = random.integers(-8, 8, (OUT, depth)).astype(ml_dtypes.int4)
    w = g.constant("w", stored, quantization=blockwise(scales, size))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    g.output(y)
    return model.build()


def op_counts_after_optimization(conversion: otp.Conversion, folder: Path) -> Counter[str]:
    """Return the operator counts after the optimizations of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(conversion.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


@pytest.mark.needs("onnxruntime", "1.25", "fusing weights with a scale per block")
@pytest.mark.parametrize(("size", "expected_size"), [(16, 16), (32, 32), (48, 16), (96, 32), (256, 256), (768, 256)])
def test_onnxruntime_fuses_blockwise_weights(size: int, expected_size: int, tmp_path: Path) -> None:
    conversion = otp.convert(layer(size))
    [node] = [node for node in conversion.proto.graph.node if node.op_type == "DequantizeLinear"]
    assert {attribute.name: attribute.i for attribute in node.attribute} == {"axis": 0, "block_size": expected_size}
    assert op_counts_after_optimization(conversion, tmp_path) == {"MatMulNBits": 1}
    assert conversion.proto.ByteSize() < otp.convert(layer(size), weights="fold").proto.ByteSize() * 0.25


@pytest.mark.parametrize("size", [1, 3, 8])
def test_blocks_that_do_not_fuse_become_float_weights(size: int) -> None:
    assert [node.op_type for node in otp.convert(layer(size)).proto.graph.node] == ["Gemm"]


def test_generic_target_keeps_the_block_size_of_the_file() -> None:
    nodes = otp.convert(layer(3), target="generic").proto.graph.node
    assert [
        {attribute.name: attribute.i for attribute in node.attribute}
        for node in nodes
        if node.op_type == "DequantizeLinear"
    ] == [{"axis": 0, "block_size": 3}]


def test_target_without_4_bit_dtypes_gets_float_weights() -> None:
    assert [node.op_type for node in otp.convert(layer(32), target="tvm").proto.graph.node] == ["Gemm"]


def test_target_without_the_2_bit_opset_gets_int8_weights() -> None:
    [case] = [
        case for case in builtin_cases() if case.id == "FULLY_CONNECTED-float32_by_int2_rows_of_13_with_a_scale_each"
    ]
    conversion = otp.convert(case.build(), target="openvino")
    assert conversion.report.storage == {"int2 stored as int8": 1}
    assert conversion.report.opset == 19


@pytest.mark.parametrize("opset", [24, 25])
def test_2_bit_weights_need_opset_25(opset: int) -> None:
    [case] = [case for case in builtin_cases() if case.id == "FULLY_CONNECTED-int8_with_int2_weights"]
    if opset == 25:
        assert otp.convert(case.build(), target="generic", opset=opset).report.opset == 25
        return
    with pytest.raises(UnsupportedOperator, match="needs opset 25"):
        otp.convert(case.build(), target="generic", opset=opset)


def test_folded_and_kept_blocks_give_equal_results() -> None:
    blockwise, folded = otp.convert(layer(32), target="generic"), otp.convert(layer(32), weights="fold")
    x = np.random.default_rng(1).standard_normal((ROWS, DEPTH)).astype(np.float32)
    exact = onnxruntime.SessionOptions()
    exact.add_session_config_entry("session.disable_quant_qdq", "1")
    results = [
        onnxruntime.InferenceSession(
            conversion.proto.SerializeToString(), exact, providers=["CPUExecutionProvider"]
        ).run(None, {"x": x})[0]
        for conversion in (blockwise, folded)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-3)


def test_layout_that_splits_blocks_folds_the_weights() -> None:
    handlers = {code: handler for code, _, handler in Host(packs="builtin").handlers() if isinstance(handler, Handler)}
    any_order = replace(
        handlers["FULLY_CONNECTED"],
        layout=Terminate(unordered="k"),
        axes="n k, o k, o -> n o",
        lower=lambda ctx, x, w, b=None: ctx.ops.Gemm(x, w, b, transB=1),
    )
    [case] = [case for case in builtin_cases() if case.id == "FULLY_CONNECTED-blocks_after_a_flatten"]
    result = run_case(case, Host(offers=[], handlers={**handlers, "FULLY_CONNECTED": any_order}))
    assert result.status == "passed", result.text


def test_opset_without_blocks_is_refused_with_both_remedies() -> None:
    with pytest.raises(UnsupportedOperator, match=r"needs opset 21.*opset=21 or weights='fold'"):
        otp.convert(layer(32), opset=20)
    assert otp.convert(layer(32), opset=20, weights="fold").report.opset == 20


def test_onnxruntime_block_is_a_power_of_two_that_divides_the_file_block() -> None:
    ort_target, generic = target_named("onnxruntime"), target_named("generic")
    assert [ort_target.fused_block_size(size) for size in (8, 16, 24, 40, 80, 192, 1024)] == [0, 16, 0, 0, 16, 64, 256]
    assert [generic.fused_block_size(size) for size in (8, 24, 1024)] == [8, 24, 1024]


def test_weights_with_a_scale_per_block_count_as_dynamic_quantization() -> None:
    """LiteRT quantizes activations as for one scale, so the tolerance is the same."""
    assert Tolerance.of(structure.read(layer(32))).of_range == 2e-2


def test_weight_scale_is_the_largest_scale_of_the_blocks() -> None:
    data = layer(32, first_scale=0.7)
    (operator,) = structure.read(data).main.operators
    scales = structure.block_scales(data, 0)
    assert scales == {operator[1].index: float(np.float16(0.7))}
    assert weight_scale(operator, scales) == float(np.float16(0.7))


def test_block_with_scale_0_adds_nothing() -> None:
    """XNNPACK refuses blocks with scale 0; LiteRT's builtin kernel multiplies by 0.

    Weights that were hardly trained have such blocks.
    """
    data = layer(32, first_scale=0.0)
    assert otp.verify(data, otp.convert(data)).ok


@pytest.mark.parametrize("scale", [-0.1, float("nan"), float("inf")])
def test_negative_or_nonfinite_block_scales_are_refused(scale: float) -> None:
    with pytest.raises(InvalidModel, match=r"scales: tensor 2 'scales' holds a value that is negative or not finite"):
        otp.convert(layer(32, first_scale=scale))
