"""Tests that files that are no model, and pairs that do not belong together, are reported as such."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, serialize_table
from conformance.schema import Table
from onnx_tflite_plugin.errors import InvalidModel, VerificationError
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.structure import read


def absolute(*shape: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", shape), g.tensor("y", shape)
    g.operator("ABS", [x], [y])
    g.output(y)
    return model.build()


def test_a_file_without_subgraphs_is_no_model() -> None:
    with pytest.raises(InvalidModel, match="holds no subgraph"):
        read(serialize_table(Table("Model", {"version": 3, "subgraphs": []})))


def convolution(channels: int) -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, channels)), g.tensor("y", (1, 5, 7, 11))
    filters = g.constant("w", np.ones((11, 1, 1, channels), np.float32))
    bias = g.constant("b", np.zeros(11, np.float32))
    g.operator("CONV_2D", [x, filters, bias], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    g.output(y)
    return model.build()


def test_inputs_of_another_size_that_litert_refuses_are_named() -> None:
    shapes = r"input 'x' is \[1, 5, 7, 2\] in the ONNX model and \[1, 5, 7, 3\] in the TFLite model"
    with pytest.raises(VerificationError, match=shapes):
        verify(convolution(3), otp.convert(convolution(2)).proto)


def test_axes_in_an_order_of_more_than_the_tensor_has_are_another_models() -> None:
    images = otp.convert(absolute(2, 3, 5, 7), layout={"x": "NHWC:NCHW"}).proto
    with pytest.raises(VerificationError, match="'x' has 4 axes in the ONNX model, 'x' 3 in the TFLite model"):
        verify(absolute(2, 3, 5), images)
