"""Full support of an operator requires a case for every kernel dtype and version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.cases import builtin_cases
from conformance.coverage import coverage, inexpressible_operators
from conformance.registered import REGISTERED
from onnx_tflite_plugin.api import Decline, Handler
from onnx_tflite_plugin.host import Host


@pytest.fixture(scope="module")
def handlers() -> dict[str, Handler]:
    return {code: handler for code, _, handler in Host(packs="builtin").handlers() if isinstance(handler, Handler)}


def test_every_registered_operator_is_counted_once(handlers: dict[str, Handler]) -> None:
    report = coverage(handlers, builtin_cases())
    listed_codes = [*report.full, *report.partial, *report.missing, *report.refused]
    assert sorted(listed_codes) == sorted(REGISTERED)
    assert str(len(REGISTERED)) in report.text
    assert set(report.refused) <= set(inexpressible_operators(handlers))


def test_untested_dtype_makes_an_operator_partial(handlers: dict[str, Handler]) -> None:
    cases = [case for case in builtin_cases() if case.op == "MAX_POOL_2D"]
    assert "MAX_POOL_2D" in coverage(handlers, cases).full
    without = [case if case.dtype != "int16" else replace(case, known_failure="to come") for case in cases]
    assert coverage(handlers, without).partial["MAX_POOL_2D"] == "int16"


def test_unsupported_version_makes_an_operator_partial(handlers: dict[str, Handler]) -> None:
    older = {**handlers, "MAX_POOL_2D": replace(handlers["MAX_POOL_2D"], max_version=2)}
    assert coverage(older, builtin_cases()).partial["MAX_POOL_2D"] == "version 3"


def test_declined_operator_counts_as_not_expressible(
    handlers: dict[str, Handler],
) -> None:
    declined = {**handlers, "FLOOR": replace(handlers["FLOOR"], accepts=Decline("not expressible"))}
    report = coverage(declined, builtin_cases())
    assert "FLOOR" in report.refused
    assert "FLOOR" not in (*report.full, *report.partial, *report.missing)
    assert inexpressible_operators(declined)["FLOOR"] == "not expressible"
