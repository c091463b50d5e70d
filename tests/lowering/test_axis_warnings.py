"""Warnings about options that confuse channels first and channels last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def axis_warnings(model: Path | bytes, **options: Any) -> Sequence[str]:
    warnings = otp.convert(model, **options).report.warnings
    return [warning for warning in warnings if warning.startswith(("input_shape", "layout"))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_shape": {"image": (1, 1, 8, 8)}},
            "axis 3, whose size changes from 1 to 8; .* add channels_first=True",
        ),
        ({"layout": {"image": "NCHW:NHWC"}}, "axis 1 .* the model's channels are axis 3; NHWC:NCHW puts them first"),
        ({"layout": {"0": "NCHW:NCHW"}}, "axis 1 .* the model's channels are axis 3"),
        ({"layout": {"image": "NHWC:NHWC"}}, "the new order is the file's order, so the option has no effect"),
    ],
)
def test_contradiction_of_the_channel_axis_is_a_warning(options: dict[str, Any], message: str) -> None:
    (warning,) = axis_warnings(DIGITS, **options)
    assert re.search(message, warning)


@pytest.mark.parametrize(
    "options",
    [
        {"input_shape": {"image": (2, 8, 8, 1)}},
        {"input_shape": {"image": ("n", 8, 8, 1)}},
        {"layout": {"image": "NHWC:NCHW"}},
        {"layout": {"image": "abcd:adbc"}},
        {"layout": {"image": "NHWC:NHWC"}, "channels_first": True},
    ],
)
def test_consistent_options_cause_no_warning(options: dict[str, Any]) -> None:
    assert not axis_warnings(DIGITS, **options)


def test_channel_axis_is_known_through_elementwise_operators() -> None:
    model = ModelBuilder()
    g = model.main
    x, negated, pooled = g.input("x", (1, 4, 6, 3)), g.tensor("n", (1, 4, 6, 3)), g.tensor("p", (1, 2, 3, 3))
    y = g.tensor("y", (1, 2, 3, 3))
    g.operator("NEG", [x], [negated])
    window = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    g.operator("MAX_POOL_2D", [negated], [pooled], window)
    g.operator("MUL", [pooled, g.constant("two", np.float32(2))], [y])
    g.output(y)
    assert len(axis_warnings(model.build(), layout={"x": "NCHW:NHWC", "y": "NCHW:NHWC"})) == 2
    assert len(axis_warnings(model.build(), input_shape={"x": (1, 4, 6, 5)})) == 1
    elementwise = ModelBuilder()
    g = elementwise.main
    g.operator("NEG", [g.input("x", (1, 4, 6, 3))], [y := g.tensor("y", (1, 4, 6, 3))])
    g.output(y)
    assert not axis_warnings(elementwise.build(), layout={"x": "NCHW:NHWC"})
