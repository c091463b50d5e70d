"""The IR version of a converted model."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.lowering.lower import ir_version


@pytest.mark.parametrize(
    ("opset", "version"), [(13, 8), (17, 8), (18, 8), (19, 9), (20, 9), (21, 10), (22, 10), (23, 11)]
)
def test_a_model_asks_of_runtimes_no_more_than_its_opset_does(opset: int, version: int) -> None:
    """The version table of ONNX's docs/Versioning.md, from 8 on, which every runtime of these opsets reads."""
    assert ir_version(opset) == version
