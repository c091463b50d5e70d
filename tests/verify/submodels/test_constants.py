"""Test direct comparison of weights, for errors too small to change a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime, verify
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.submodels.constants import _computed_constants, _overlap, compare_constants
from tests.helpers.passes_networks import Network, build_model, image

WEIGHTS_DTYPES = ["auto", "int8", "uint8", "keep"]


def network(net: Network) -> TensorRef:
    return net.conv(net.conv(net.input(image(1, 11, 7, 5)), 16, name="first"), 8, name="last")


def change_8_bit_constants(proto: onnx.ModelProto, elements: int, change: Any) -> onnx.ModelProto:
    """Change the 8-bit constants with this number of elements."""
    constants = [
        constant
        for constant in proto.graph.initializer
        if np.prod(constant.dims) == elements and constant.data_type in (2, 3)
    ]
    assert constants
    for constant in constants:
        array = numpy_helper.to_array(constant).copy()
        change(array.reshape(-1))
        constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    return proto


def change_one_step(flat: Array) -> None:
    flat[7] += 1 if flat[7] < 100 else -1


@pytest.mark.parametrize("weights_dtype", WEIGHTS_DTYPES)
def test_finds_a_weight_off_by_one_step_in_every_dtype(weights_dtype: str) -> None:
    data = build_model(network)
    assert verify(data, otp.convert(data, weights_dtype=weights_dtype)).ok
    verification = verify(
        data, change_8_bit_constants(otp.convert(data, weights_dtype=weights_dtype).proto, 8 * 16 * 9, change_one_step)
    )
    assert verification.verdict == "differs"
    assert "of the weights differ from the file" in verification.text
    assert verification.diverging is not None
    assert verification.diverging.operator.index == 1


@pytest.mark.parametrize("weights_dtype", WEIGHTS_DTYPES)
def test_finds_the_weights_of_every_operator(weights_dtype: str) -> None:
    data = build_model(network)
    session = OnnxRuntime(otp.convert(data, weights_dtype=weights_dtype).proto)
    assert sorted(_computed_constants(session)) == [0, 1]
    assert list(compare_constants(structure.entry(structure.read(data)), session)) == []


def test_overlap_counts_repeated_values() -> None:
    values = np.array([1, 1, 2, 3], np.float32)
    assert _overlap(values, values[::-1]) == 1
    assert _overlap(values, np.array([1, 2, 2, 3], np.float32)) == 0.75
    assert _overlap(values, np.array([1, 1, 2, 3, 4], np.float32)) == 0
    assert _overlap(values[:0], values[:0]) == 0
