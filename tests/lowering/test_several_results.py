"""Operators on quantized values with several outputs in different storage dtypes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.verify import verify

SplitTensor = Callable[[Net, TensorRef], list[TensorRef]]
UNSPLIT = tensor(2, 5, 6, dtype="int8")
SPLIT: dict[str, SplitTensor] = {
    "SPLIT": lambda net, x: net.call_multi_output(
        "SPLIT", [constant(np.int32(2)), x], *[UNSPLIT.with_shape(2, 5, 3)] * 2, num_splits=2
    ),
    "SPLIT_V": lambda net, x: net.call_multi_output(
        "SPLIT_V",
        [x, constant([1, 5]), constant(np.int32(2))],
        UNSPLIT.with_shape(2, 5, 1),
        UNSPLIT.with_shape(2, 5, 5),
        num_splits=2,
    ),
    "UNPACK": lambda net, x: net.call_multi_output("UNPACK", [x], *[UNSPLIT.with_shape(5, 6)] * 2, axis=0, num=2),
    "TOPK_V2": lambda net, x: [
        net.call_multi_output(
            "TOPK_V2", [x, constant(np.int32(2))], UNSPLIT.with_shape(2, 5, 2), Spec((2, 5, 2), "int32")
        )[0],
        *net.call_multi_output("SPLIT", [constant(np.int32(2)), x], *[UNSPLIT.with_shape(2, 5, 3)] * 2, num_splits=2),
    ],
}


@pytest.mark.parametrize("negated_index", [0, 1])
@pytest.mark.parametrize("op", SPLIT)
def test_each_output_has_the_storage_dtype_of_its_consumers(op: str, negated_index: int) -> None:
    """NEG needs int8, even if the target stores int8 activations as uint8."""
    net = Net()
    x = net.input(tensor(2, 5, 11, dtype="int8"))
    w = constant(random_array(6, 11, dtype="int8", seed="w"), None, 0.02)
    y = net.call("FULLY_CONNECTED", [x, w, None], UNSPLIT, keep_num_dims=True)
    split_results = SPLIT[op](net, y)
    results = [
        net.call("NEG" if k == negated_index else "LOGISTIC", [result], result_spec(net, result, k == negated_index))
        for k, result in enumerate(split_results)
    ]
    net.output(*results)
    data = net.build()
    conversion = otp.convert(data)
    verification = verify(data, conversion)
    assert verification.ok, verification.text


def result_spec(net: Net, part: TensorRef, negated: bool) -> Spec:
    spec = net.spec(part)
    return spec if negated else Spec(spec.shape, "int8", 1 / 256, -128)
