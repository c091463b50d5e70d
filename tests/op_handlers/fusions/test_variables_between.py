"""Fusions do not look through variables.

Reading a variable before it is computed returns the value of the last run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import Context, Region, Terminate, fusion
from onnx_tflite_plugin.binding.fusion import fuse
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


def pad(*, variable: bool, first: bool) -> bytes:
    """Return a convolution of a PAD's result.

    ``first``: the convolution runs before the PAD.
    """
    model = ModelBuilder()
    g = model.main
    x, padded = g.input("x", (1, 5, 7, 3)), g.tensor("between", (1, 7, 9, 3), variable=variable)
    pads = g.constant("pads", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    weights, bias = g.constant("w", np.ones((2, 3, 3, 3), np.float32)), g.constant("b", np.zeros(2, np.float32))
    y = g.tensor("y", (1, 5, 7, 2))

    def convolve() -> None:
        g.operator("CONV_2D", [padded, weights, bias], [y], {"padding": "VALID", "stride_w": 1, "stride_h": 1})

    if first:
        convolve()
    g.operator("PAD", [x, pads], [padded])
    if not first:
        convolve()
    g.output(y)
    return model.build()


def test_tensor_between_fused_operators_is_not_a_variable() -> None:
    assert otp.convert(pad(variable=False, first=False)).report.fused == {"CONV_2D_PADDED": 1}


@pytest.mark.parametrize("first", [True, False])
def test_variable_between_operators_prevents_fusion(first: bool) -> None:
    """If the convolution runs first, it reads what the PAD of the previous run wrote."""
    conversion = otp.convert(pad(variable=True, first=first), verify=VerifyOptions(runs=3))
    assert conversion.report.fused == {}
    assert len(conversion.report.states) == first
    assert conversion.verification is not None
    assert conversion.verification.ok


@pytest.mark.parametrize("variable", [True, False])
def test_variable_inside_a_region_prevents_fusion(variable: bool) -> None:
    def find_region(ops: Any) -> list[Region]:
        pad, convolution = ops
        return [Region((*pad.inputs, *convolution.inputs[1:]), (convolution[~0],), {})]

    @fusion("FOUND", regions=find_region, layout=Terminate())
    def find(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    bound = Host(packs="builtin").bind(read(pad(variable=variable, first=False)), TARGETS["generic"], 19)
    fused_model = fuse(bound, [("test", find)], TARGETS["generic"], opset=19)
    assert bool(fused_model.applied) is not variable
    assert any("reads a variable tensor that an operator writes" in text for text in fused_model.declined) is variable
