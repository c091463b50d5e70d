"""int16 results differ from LiteRT's by at most one.

Its kernels multiply 64-bit sums by 15 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime

IMAGE, SCALE = (2, 5, 7, 11), 3.1e-4
OPTIONS = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
MAX_DIFFERING = 0.01  # share of results: ties, and sums that floats round


def weights(*shape: int, axis: int, per_channel: bool) -> tuple[Spec, Spec]:
    """Return int8 weights with an int64 bias."""
    scales = np.random.default_rng(7).uniform(0.001, 0.01, shape[axis]) if per_channel else np.asarray(0.0047)
    points = [0] * shape[axis] if per_channel else 0
    w = constant(random_array(*shape, dtype="int8", low=-127), "int8", scales.tolist(), points, axis)
    return w, constant(random_array(shape[axis], dtype="int64"), "int64", (scales * SCALE).tolist(), points)


def convolution(net: Net, x: Spec, per_channel: bool) -> None:
    w, b = weights(13, 3, 3, 11, axis=0, per_channel=per_channel)
    y = tensor(2, 3, 4, 13, dtype="int16", scale=9.7e-4)
    net.graph.output(net.call("CONV_2D", [x, w, b], y, version=4, **OPTIONS))


def depthwise_convolution(net: Net, x: Spec, per_channel: bool) -> None:
    w, b = weights(1, 3, 3, 11, axis=3, per_channel=per_channel)
    y = tensor(2, 3, 4, 11, dtype="int16", scale=3.3e-4)
    net.graph.output(net.call("DEPTHWISE_CONV_2D", [x, w, b], y, version=5, depth_multiplier=1, **OPTIONS))


def transposed_convolution(net: Net, x: Spec, per_channel: bool) -> None:
    w, b = weights(13, 3, 3, 11, axis=0, per_channel=per_channel)
    y = tensor(2, 10, 14, 13, dtype="int16", scale=4.3e-4)
    sizes = constant(np.asarray(y.shape, np.int32))
    net.graph.output(net.call("TRANSPOSE_CONV", [sizes, w, x, b], y, version=4, **OPTIONS))


def matrix_product(net: Net, x: Spec, per_channel: bool) -> None:
    w = tensor(2, 5, 11, 17, dtype="int16", scale=2.3e-4)
    y = tensor(2, 5, 7, 17, dtype="int16", scale=9.7e-4)
    net.graph.output(net.call("BATCH_MATMUL", [x, w], y, version=3))


@pytest.mark.parametrize(
    ("draw", "per_channel"),
    [
        *((draw, by) for draw in (convolution, depthwise_convolution, transposed_convolution) for by in (True, False)),
        (matrix_product, False),
    ],
)
def test_few_int16_results_differ_by_one(draw: Callable[[Net, Spec, bool], None], per_channel: bool) -> None:
    net = Net()
    draw(net, tensor(*IMAGE, dtype="int16", scale=SCALE), per_channel)
    model = net.model.build()
    shapes = [IMAGE] if draw is not matrix_product else [IMAGE, (2, 5, 11, 17)]
    arrays = [random_array(*shape, dtype="int16", low=-20000, high=20000) for shape in shapes]
    (expected,) = LiteRT(model).run(arrays)
    (actual,) = OnnxRuntime(convert(model).proto).run(dict(zip(("x0", "x1"), arrays, strict=False)))
    error = np.abs(actual.astype(np.int64) - expected)
    assert error.max() <= 1
    assert (error != 0).mean() < MAX_DIFFERING
    assert len(np.unique(expected)) > expected.size / 2
