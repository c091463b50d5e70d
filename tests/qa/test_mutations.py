"""Each planted bug makes the conformance cases fail that ``mutations`` lists.

The bug must also be found by a case of the operator in the variants that the suite runs by default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.runner import run_case
from conformance.variants import Variant, number_cases, select_variants, variants_of
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.host import FUSIONS, Host
from tests.qa.mutations import MUTATIONS, Mutation

NUMBERED: dict[str, tuple[Case, int]] = {case.id: (case, number) for case, number in number_cases(builtin_cases())}
CRASH = re.compile(r" failed: [A-Z]\w*: |the case cannot be run")
"""A Python exception in the handler, which is not a wrong result."""


@pytest.fixture(scope="module")
def handlers() -> dict[str, Handler]:
    return {code: handler for code, _, handler in Host(packs="builtin").handlers() if isinstance(handler, Handler)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_planted_bug_fails_its_cases(mutation: Mutation, handlers: dict[str, Handler]) -> None:
    offers = [offer for offer in Host(packs="builtin").offers if offer.group == FUSIONS] if mutation.fusions else []
    correct = Host(offers=offers, handlers=handlers)
    mutant = Host(offers=offers, handlers={**handlers, mutation.code: mutation.mutate(handlers[mutation.code])})

    def kills(case: Case, variant: Variant) -> bool:
        result = run_case(case, mutant, [variant])
        assert not CRASH.search(result.text), f"the planted bug raises an exception: {result.text}"
        return result.status == "failed"

    found_by_default = False
    for name in mutation.killed_by:
        case, number = NUMBERED[name]
        killing = next((variant for variant in variants_of(case) if kills(case, variant)), None)
        assert killing is not None, f"{name} passes with the bug: {mutation.bug}"
        if killing in default_variants(case, number):  # the suite tests that these pass without the bug
            found_by_default = True
            continue
        result = run_case(case, correct, [killing])
        assert result.status == "passed", result.text
    other_cases = (
        pair for name, pair in NUMBERED.items() if pair[0].op == mutation.code and name not in mutation.killed_by
    )
    found_by_default = found_by_default or any(
        kills(case, variant) for case, number in other_cases for variant in default_variants(case, number)
    )
    assert found_by_default, "no case fails in the variants that run without --thorough"


def default_variants(case: Case, number: int) -> Sequence[Variant]:
    """Return the variants of a case that the suite runs by default."""
    return select_variants(case, number, [*variants_of(case)])


def test_every_mutation_has_a_case_of_its_operator() -> None:
    assert [
        m.id for m in MUTATIONS if not m.killed_by or any(NUMBERED[name][0].op != m.code for name in m.killed_by)
    ] == []
    assert [name for name, count in Counter(m.id for m in MUTATIONS).items() if count > 1] == []
