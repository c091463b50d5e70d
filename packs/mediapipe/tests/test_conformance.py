"""Every case of this pack, converted and compared."""

from __future__ import annotations

import pytest
from onnx_tflite_mediapipe.cases import cases

from conformance.case import Case
from conformance.testing import check_case, pack_host

HOST = pack_host("onnx-tflite-mediapipe")


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.id)
def test_conformance(case: Case) -> None:
    check_case(case, HOST)
