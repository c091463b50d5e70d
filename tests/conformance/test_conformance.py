"""Run the cases of all built-in handlers, and test their coverage and tolerances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from conformance.bounds import EXACT_DTYPES, EXACT_OPERATORS
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.coverage import gaps
from conformance.packs import Suite
from conformance.runner import run_case
from conformance.table import README, read_table, readme, refusal, table
from conformance.variants import number_cases
from onnx_tflite_plugin.host import BUILTIN, Host
from onnx_tflite_plugin.verify import Tolerance

CASES = builtin_cases()
# Cases that pass only with newer kernels of LiteRT, with the first LiteRT version that has these kernels.
NEWER_KERNELS = {"CONV_3D_TRANSPOSE-SAME_3x2x4": "2.2", "SIGN-float32_edges": "2.1.6"}


def parameters() -> Iterator[ParameterSet]:
    for case, position in number_cases(CASES):
        version = NEWER_KERNELS.get(case.id)
        needs = [pytest.mark.needs("ai-edge-litert", version, "LiteRT's kernel changed")] if version else []
        yield pytest.param(case, position, id=case.id, marks=needs)


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(packs="builtin")


@pytest.mark.parametrize(("case", "position"), [*parameters()])
def test_case(case: Case, position: int, host: Host, thorough: bool) -> None:
    """Run a sample of the case's variants; ``--thorough`` runs all."""
    result = run_case(case, host, position=None if thorough else position)
    if result.status == "skipped":
        pytest.skip(result.reasons[0])
    assert result.ok, result.text
    if result.status == "known":
        pytest.xfail(result.reasons[0])


def test_each_handler_has_cases_in_a_transposed_layout(host: Host) -> None:
    handlers = tuple((code, pack) for code, pack, _ in host.handlers())
    assert {pack for _, pack in handlers} == {BUILTIN}
    assert list(gaps(Suite(host, handlers, (), tuple(CASES), {}))) == []


def test_case_ids_are_unique() -> None:
    assert [name for name, count in Counter(case.id for case in CASES).items() if count > 1] == []


# Cases of several operators, or with a small output range. Each case states the reason (``tolerance_reason``).
LOOSER = {"int8 with constant cell states", "not fused, int8", "many pixels with RELU6"}


def test_cases_do_not_loosen_the_default_tolerance() -> None:
    """A built-in case may set a stricter tolerance, but not a looser one."""
    default = Tolerance()
    for case in CASES:
        tolerance = case.tolerance or default
        if case.name in LOOSER:
            continue
        assert case.tolerance is None or tolerance.of_range <= 1e-5 or "float" not in case.dtype, case.id
        assert tolerance.steps <= default.steps, case.id
        assert tolerance.integers <= default.integers, case.id
    assert not EXACT_OPERATORS & {*EXACT_DTYPES}


def test_bounds_belong_to_operators_with_cases() -> None:
    tested = {(case.op, case.dtype) for case in CASES}
    assert sorted(EXACT_OPERATORS - {op for op, _ in tested}) == []
    assert [(op, dtype) for op, dtypes in EXACT_DTYPES.items() for dtype in dtypes if (op, dtype) not in tested] == []


def test_support_table_is_up_to_date(host: Host) -> None:
    assert read_table() == table(host), "python -m conformance.table --write"


def test_support_table_gives_only_reason_and_remedy_of_a_refusal(host: Host) -> None:
    case = next(case for case in CASES if case.id == "CONV_3D-dynamic_depth,_dilated")
    assert case.refusal == "--input-shape"
    assert refusal(case, host) == "SAME padding with a stride on a dynamic dimension; set its size with --input-shape"


def test_readme_coverage_is_up_to_date(host: Host) -> None:
    assert README.read_text(encoding="utf-8") == readme(host), "python -m conformance.table --write"
