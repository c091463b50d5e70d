"""Fixtures of the tests of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.page.content import Page, collect_page_data

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


@pytest.fixture(scope="package")
def digits() -> Page:
    conversion = otp.convert(DIGITS)
    return collect_page_data(DIGITS.read_bytes(), conversion.proto, "digits", report=conversion.report)
