"""Every case of this pack, converted and compared."""

from __future__ import annotations

import pytest
from onnx_tflite_audio.cases import cases

from conformance.case import Case
from conformance.runner import run_case
from onnx_tflite_plugin.host import Host


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(prefer=["onnx-tflite-audio"])


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
def test_conformance(case: Case, host: Host) -> None:
    result = run_case(case, host)
    assert result.ok, result.text
