"""Operands that are modified to measure the effect of rounding."""

from __future__ import annotations

import numpy as np

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify.submodels.operands import perturbed_operands


def test_perturbation_keeps_values_without_a_next_float() -> None:
    built = ModelBuilder()
    x = built.main.input("x", (5,))
    built.main.output(x)
    (operand,) = read(built.build()).main.tensors
    array = np.array([np.finfo(np.float32).max, -np.inf, np.nan, 1, 0], np.float32)
    perturbed = perturbed_operands([operand], {operand.index: array})[operand.index]
    np.testing.assert_array_equal(perturbed[:3], array[:3])
    assert 0 < abs(perturbed[3] - 1) <= 2**-23
    assert abs(perturbed[4]) == np.spacing(np.float32(0))
