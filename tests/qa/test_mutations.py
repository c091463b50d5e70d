"""Each bug in the table ``mutations`` makes the conformance cases fail that the table lists for it.

It also fails one case of the operator in the variants that the suite tries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from conformance.case import Case
from conformance.cases import builtin
from conformance.runner import run_case
from conformance.variants import Variant, number_cases, select_variants, variants_of
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.host import FUSIONS, Host
from tests.qa.mutations import MUTATIONS, Mutation

PLACED: dict[str, tuple[Case, int]] = {case.id: (case, place) for case, place in number_cases(builtin())}
CRASH = re.compile(
    r" failed: [A-Z]\w*: |the case cannot be run"
)  # a Python exception inside the handler: no wrong result


@pytest.fixture(scope="module")
def handlers() -> dict[str, Handler]:
    return {code: found for code, _, found in Host(packs="builtin").handlers() if isinstance(found, Handler)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_planted_bug_fails_its_cases(mutation: Mutation, handlers: dict[str, Handler]) -> None:
    offers = [offer for offer in Host(packs="builtin").offers if offer.group == FUSIONS] if mutation.fusions else []
    sound = Host(offers=offers, handlers=handlers)
    mutant = Host(offers=offers, handlers={**handlers, mutation.code: mutation.mutate(handlers[mutation.code])})

    def kills(case: Case, variant: Variant) -> bool:
        result = run_case(case, mutant, [variant])
        assert not CRASH.search(result.text), f"the planted bug raises an exception: {result.text}"
        return result.status == "failed"

    seen = False
    for name in mutation.killed_by:
        case, place = PLACED[name]
        killing = next((variant for variant in variants_of(case) if kills(case, variant)), None)
        assert killing is not None, f"{name} passes although {mutation.trap}"
        if killing in as_tried(case, place):  # where it passes without the bug, or the suite fails
            seen = True
            continue
        unharmed = run_case(case, sound, [killing])
        assert unharmed.status == "passed", unharmed.text
    others = (pair for name, pair in PLACED.items() if pair[0].op == mutation.code and name not in mutation.killed_by)
    seen = seen or any(kills(case, variant) for case, place in others for variant in as_tried(case, place))
    assert seen, "no case fails in those of its variants that are tried without --thorough"


def as_tried(case: Case, place: int) -> Sequence[Variant]:
    """Return the variants of a case that the suite tries."""
    return select_variants(case, place, [*variants_of(case)])


def test_every_mutation_has_a_case_of_its_operator() -> None:
    assert [
        m.id for m in MUTATIONS if not m.killed_by or any(PLACED[name][0].op != m.code for name in m.killed_by)
    ] == []
    assert [name for name, count in Counter(m.id for m in MUTATIONS).items() if count > 1] == []
