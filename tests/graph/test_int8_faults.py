"""Warnings about ONNX Runtime's wrong 8-bit products on processors with AMX."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin import runtime as module
from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault


def runtime(version: str, last: int | None = None) -> Any:
    """Simulate another version of the installed runtime.

    ``last`` replaces the last element of each result.
    """

    class ChangedSession(onnxruntime.InferenceSession):
        def run(self, *arguments: Any) -> Any:
            (result,) = super().run(*arguments)
            result[-1, -1] = result[-1, -1] if last is None else last
            return [result]

    module: Any = ModuleType("onnxruntime")
    module.__version__, module.InferenceSession = version, ChangedSession
    module.SessionOptions = onnxruntime.SessionOptions
    return module


def test_wrong_element_is_reported_with_version_and_remedy() -> None:
    fault = describe_int8_fault(runtime("1.24.4", 324488067))
    assert "onnxruntime 1.24.4 computes 8-bit products wrongly" in fault
    assert "upgrade to onnxruntime 1.25" in fault


@pytest.mark.int8_products
def test_correct_products_are_not_reported() -> None:
    assert describe_int8_fault(runtime("1.22.0")) == ""


def test_later_versions_are_not_tested() -> None:
    assert describe_int8_fault(runtime("1.25.0", 324488067)) == ""


def test_session_warns_of_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    model = otp.convert("examples/digits_int8.tflite").proto.SerializeToString()
    monkeypatch.setattr(module, "describe_int8_fault", lambda onnxruntime: "products are wrong")
    with pytest.warns(RuntimeWarning, match="products are wrong"):
        module.Session(model)
