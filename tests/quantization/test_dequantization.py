"""``--quantization float``: LiteRT's results without rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.runner import mismatches
from onnx_tflite_plugin.api import Decline, Instance, builtin
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import verify
from tests.helpers.quantized_cases import quantized_cases_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"

# Operators whose kernels rescale. Other kernels read the quantized values, or compare rounded values.
RESCALING = (
    "ADD", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED",
    "HARD_SWISH", "L2_NORMALIZATION", "LEAKY_RELU", "LOGISTIC", "MEAN", "MUL", "PRELU", "RELU", "RELU6", "RESHAPE",
    "RESIZE_BILINEAR", "SOFTMAX", "STRIDED_SLICE", "SUB", "SUM", "TANH", "TRANSPOSE", "TRANSPOSE_CONV",
)  # fmt: skip
# Names of cases that depend on rounding, or on a kernel that ignores a scale; their results differ without quantization.
ROUNDING_CASES = (
    "ignores", "to int32", "MUL_and_ADD", "not_fused", "every int16", "halves round up",
    "count as 0", "computed weights with a zero point", "of scale 0.0471", "rounds twice", "to a scale of 2",
)  # fmt: skip
# Operators whose int16 kernels round intermediate values: table lookups, pixel positions in 1/1024, or overflow.
ROUNDED_INT16 = ("MEAN", "RESIZE_BILINEAR", "SOFTMAX", "TANH")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(packs="builtin")


@pytest.mark.parametrize("op", RESCALING)
def test_each_operator_equals_the_kernel_without_rounding(op: str, host: Host, thorough: bool) -> None:
    """Every third case of each dtype; ``--thorough`` tries all."""
    cases = [
        case
        for case in quantized_cases_of(op, 1 if thorough else 3)
        if not any(phrase.replace("_", " ") in case.name.replace("_", " ") for phrase in ROUNDING_CASES)
        and not (op in ROUNDED_INT16 and case.dtype == "int16")
    ]
    assert cases
    assert {case.id: texts for case in cases if (texts := mismatches(case, host, quantization="float"))} == {}


def test_no_tensor_is_quantized() -> None:
    graph = otp.convert(DIGITS, quantization="float").proto.graph
    assert {"QuantizeLinear", "DequantizeLinear", "Cast"}.isdisjoint(node.op_type for node in graph.node)
    kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    assert kinds <= {onnx.TensorProto.FLOAT, onnx.TensorProto.INT64}
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {onnx.TensorProto.FLOAT}


def test_operators_on_stored_integers_are_refused() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3), "int8", quantization=quant(0.5, -3))
    g.output(y := g.tensor("y", (2, 3), "float32"))
    g.operator("CAST", [x], [y])
    with pytest.raises(
        HandlerError, match=r"op 0 CAST .*the operator computes on quantized values: 'x' \(int8\), 'y' \(float32\)"
    ):
        otp.convert(model.build(), quantization="float")


@pytest.mark.parametrize("op", ["NEG", "MATRIX_DIAG", "STABLEHLO_MULTIPLY"])
def test_operators_on_bare_quantized_values_are_refused(op: str) -> None:
    """These kernels ignore scales, so -q is not -x, and q * q is not x * x."""
    int8_cases = [case for case in quantized_cases_of(op) if case.dtype == "int8"]
    assert int8_cases
    for case in int8_cases:
        with pytest.raises(HandlerError, match=rf"{op} .*the operator computes on quantized values"):
            otp.convert(case.build(), quantization="float")


@pytest.mark.parametrize("fails", [False, True])
def test_accepts_is_called_again_without_quantization(fails: bool) -> None:
    def accepts_quantized_only(at: Instance) -> Decline | None:
        if at.op[0].quantization is not None:
            return None
        if fails:
            raise ValueError("bad luck")
        return Decline("it takes integers")

    model = ModelBuilder()
    g = model.main
    g.operator(
        "ABS",
        [g.input("x", (2, 3), "int8", quantization=quant(0.5, -3))],
        [y := g.tensor("y", (2, 3), "int8", quantization=quant(0.5, -3))],
    )
    g.output(y)
    host = Host(packs="builtin", handlers={"ABS": replace(builtin("ABS"), accepts=accepts_quantized_only)})
    assert otp.convert(model.build(), host=host)
    with pytest.raises(otp.ConversionError, match="ValueError: bad luck" if fails else "op 0 ABS .*it takes integers"):
        otp.convert(model.build(), host=host, quantization="float")


def test_computed_integer_bias_is_refused() -> None:
    model = ModelBuilder()
    g = model.main
    q = quant(0.5, -3)
    x, b = g.input("x", (5, 3), "int8", quantization=q), g.input("b", (2,), "int32", quantization=quant(0.05))
    w = g.constant("w", np.ones((2, 3), np.int8), quantization=quant(0.1))
    g.operator("FULLY_CONNECTED", [x, w, b], [y := g.tensor("y", (5, 2), "int8", quantization=q)])
    g.output(y)
    assert otp.convert(model.build())
    with pytest.raises(HandlerError, match="no kernel for dtypes float32, float32, int32"):
        otp.convert(model.build(), quantization="float")


def test_verify_runs_each_operator_on_litert_values() -> None:
    """Without rounding a network diverges from LiteRT, but each operator agrees."""
    verification = verify(DIGITS, otp.convert(DIGITS, quantization="float").proto.SerializeToString())
    assert verification.ok, verification.text
    assert "although every operator agrees" in verification.text


def model_with_range(operator: str, scale: float, zero_point: int) -> bytes:
    """Return a binary int8 operator whose output has the given range."""
    model = ModelBuilder()
    g = model.main
    a = g.input("a", (2, 7), "int8", quantization=quant(0.07, 3))
    b = g.input("b", (2, 7), "int8", quantization=quant(0.06, -5))
    g.output(y := g.tensor("y", (2, 7), "int8", quantization=quant(scale, zero_point)))
    g.operator(operator, [a, b], [y])
    return model.build()


@pytest.mark.parametrize(
    ("scale", "zero_point", "activation"),
    [(6 / 255, -128, "Clip"), (0.05, -128, "Relu"), (0.05, -127, ""), (0.05, 0, "")],
)
@pytest.mark.parametrize("operator", ["ADD", "SUB"])
def test_range_from_0_becomes_an_activation(operator: str, scale: float, zero_point: int, activation: str) -> None:
    data = model_with_range(operator, scale, zero_point)
    conversion = otp.convert(data, quantization="float")
    assert [node.op_type for node in conversion.proto.graph.node][1:] == [activation] * bool(activation)
    operands = {"a": np.full((2, 7), -4.0, np.float32), "b": np.full((2, 7), 5.5, np.float32)}
    result = otp.Session(conversion).run(operands)["y"]
    exact_result = 1.5 if operator == "ADD" else -9.5
    np.testing.assert_array_equal(result, max(exact_result, 0) if activation else exact_result)
    assert conversion.verify().ok


@pytest.mark.parametrize("factor", [1, 1.5])
def test_verify_excuses_saturation_on_the_way_to_a_result(factor: float) -> None:
    model = ModelBuilder()
    g = model.main
    shape = (2, 13, 11, 32)
    tensors = [g.input("x", shape, "int8", quantization=quant(0.07, 3))]
    tensors += [
        g.tensor(f"t{k}", shape, "int8", quantization=quant(scale, 5)) for k, scale in enumerate((0.07, 0.02, 0.1))
    ]
    factors = g.constant("doubled", np.full((1, 1, 1, 32), 100, np.int8), quantization=quant(0.02, 0))
    offsets = g.constant("shift", np.arange(-90, -58, dtype=np.int8), quantization=quant(0.03, 0))
    weights = g.constant(
        "weights", (100 * np.eye(32, dtype=np.int8)).reshape(32, 1, 1, 32), quantization=quant(0.01, 0)
    )
    bias = g.constant("bias", np.zeros(32, np.int32), quantization=quant(0.0007, 0))
    g.operator("CONV_2D", [tensors[0], weights, bias], [tensors[1]], {"padding": "VALID", "stride_w": 1, "stride_h": 1})
    g.operator("MUL", [tensors[1], factors], [tensors[2]])
    g.operator("ADD", [tensors[2], offsets], [tensors[3]])
    g.output(tensors[3])
    data = model.build()
    proto = otp.convert(data, quantization="float").proto
    for constant in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(constant)
        constant.CopyFrom(onnx.numpy_helper.from_array((array * factor).astype(array.dtype), constant.name))
    assert {"Mul", "Add"}.isdisjoint(node.op_type for node in proto.graph.node)  # one Conv
    assert verify(data, proto.SerializeToString()).ok == (factor == 1)


def test_verify_finds_the_wrong_operator() -> None:
    proto = otp.convert(DIGITS, quantization="float").proto
    weights = next(initializer for initializer in proto.graph.initializer if len(initializer.dims) == 4)
    array = onnx.numpy_helper.to_array(weights).copy()
    array[0] *= 1.5
    weights.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), weights.name))
    verification = verify(DIGITS, proto.SerializeToString())
    assert not verification.ok
    assert verification.diverging is not None
    assert verification.diverging.operator.code == "CONV_2D"


def test_loop_carried_values_are_float_in_subgraphs() -> None:
    for case in quantized_cases_of("WHILE"):
        data = case.build()
        verification = verify(data, otp.convert(data, quantization="float"), runs=1)
        assert verification.ok, (case.id, verification.text)
