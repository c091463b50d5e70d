"""TANH of 8 bits is the Sigmoid that rounds to the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, session, settled

from conformance.builder import TensorRef
from conformance.models import Spec, tensor
from onnx_tflite_plugin.verify import verify

ALL = np.arange(256, dtype=np.uint8).reshape(1, 256)


def bounded(scale: float, point: int = -18, dtype: str = "int8", result: float = 1 / 128) -> Draw:
    """TANH of a graph input."""
    zero_point = {"int8": 0, "uint8": 128, "int16": 0}[dtype]
    step = 1 / 32768 if dtype == "int16" else result

    def draw(net: Network) -> TensorRef:
        x = tensor(1, 256, dtype=dtype, scale=scale, zero_point=0 if dtype == "int16" else point)
        return net.call("TANH", [net.input(x)], Spec((1, 256), dtype, step, zero_point))

    return draw


@pytest.mark.parametrize(
    ("scale", "point", "dtype"), [(0.022615, -18, "int8"), (0.1, 0, "int8"), (0.0137, 110, "uint8"), (1e3, 0, "int8")]
)
def test_each_of_256_numbers_gives_the_same_integer(scale: float, point: int, dtype: str) -> None:
    applied = Applied("tanh_to_sigmoid", bounded(scale, point, dtype))
    assert applied.count == 1
    assert applied.fused["QLinearSigmoid"] == 1
    assert "Tanh" not in applied.fused
    x = ALL.view(dtype)
    [before], [after] = (session(settled(proto)).run(None, {"x0": x}) for proto in (applied.before, applied.after))
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(after)) > 2
    assert verify(applied.data, applied.after).ok


def near_a_half() -> float:
    """A scale at which the largest number's result is just above a half."""
    return float(np.arctanh(64.5 / 128 * (1 + 1e-7)) / (127 + 18))


@pytest.mark.parametrize(
    "draw",
    [bounded(near_a_half()), bounded(0.02, result=1 / 100), bounded(1 / 4096, dtype="int16")],
    ids=["a result that either might round otherwise", "another scale than the kernel's", "16 bits"],
)
def test_others_stay_tanh(draw: Draw) -> None:
    applied = Applied("tanh_to_sigmoid", draw)
    assert applied.count == 0


def test_what_is_read_unrounded_stays_tanh() -> None:
    applied = Applied("tanh_to_sigmoid", lambda net: net.like("TANH", net.input(tensor(1, 7))))
    assert len(applied.nodes("Tanh")) == 1
    assert applied.count == 0
