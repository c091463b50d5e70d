"""What a bound of one step would hide."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, tensor
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime


@pytest.mark.parametrize(("activation", "scale"), [("RELU6", 12.0), ("RELU_N1_TO_1", 2.0)])
def test_a_bound_halfway_between_two_integers_goes_away_from_zero(activation: str, scale: float) -> None:
    """TfLiteRound; only of half a step is the quotient exact: 6 / 12 and 1 / 2."""
    model = Net()
    x, y = tensor(997, dtype="int8", scale=scale, zero_point=3), tensor(997, dtype="int8", scale=scale, zero_point=-5)
    model.output(model.call("ADD", [x, x], y, fused_activation_function=activation))
    data = model.build()
    fed = np.random.default_rng(0).integers(-128, 128, 997).astype(np.int8)
    (ours,), (theirs,) = OnnxRuntime(otp.convert(data).proto).run([fed, fed]), LiteRT(data).run([fed, fed])
    assert int(theirs.max()) == -4
    np.testing.assert_array_equal(ours, theirs)


def test_integers_of_32_bits_are_rounded_not_cut() -> None:
    """The kernel rounds twice, so that one in 50 is off by one here; of what is cut it would be every other one."""
    model = Net()
    model.output(
        model.call("QUANTIZE", [tensor(997, dtype="int16", scale=0.029314)], tensor(997, dtype="int32", scale=1.0))
    )
    data = model.build()
    x = np.random.default_rng(0).integers(-32768, 32768, 997).astype(np.int16)
    (ours,), (theirs,) = OnnxRuntime(otp.convert(data).proto).run([x]), LiteRT(data).run([x])
    assert np.abs(theirs).max() > 900
    assert np.abs(ours - theirs).max() <= 1
    assert np.count_nonzero(ours != theirs) < 997 / 10
