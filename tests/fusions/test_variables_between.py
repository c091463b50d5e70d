"""A fusion does not look through variables: who reads one before it is computed gets what the last run left."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import HandlerError


def padded(*, variable: bool, first: bool) -> bytes:
    """A convolution of what a PAD makes; ``first``: the convolution runs before it."""
    model = ModelBuilder()
    g = model.main
    x, between = g.input("x", (1, 5, 7, 3)), g.tensor("between", (1, 7, 9, 3), variable=variable)
    pads = g.constant("pads", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    weights, bias = g.constant("w", np.ones((2, 3, 3, 3), np.float32)), g.constant("b", np.zeros(2, np.float32))
    y = g.tensor("y", (1, 5, 7, 2))

    def convolve() -> None:
        g.operator("CONV_2D", [between, weights, bias], [y], {"padding": "VALID", "stride_w": 1, "stride_h": 1})

    if first:
        convolve()
    g.operator("PAD", [x, pads], [between])
    if not first:
        convolve()
    g.output(y)
    return model.build()


def test_what_lies_between_is_no_variable() -> None:
    assert otp.convert(padded(variable=False, first=False)).report.fused == {"CONV_2D_PADDED": 1}


@pytest.mark.parametrize("first", [True, False])
def test_a_variable_between_keeps_operators_apart(first: bool) -> None:
    with pytest.raises(HandlerError, match="PAD v1 'between': it computes the variable tensor 'between' in every run"):
        otp.convert(padded(variable=True, first=first))
