"""Under dynamic quantization an output may be off by what LiteRT's own result moves by as its inputs move by a rounding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.models import Spec, constant, drawn, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Verification, verify
from onnx_tflite_plugin.verify.inputs.rounded import _moved
from tests.helpers.passes_networks import Network

LAYERS = 7


def deep() -> bytes:
    """Dense layers, each of which trebles what the last one rounded. XNNPACK leaves uint8 weights under floats, which kernels read as
    int8, to the others: LiteRT's own kernels agree.
    """
    net = Network()
    x = net.input(tensor(5, 17))
    for layer in range(LAYERS):
        drawn_weights = np.roll(drawn(17, 17, dtype="int8"), layer).clip(-127)
        weights = constant(drawn_weights.view(np.uint8), "uint8", 0.01, 0)
        x = net.like("TANH", net.call("FULLY_CONNECTED", [x, weights], Spec((5, 17))))
    net.output(x)
    return net.build()


@pytest.fixture(scope="module")
def unrounded() -> onnx.ModelProto:
    """What rounds no activations, as larger networks do not."""
    return otp.convert(deep(), weights="fold").proto


def verified(proto: onnx.ModelProto) -> Verification:
    return verify(deep(), proto)


def test_what_a_network_makes_of_a_rounding_is_no_error(unrounded: onnx.ModelProto) -> None:
    told = verified(unrounded)
    assert told.ok
    assert told.comparisons[0].distance > 2e-2
    assert "moves by as much where inputs move by half a step" in " ".join(told.notes)
    assert not any("moves by" in note for note in verified(otp.convert(deep()).proto).notes)


def test_what_moves_the_mean_is_an_error(unrounded: onnx.ModelProto) -> None:
    spoilt = onnx.ModelProto.FromString(unrounded.SerializeToString())
    weights = max(spoilt.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    changed = numpy_helper.to_array(weights).copy()
    changed[:, 3] = changed[:, 5]
    weights.CopyFrom(numpy_helper.from_array(changed, weights.name))
    assert not verified(spoilt).ok


@pytest.mark.parametrize("array", [np.float32(3), np.arange(7), np.zeros((0, 3), np.float32)])
def test_integers_and_what_has_no_rows_stay(array: Array) -> None:
    assert np.array_equal(_moved(np.asarray(array), 0), array)


def test_floats_move_by_half_a_step_of_their_row_at_most() -> None:
    rows = np.array([[127.0, 0, -3, 5, 9], [1.27, 0, 0, 0, 1]], np.float32)
    by = np.abs(_moved(rows, 1) - rows)
    assert (by[0] <= 0.5).all()
    assert by[0].max() > 0.1
    assert (by[1] <= 0.005 + 1e-6).all()
