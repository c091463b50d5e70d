"""Warnings about options that change results or have no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import onnx_tflite_plugin as otp

EXAMPLES = Path(__file__).parents[2] / "examples"


def warnings(file: str, **options: Any) -> str:
    return "\n".join(otp.convert(EXAMPLES / file, **options).report.warnings)


@pytest.mark.parametrize(
    ("file", "options", "start"),
    [
        ("digits_float.tflite", {"quantization": "symmetric"}, "quantization='symmetric' requantizes nothing"),
        ("digits_float.tflite", {"weights_dtype": "int8"}, "weights_dtype='int8' has no effect"),
        ("digits_int8.tflite", {"weights": "fold"}, "weights='fold' keeps 4 constants quantized"),
        ("digits_int8.tflite", {"state": "reset"}, "state='reset' has no effect"),
    ],
)
def test_option_without_effect_is_reported(file: str, options: dict[str, Any], start: str) -> None:
    assert warnings(file, **options).startswith(start)


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("digits_int8.tflite", {}),
        ("digits_int8.tflite", {"weights_dtype": "uint8"}),
        ("digits_int8.tflite", {"weights": "fold", "quantization": "float"}),
    ],
)
def test_option_with_effect_is_not_reported(file: str, options: dict[str, Any]) -> None:
    assert not warnings(file, **options)


def test_weights_that_overflow_on_some_processors_are_a_warning() -> None:
    assert "wrong results on x86 processors without VNNI" in warnings("digits_int8.tflite", weights_dtype="int8")
