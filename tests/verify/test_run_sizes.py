"""The number of runs of models with large inputs, and the sizes of those of dynamic length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.verify.run import MAX_ELEMENTS, affordable_runs


@pytest.mark.parametrize(
    ("dims", "runs"),
    [((7, None), 3), ((2, MAX_ELEMENTS // 4), 2), ((MAX_ELEMENTS,), 1), ((MAX_ELEMENTS, 5), 1), ((), 3)],
)
def test_large_inputs_and_outputs_run_fewer_times_and_at_least_once(dims: tuple[int | None, ...], runs: int) -> None:
    entry: Any = SimpleNamespace(inputs=(SimpleNamespace(dims=dims),), outputs=())
    assert affordable_runs(entry, 3) == runs


def test_a_sound_of_dynamic_length_is_long_enough_for_the_model() -> None:
    net = Net()
    row = net.call("EXPAND_DIMS", [net.input(tensor(None, None)), constant(np.int32(1))], tensor(None, 1, None))
    sound = net.call("EXPAND_DIMS", [row, constant(np.int32(3))], tensor(None, 1, None, 1))
    weights, bias = constant(random_array(3, 1, 500, 1)), constant(np.zeros(3, np.float32))
    result = tensor(None, 1, None, 3)
    net.output(net.call("CONV_2D", [sound, weights, bias], result, padding="VALID", stride_h=1, stride_w=160))
    found = otp.verify(net.build(), otp.convert(net.build()))
    assert (found.verdict, found.operators) == ("agrees", 3)
