"""Quantized operators compared with LiteRT's float kernels.

Rounding is no error; a wrong constant is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.lstms import Lstm
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes import float_kernels
from onnx_tflite_plugin.verify.submodels.references import References
from tests.helpers.verify_graphs import slot

STEP, CONSTANT_STEP, CONSTANT = 4.139463999308646e-05, 1.3841176041751169e-05, 4978
"""The constant is 1664.4999 steps: floats round its sums down, and LiteRT's fixed point rounds them up."""

SUMS = np.random.default_rng(7).integers(-900, 900, (1, 16, 16, 2), np.int16)


def shifted_weights() -> bytes:
    """Return a convolution whose uint8 weights do not fit in symmetric int8."""
    model, rng = ModelBuilder(), np.random.default_rng(7)
    g = model.main
    x = g.input("x", (1, 11, 7, 24), "uint8", quantization=quant(0.02, 128))
    kernel = g.constant("w", rng.integers(0, 256, (16, 3, 3, 24)).astype(np.uint8), quantization=quant(0.01, 0))
    bias = g.constant("b", rng.integers(-900, 900, 16).astype(np.int32), quantization=quant(0.0002, 0))
    y = g.tensor("y", (1, 11, 7, 16), "uint8", quantization=quant(0.02, 128))
    g.operator("CONV_2D", [x, kernel, bias], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    g.output(y)
    return model.build()


def halfway_sums() -> bytes:
    """Return a sum with a constant that has a different scale.

    In channel 0, the constant lies halfway between two int16 steps.
    """
    net = Net()
    spec = tensor(*SUMS.shape, dtype="int16", scale=STEP, name="x")
    addend = constant(np.array([CONSTANT, 1990], np.int16), "int16", CONSTANT_STEP)
    net.output(net.call("ADD", [net.input(spec), addend], spec, pot_scale_int16=False))
    return net.build()


@pytest.fixture
def without_float_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let verification run without results of float kernels."""
    monkeypatch.setattr(References, "float_result", lambda *_: None)


def symmetric_model() -> tuple[bytes, onnx.ModelProto]:
    data = shifted_weights()
    return data, otp.convert(data, target="tensorrt", quantization="symmetric").proto


def test_rounding_of_requantized_weights_is_not_an_error() -> None:
    assert verify(*symmetric_model()).verdict == "agrees"


@pytest.mark.usefixtures("without_float_kernels")
def test_requantized_weights_exceed_the_tolerance_of_roundings() -> None:
    assert verify(*symmetric_model()).verdict == "differs"


def test_wrong_bias_of_requantized_weights_is_an_error() -> None:
    data, proto = symmetric_model()
    for initializer in proto.graph.initializer:
        array = numpy_helper.to_array(initializer)
        if array.size == 16 and array.dtype == np.float32 and (array < 0).any():
            initializer.CopyFrom(numpy_helper.from_array(array + np.float32(1.0), initializer.name))
    assert verify(data, proto).verdict == "differs"


def test_channel_halfway_between_two_steps_is_not_an_error() -> None:
    data = halfway_sums()
    assert verify(data, otp.convert(data), inputs={"x": SUMS}).verdict == "agrees"


@pytest.mark.usefixtures("without_float_kernels")
def test_channel_halfway_between_two_steps_has_a_bias() -> None:
    data = halfway_sums()
    assert verify(data, otp.convert(data), inputs={"x": SUMS}).verdict == "differs"


def test_wrong_constant_by_one_step_is_an_error() -> None:
    data = halfway_sums()
    proto = otp.convert(data).proto
    (initializer,) = [i for i in proto.graph.initializer if CONSTANT in numpy_helper.to_array(i)]
    array = numpy_helper.to_array(initializer) - np.int16(round(STEP / CONSTANT_STEP))
    initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
    assert verify(data, proto, inputs={"x": SUMS}).verdict == "differs"


def coarsely_quantized_operand() -> tuple[bytes, onnx.ModelProto]:
    """Return a SUB with a coarsely quantized operand, and its float conversion."""
    net = Net()
    operand = net.call(
        "QUANTIZE", [net.input(tensor(1, 11, 7, 24, name="x"))], tensor(1, 11, 7, 24, dtype="int8", scale=0.2)
    )
    constant_one = constant(np.full(24, 127, np.int8), "int8", 1 / 127)
    net.output(net.call("SUB", [operand, constant_one], tensor(1, 11, 7, 24, dtype="int8", scale=0.02, zero_point=-78)))
    data = net.build()
    return data, otp.convert(data, quantization="float").proto


def test_omitted_quantization_of_an_operand_is_not_an_error() -> None:
    assert verify(*coarsely_quantized_operand()).verdict == "agrees"


def test_wrong_constant_after_an_omitted_quantization_is_an_error() -> None:
    data, proto = coarsely_quantized_operand()
    (initializer,) = proto.graph.initializer
    initializer.CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(initializer) + np.float32(0.1), initializer.name)
    )
    assert verify(data, proto).verdict == "differs"


def clipped_cells() -> tuple[bytes, onnx.ModelProto]:
    """Return an int8 LSTM that clips its cells, and its float32 conversion."""
    net = Net()
    Lstm(dtype="int8", weights="int8", gate_bias=2.0, cells_scale=2.0**-15).build(net)
    data = net.build()
    return data, otp.convert(data, quantization="float").proto


def test_clipped_states_are_no_error() -> None:
    verification = verify(*clipped_cells(), runs=3)
    assert verification.verdict == "agrees"
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM compare" not in str(verification)


def test_wrong_recurrent_weights_are_an_error() -> None:
    data, proto = clipped_cells()
    *_, recurrent_weights = (i for i in proto.graph.initializer if len(i.dims) == 3)
    array = numpy_helper.to_array(recurrent_weights) * np.float32(1.1)
    recurrent_weights.CopyFrom(numpy_helper.from_array(array, recurrent_weights.name))
    assert verify(data, proto, runs=3).verdict == "differs"


def rounded_stream() -> tuple[bytes, onnx.ModelProto]:
    """Return a model that quantizes its next state, and its float32 conversion."""
    model, shape = ModelBuilder(), (3, 5)
    init, g = model.subgraph("init"), model.main
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
    handles = []
    for graph in (init, g):
        handles.append(graph.tensor("handle", (), "resource"))
        graph.operator("VAR_HANDLE", [], [handles[-1]], {"shared_name": "sum"})
    init.operator("ASSIGN_VARIABLE", [handles[0], init.constant("zeros", np.zeros(shape, np.float32))], [])
    x, state, total = g.input("x", shape), g.tensor("state", shape), g.tensor("total", shape)
    rounded = g.tensor("rounded", shape, "int8", quantization=quant(0.2, 0))
    restored, next_state = g.tensor("restored", shape), g.tensor("next", shape)
    g.operator("READ_VARIABLE", [handles[1]], [state])
    g.operator("ADD", [state, x], [total])
    g.operator("QUANTIZE", [total], [rounded])
    g.operator("DEQUANTIZE", [rounded], [restored])
    g.operator("NEG", [restored], [next_state])
    g.operator("ASSIGN_VARIABLE", [handles[1], next_state], [])
    g.output(total)
    data = model.build()
    return data, otp.convert(data, quantization="float").proto


def test_omitted_quantization_before_a_state_is_not_an_error() -> None:
    assert verify(*rounded_stream(), runs=3).verdict == "agrees"


@pytest.mark.parametrize(
    ("zero_point", "array", "expected"),
    [(128, np.array([0, 128, 255], np.uint8), [-128, 0, 127]), (0, np.array([1, 2, 255], np.uint8), [0, 2, 254])],
)
def test_8_bit_inputs_are_rounded_to_symmetric_int8(zero_point: int, array: Array, expected: Any) -> None:
    x = slot(0, array.dtype.name, array.shape, 1.0, zero_point=zero_point)
    assert np.allclose(float_kernels.as_symmetric(x, array), expected, atol=0.1)
