"""Rounding of a long float32 sum is no error; a missing term is an error."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.models import constant, tensor
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.comparison.rounding import measure_summation
from tests.helpers.passes_networks import Network

SIZE = 400


def mean_of_image() -> tuple[bytes, onnx.ModelProto]:
    """Return the mean of a channels-first image, which adds in another order."""
    net = Network()
    x = net.conv(net.input(tensor(1, SIZE, SIZE, 3, name="image")), 3, (1, 1))
    net.output(net.call("MEAN", [x, constant(np.array([1, 2], np.int32))], tensor(1, 1, 1, 3), keep_dims=True))
    data = net.build()
    return data, otp.convert(data).proto


IMAGE = np.full((1, SIZE, SIZE, 3), 0.1, np.float32)


def test_rounding_of_a_long_sum_is_not_an_error() -> None:
    assert verify(*mean_of_image(), inputs={"image": IMAGE}).verdict == "agrees"


def test_mean_without_a_column_is_an_error() -> None:
    data, proto = mean_of_image()
    (node,) = [node for node in proto.graph.node if node.op_type == "GlobalAveragePool"]
    product = onnx.helper.make_node("Mul", ["mean", "scale"], [*node.output])
    product.metadata_props.extend(node.metadata_props)
    node.output[:] = ["mean"]
    proto.graph.node.insert([*proto.graph.node].index(node) + 1, product)
    proto.graph.initializer.append(onnx.helper.make_tensor("scale", onnx.TensorProto.FLOAT, [], [1 - 1 / SIZE]))
    assert verify(data, proto, inputs={"image": IMAGE}).verdict == "differs"


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 3), (3,)])
def test_sum_error_is_measured_by_adding_in_float32(shape: tuple[int, ...]) -> None:
    column = IMAGE[..., 0].reshape(-1)
    float32_sum = np.cumsum(column, dtype=np.float32)[-1]
    exact_sum = column.sum(dtype=np.float64)
    error = measure_summation(IMAGE, np.full(shape, 0.1, np.float32))
    assert error == pytest.approx(0.1 * abs(float32_sum - exact_sum) / exact_sum, rel=1e-3)
    assert error > 1e-5


@pytest.mark.parametrize("shape", [(1, SIZE, SIZE, 3), (1, SIZE, 2, 3), (5,)])
def test_results_of_other_shapes_are_not_sums(shape: tuple[int, ...]) -> None:
    assert not measure_summation(IMAGE, np.ones(shape, np.float32))
