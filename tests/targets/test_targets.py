"""Targets either refuse a model, naming tensor and rule, or give LiteRT's results."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.runner import CaseTrial
from conformance.variants import Variant
from onnx_tflite_plugin.errors import (
    ConversionError,
    HandlerError,
    TargetRefusal,
    UnsupportedOperator,
    UnsupportedOption,
)
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.rewrite.target_check import check_model
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime
from tests.helpers.quantized_cases import OPERATORS, quantized_cases_of
from tests.helpers.target_networks import network, nodes

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
OTHER_TARGETS = ("openvino", "tvm", "tensorrt")
MAX_CROSSED = 6  # an operator with more cases runs each case with one target only, in turn


@pytest.mark.parametrize("op", OPERATORS)
def test_quantized_cases_are_right_or_refused_by_a_rule(op: str, host: Host, thorough: bool) -> None:
    """Runs every fourth case of each dtype; ``--thorough`` runs all."""
    wrong_cases = {}
    cases, max_crossed = (quantized_cases_of(op), MAX_CROSSED) if thorough else (quantized_cases_of(op, 4), 1)
    for k, case in enumerate(cases):
        trial = CaseTrial(case, host)
        for target in OTHER_TARGETS if len(cases) <= max_crossed else (OTHER_TARGETS[k % len(OTHER_TARGETS)],):
            try:
                problems = trial.problems(Variant(target, None, "least"))
            except (TargetRefusal, UnsupportedOperator) as refusal:
                problems = [] if f"target {target}" in str(refusal) or "opset" in str(refusal) else [str(refusal)]
            except HandlerError as refusal:
                problems = [] if f"target {target}" in str(refusal) else [str(refusal)]
            if problems:
                wrong_cases[case.id, target] = problems
    assert not wrong_cases


def test_each_target_accepts_most_quantized_cases(host: Host) -> None:
    accepted = {}
    for target in ("openvino", "tvm"):
        outcomes = [
            _converts(case.build(), target, host) for op in ("CONV_2D", "ADD") for case in quantized_cases_of(op)[::5]
        ]
        accepted[target] = sum(outcomes) / len(outcomes)
    assert accepted["tvm"] == 1
    assert 0.5 < accepted["openvino"] < 1  # int16 is refused


def _converts(data: bytes, target: str, host: Host) -> bool:
    try:
        otp.convert(data, host=host, target=target)
    except ConversionError:
        return False
    return True


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opset", range(13, 27))
def test_int8_network_loads_at_every_target_opset_or_is_refused(target: str, opset: int) -> None:
    low, _, high = TARGETS[target].opsets
    if not low <= opset <= high:
        with pytest.raises(UnsupportedOption, match=f"supports opsets {low} to {high}"):
            otp.convert(DIGITS, target=target, opset=opset)
        return
    if target == "tensorrt":
        with pytest.raises(TargetRefusal, match="supports only zero points of 0"):
            otp.convert(DIGITS, target=target, opset=opset)
        return
    proto = otp.convert(DIGITS, target=target, opset=opset).proto
    onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


# --- openvino and tvm -------------------------------------------------------------------------


def test_openvino_refuses_16_bit_integers_by_name() -> None:
    with pytest.raises(TargetRefusal, match=r"tensor 0 'x' .*target openvino quantizes to .* not to int16"):
        otp.convert(network("int16", 0), target="openvino")


def test_suggested_remedy_of_a_refusal_works() -> None:
    with pytest.raises(TargetRefusal, match="quantization='float'"):
        otp.convert(network("int16", 0), target="openvino")
    otp.convert(network("int16", 0), target="openvino", quantization="float")


@pytest.mark.parametrize("options", [{}, {"layout_plan": "local"}, {"quantization": "float"}])
def test_tvm_resizes_the_last_two_axes(options: dict[str, str]) -> None:
    """TVM's frontend always treats these axes as height and width."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 11), "int8", quantization=quant(0.1, 3))
    g.output(y := g.tensor("y", (1, 13, 17, 11), "int8", quantization=quant(0.1, 3)))
    g.operator("RESIZE_BILINEAR", [x, g.constant("size", np.array([13, 17], np.int32))], [y])
    constants_by_target = {}
    for target in ("tvm", "generic"):
        proto = otp.convert(model.build(), target=target, **options).proto
        (resize,) = (node for node in proto.graph.node if node.op_type == "Resize")
        constants = {i.name: onnx.numpy_helper.to_array(i).tolist() for i in proto.graph.initializer}
        constants_by_target[target] = constants[resize.input[3]]
    assert constants_by_target == {"tvm": [1, 11, 13, 17], "generic": [1, 13, 17, 11]}


def test_tvm_gets_narrow_weights_as_int8() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3, 11))
    w = g.constant("w", np.ones((5, 11), ml_dtypes.int4), quantization=quant(0.1, 0))
    g.output(y := g.tensor("y", (3, 5)))
    g.operator("FULLY_CONNECTED", [x, w], [y])
    kinds = {i.data_type for i in otp.convert(model.build(), target="tvm").proto.graph.initializer}
    assert kinds == {onnx.TensorProto.INT8, onnx.TensorProto.FLOAT}


def test_tvm_refuses_inner_graphs() -> None:
    from conformance.cases.control import loops

    loop = next(case for case in loops.cases() if case.op == "WHILE" and case.expects_success)
    with pytest.raises(TargetRefusal, match="target tvm has no Loop"):
        otp.convert(loop.build(), target="tvm")


def test_tvm_accepts_if() -> None:
    from conformance.cases.control import branches

    branch = next(case for case in branches.cases() if case.op == "IF")
    assert "If" in {node.op_type for node in nodes(otp.convert(branch.build(), target="tvm"))}


@pytest.mark.parametrize(("target", "dtype"), [("openvino", "UINT8"), ("tvm", "INT8"), ("generic", "INT8")])
def test_activations_have_the_dtype_of_the_kernels(target: str, dtype: str) -> None:
    conversion = otp.convert(network("int8", 3), target=target)
    dtypes = {i.name: i.data_type for i in conversion.proto.graph.initializer}
    (conv,) = (node for node in nodes(conversion) if node.op_type == "Conv")
    (dequantized,) = (node for node in nodes(conversion) if conv.input[0] in node.output)
    assert dequantized.op_type == "DequantizeLinear"
    assert dtypes[dequantized.input[2]] == getattr(onnx.TensorProto, dtype)
    assert [value.dtype.name for value in conversion.model.graph.inputs] == ["INT8"]


@pytest.mark.parametrize("target", ["generic", "openvino", "tvm"])
@pytest.mark.parametrize(("op", "onnx_name"), [("MAX_POOL_2D", "MaxPool"), ("SELECT_V2", "Where")])
def test_operators_rarely_supported_for_int8_are_between_dq_and_q(target: str, op: str, onnx_name: str) -> None:
    model = ModelBuilder()
    g, q = model.main, quant(0.1, 3)
    x, z = (g.input(name, (2, 5, 7, 3), "int8", quantization=q) for name in ("x", "z"))
    g.output(y := g.tensor("y", (2, 5, 7, 3), "int8", quantization=q))
    if op == "SELECT_V2":
        g.operator(op, [g.input("c", (2, 5, 7, 3), "bool"), x, z], [y])
    else:
        options = {"filter_width": 2, "filter_height": 3, "stride_w": 1, "stride_h": 1, "padding": "SAME"}
        g.operator(op, [x], [y], options)
    proto = otp.convert(model.build(), target=target).proto
    producers = {name: node.op_type for node in proto.graph.node for name in node.output}
    (node,) = (node for node in proto.graph.node if node.op_type == onnx_name)
    assert producers[node.input[-1]] == "DequantizeLinear"
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, (2, 5, 7, 3)).astype(np.int8) for _ in "xz"]
    arrays += [arrays[0] > 0] if op == "SELECT_V2" else []
    (expected,) = LiteRT(model.build(), "builtin").run(arrays)
    (computed,) = OnnxRuntime(proto).run(arrays)
    np.testing.assert_array_equal(computed, expected)


def test_int8_max_pool_is_integer_if_onnx_runtime_requires_it() -> None:
    model = ModelBuilder()
    g, q = model.main, quant(0.1, 3)
    x = g.input("x", (2, 5, 7, 3), "int8", quantization=q)
    g.output(y := g.tensor("y", (2, 5, 7, 3), "int8", quantization=q))
    options = {"filter_width": 2, "filter_height": 3, "stride_w": 1, "stride_h": 1, "padding": "SAME"}
    g.operator("MAX_POOL_2D", [x], [y], options)
    for opset, dequantizes in ((20, True), (21, False)):
        proto = otp.convert(model.build(), target="generic", opset=opset).proto
        assert ("DequantizeLinear" in {node.op_type for node in proto.graph.node}) == dequantizes
        onnxruntime.InferenceSession(proto.SerializeToString())


def test_int8_max_pool_is_integer_if_the_opset_is_raised() -> None:
    """int4 weights need opset 21."""
    model = ModelBuilder()
    g, q = model.main, quant(0.1, 3)
    x = g.input("x", (2, 5, 7, 3), "int8", quantization=q)
    pooled, rows = g.tensor("p", (2, 5, 7, 3), "int8", quantization=q), g.tensor("r", (2, 105), "int8", quantization=q)
    options = {"filter_width": 2, "filter_height": 3, "stride_w": 1, "stride_h": 1, "padding": "SAME"}
    g.operator("MAX_POOL_2D", [x], [pooled], options)
    g.operator("RESHAPE", [pooled, g.constant("s", np.array([2, 105], np.int32))], [rows])
    rng = np.random.default_rng(0)
    w = g.constant("w", rng.integers(-7, 8, (11, 105)).astype(np.int8), "int4", quantization=quant(0.02, 0))
    g.output(y := g.tensor("y", (2, 11), "int8", quantization=quant(0.3, 0)))
    g.operator("FULLY_CONNECTED", [rows, w], [y])
    conversion = otp.convert(model.build(), target="generic")
    assert conversion.report.opset == 21
    array = rng.integers(-128, 128, (2, 5, 7, 3)).astype(np.int8)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    (computed,) = OnnxRuntime(conversion.proto).run([array])
    assert np.abs(computed.astype(int) - expected.astype(int)).max() <= 1


# --- models that ONNX Runtime does not load ---------------------------------------------------


def test_only_int8_that_onnx_runtime_cannot_load_is_refused(host: Host) -> None:
    """From opset 21 on, ONNX Runtime moves Q and DQ across a Reshape.

    The moved nodes have inconsistent dtypes.
    """
    refusals, loaded = set(), 0
    for op in ("ADD", "SUB", "FULLY_CONNECTED", "TRANSPOSE", "UNIDIRECTIONAL_SEQUENCE_LSTM"):
        for case in quantized_cases_of(op)[::3]:
            if case.dtype != "int8":
                continue
            try:
                proto = otp.convert(case.build(), host=host, **{**case.options, "target": "generic", "opset": 21}).proto
            except TargetRefusal as refusal:
                refusals |= {"does not load int8 " in problem.reason for problem in refusal.problems}
                continue
            onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
            loaded += 1
    assert refusals == {True}
    assert loaded > 15


@pytest.mark.parametrize(("reader", "is_refused"), [("Add", True), ("Mul", False)])
def test_int8_product_followed_by_add_is_refused(reader: str, is_refused: bool) -> None:
    """ONNX Runtime fuses both nodes, and then cannot infer the dtype of the result."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (int8[2, 3] x, int8[3, 5] w, float[5] b, float s, int8 z) => (float[2, 5] y) {{
            fx = DequantizeLinear (x, s, z)
            fw = DequantizeLinear (w, s, z)
            m = MatMul (fx, fw)
            y = {reader} (m, b)
        }}""")
    message = ""
    try:
        check_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)), TARGETS["generic"], 21)
    except TargetRefusal as refusal:
        message = str(refusal)
    assert ("int8 MatMul and Add at opset 21" in message) == is_refused


def test_refused_model_loads_at_opset_20_and_for_onnxruntime(host: Host) -> None:
    case = next(case for case in quantized_cases_of("UNIDIRECTIONAL_SEQUENCE_LSTM") if case.dtype == "int8")
    for options in ({"target": "generic", "opset": 20}, {"target": "onnxruntime", "opset": 21}):
        proto = otp.convert(case.build(), host=host, **options).proto
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
