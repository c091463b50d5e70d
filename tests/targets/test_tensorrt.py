"""Rules of the target ``tensorrt``."""

from __future__ import annotations

from dataclasses import replace

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.models import Net, Spec
from conformance.runner import CaseTrial
from conformance.variants import Variant
from onnx_tflite_plugin.errors import (
    ConversionError,
    HandlerError,
    TargetRefusal,
)
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime
from tests.helpers.quantized_cases import quantized_cases_of
from tests.helpers.target_networks import network, nodes

NARROW = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT16}


# Not AVERAGE_POOL_2D: floats between DQ and Q are rounded half to even, but the kernel rounds half away from zero
# (reference/integer_ops/pooling.h). Results differ by 1 LSB at every other tie. TensorRT fuses a pool only without a Mul before Q.
SYMMETRIC_OPERATORS = ("ADD", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D",
            "MEAN", "MUL", "PAD", "RELU6", "SUB")  # fmt: skip


@pytest.mark.parametrize("op", SYMMETRIC_OPERATORS)
def test_symmetric_quantization_converts_for_tensorrt_or_is_refused(op: str, host: Host) -> None:
    """TensorRT does not support the zero points of the cases.

    References are computed with them. ONNX Runtime runs without optimizations: its fused int8 products overflow on some
    processors, those of TensorRT do not.
    """
    wrong_cases, accepted = {}, 0
    for case in [case for case in quantized_cases_of(op) if case.reference is None and case.dtype != "int16"][:12]:
        symmetric_case = replace(case, build=lambda case=case: symmetric(case.build()))
        try:
            trial = CaseTrial(symmetric_case, host)
            session = OnnxRuntime(trial.convert(Variant("tensorrt", None, "least")).proto, optimizes=False)
            problems = [*trial.mismatches(trial.run_in(session), trial.reference_outputs)]
            accepted += 1
        except ConversionError as refusal:
            problems = [] if "target tensorrt" in str(refusal) or "opset" in str(refusal) else [str(refusal)]
        if problems:
            wrong_cases[case.id] = problems
    assert not wrong_cases
    assert accepted > 1


def test_tensorrt_means_differ_only_at_ties() -> None:
    model, image = Net(), Spec((2, 6, 8, 3), "int8", 0.047)
    window = {"filter_width": 2, "filter_height": 2, "stride_w": 1, "stride_h": 1, "padding": "VALID"}
    model.output(model.call("AVERAGE_POOL_2D", [image], image.with_shape(2, 5, 7, 3), **window))
    x = np.random.default_rng(0).integers(-128, 128, (2, 6, 8, 3)).astype(np.int8)
    (expected,) = LiteRT(model.build(), "builtin").run([x])
    (y,) = OnnxRuntime(otp.convert(model.build(), target="tensorrt").proto).run([x])
    sums = sum(x[:, i : i + 5, j : j + 7].astype(np.int16) for i in (0, 1) for j in (0, 1))
    difference = y.astype(np.int16) - expected
    assert set(np.unique(difference)) == {-1, 0, 1}
    assert (sums[difference != 0] % 4 == 2).all()


def test_tensorrt_accepts_only_zero_point_0() -> None:
    with pytest.raises(
        TargetRefusal,
        match=r"tensor 0 'x' .* supports only zero points of 0; the tensor is int8 with zero point 3, and 1 more",
    ):
        otp.convert(network("int8", 3), target="tensorrt")
    otp.convert(network("int8", 0), target="tensorrt")
    with pytest.raises(
        TargetRefusal, match=r"the tensor is uint8 with zero point 0, which is -128 in int8, and 1 more"
    ):
        otp.convert(network("uint8", 0, weight_zero_point=128), target="tensorrt")


def test_tensorrt_quantizes_to_int8_only() -> None:
    with pytest.raises(TargetRefusal, match="quantizes to int8, not to int16"):
        otp.convert(network("int16", 0), target="tensorrt")


def test_tensorrt_gets_uint8_around_128_as_int8_around_0() -> None:
    conversion = otp.convert(network("uint8", 128, weight_zero_point=128), target="tensorrt")
    assert [i.dtype.name for i in conversion.model.graph.inputs] == ["UINT8"]
    dtypes = {i.name: i.data_type for i in conversion.proto.graph.initializer}
    for node in nodes(conversion):
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            assert dtypes[node.input[2]] == onnx.TensorProto.INT8
    with pytest.raises(TargetRefusal, match="the tensor is uint8 with zero point 127"):
        otp.convert(network("uint8", 127, weight_zero_point=128), target="tensorrt")


def test_tensorrt_gets_weights_with_a_zero_point_as_floats() -> None:
    kinds = {}
    for zero_point in (128, 120):
        conversion = otp.convert(network("uint8", 128, weight_zero_point=zero_point), target="tensorrt")
        kinds[zero_point] = {i.data_type for i in conversion.proto.graph.initializer if len(i.dims) == 4}
    assert kinds == {128: {onnx.TensorProto.INT8}, 120: {onnx.TensorProto.FLOAT}}


def test_tensorrt_gets_float_biases() -> None:
    def dequantize_biases(target: str) -> int:
        conversion = otp.convert(network("int8", 0), target=target)
        dtypes = {i.name: i.data_type for i in conversion.proto.graph.initializer}
        inputs = [node.input[0] for node in nodes(conversion) if node.op_type == "DequantizeLinear"]
        return sum(dtypes.get(name) == onnx.TensorProto.INT32 for name in inputs)

    assert (dequantize_biases("generic"), dequantize_biases("tensorrt")) == (1, 0)


def test_tensorrt_reads_narrow_integers_only_in_q_dq_and_cast(host: Host) -> None:
    """Transposes, reshapes and copies are between Q and DQ too."""
    checked = 0
    for op in ("TRANSPOSE", "RESHAPE", "CONCATENATION", "MAX_POOL_2D", "FULLY_CONNECTED", "PAD", "CONV_2D"):
        cases = quantized_cases_of(op)
        for case in [*cases[::3], *(case for case in cases if "dynamic leading axes" in case.name)]:
            try:
                proto = otp.convert(symmetric(case.build()), host=host, target="tensorrt", **case.options).proto
            except ConversionError:
                continue
            inferred = onnx.shape_inference.infer_shapes(proto).graph
            kinds = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.input)}
            readers = {node.op_type for node in inferred.node if any(kinds.get(name) in NARROW for name in node.input)}
            assert readers <= {"QuantizeLinear", "DequantizeLinear", "Cast"}, case.id
            checked += bool(readers)
    assert checked >= 13


def symmetric(data: bytes) -> bytes:
    """Return the model with zero points of 0, or of 128 for unsigned integers."""
    model = schema_py_generated.ModelT.InitFromPackedBuf(data)
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.quantization is not None and tensor.quantization.zeroPoint is not None:
                middle = 128 * (tensor.type == schema_py_generated.TensorType.UINT8)
                tensor.quantization.zeroPoint = [middle] * len(tensor.quantization.zeroPoint)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_tensorrt_refuses_operators_on_quantized_values() -> None:
    with pytest.raises(HandlerError, match=r"EQUAL .* which target tensorrt does not support"):
        otp.convert(network("int8", 0, consumer="EQUAL"), target="tensorrt")


def test_tensorrt_refuses_operators_unknown_to_its_parser() -> None:
    model = ModelBuilder()
    g = model.main
    x, w = (g.input(name, shape, "int8", quantization=quant(0.1, 0)) for name, shape in (("x", (3, 5)), ("w", (5, 7))))
    g.output(y := g.tensor("y", (3, 7), "int32"))
    g.operator("BATCH_MATMUL", [x, w], [y])
    with pytest.raises(ConversionError, match="target tensorrt"):
        otp.convert(model.build(), target="tensorrt")
