"""Helpers for the tests of an op pack: a host that prefers the pack, and a check."""

from __future__ import annotations

import warnings

import pytest

from conformance.case import Case
from conformance.packs import describe_unregistered_pack, loading_problems, version_problems
from conformance.reported_causes import ReportedCauses
from conformance.runner import run_case
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host as Host  # public here: packs do not import onnx_tflite_plugin.host

_REPORTED = ReportedCauses()
_REPORTED_PACKS: dict[str, str] = {}  # the reason, by pack that does not load
_WARNED: set[str] = set()


def pack_host(pack: str) -> Host:
    """Return a host of all installed packs that prefers the handlers of ``pack``.

    The calling test fails if the pack is not installed or does not load. If several test modules fail for one reason,
    only the first reports the reason. Warns if the pack's requirement admits versions with another API.
    """
    if problems := loading_problems(pack):
        reason = "\n".join(map(str, problems))
        if _REPORTED_PACKS.get(pack) == reason:
            pytest.fail(f"{pack} does not load, for the reason that an earlier test module reports", pytrace=False)
        _REPORTED_PACKS[pack] = reason
        pytest.fail(reason, pytrace=False)
    for text in version_problems(pack):
        if text not in _WARNED:
            _WARNED.add(text)
            warnings.warn(text, pytest.PytestWarning, stacklevel=2)
    problem = ""
    try:
        return Host(prefer=[pack])
    except ConversionError as error:
        problem = describe_unregistered_pack(pack) or str(error)
    pytest.fail(problem, pytrace=False)  # outside the except block, so that pytest prints one error


def check_case(case: Case, host: Host) -> None:
    """Run a case as a test: fail or skip the test if the case fails or cannot run.

    If several cases fail for the same reason, only the first of them reports the reason.
    """
    result = run_case(case, host)
    if result.status == "known" or (result.status == "skipped" and not case.kernel_refusal):
        pytest.skip("; ".join(result.reasons))
    if not result.ok:
        pytest.fail(_REPORTED.describe(result), pytrace=False)
