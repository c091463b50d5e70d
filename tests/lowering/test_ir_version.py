"""The IR version of a converted model."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.lowering.lower import ir_version


@pytest.mark.parametrize(
    ("opset", "version"), [(13, 8), (17, 8), (18, 8), (19, 9), (20, 9), (21, 10), (22, 10), (23, 11)]
)
def test_ir_version_is_the_oldest_for_the_opset(opset: int, version: int) -> None:
    """ONNX's docs/Versioning.md gives the version; the minimum is 8.

    All runtimes of these opsets load version 8.
    """
    assert ir_version(opset) == version
