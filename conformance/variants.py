"""Select the variants in which a case is converted: all, or a sample that depends on the case's position.

A variant is a target, an opset, a layout plan and the layout of graph inputs and outputs. Full combinations would add
little, because these hardly interact. So other opsets, transposed graph inputs and outputs, and the local plan (where the
minimum plan moves anything) are combined with one target each, and every second case tries its second target with
transposed inputs and outputs only.

The ``conformance`` command tries all of these. The test suite tries all with the first case of each operator, dtype and list
of targets or opsets. Other cases are tried in their first variant and share the rest, so that each variant is tried with
every sixth case (``pytest --thorough`` tries all): a fault of an opset, target or layout shows in many cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from conformance.case import Case


class Variant(NamedTuple):
    """One conversion of a case. ``plan`` is "least", "local", or "channels-first": graph inputs and outputs are."""

    target: str
    opset: int | None
    plan: str

    @property
    def text(self) -> str:
        return f"{self.target}{f' opset {self.opset}' if self.opset else ''} {self.plan}"


def variants_of(case: Case, *, turns: bool = True) -> Iterator[Variant]:
    """Return all variants. The local plan is omitted if the minimum plan moves nothing.

    ``turns``: graph inputs and outputs can be transposed; a second target is then tried with transposed ones only, unless
    the case asks for more of it.
    """
    targets, first = case.targets, crc32(case.id.encode())
    transposed, local = targets[first % len(targets)], targets[(first + 1) % len(targets)]
    once = turns and transposed != targets[0] and not (case.refused or case.nodes or case.fuses)
    for k, opset in enumerate(case.opsets):
        for target in targets if k == 0 else (targets[(first + k) % len(targets)],):
            if not (once and k == 0 and target == transposed):
                yield Variant(target, opset, "least")
    yield Variant(local, case.opsets[0], "local")
    yield Variant(transposed, case.opsets[0], "channels-first")


EVERY = 6  # so many cases of a kind share the variants that each of them could be tried in


def number_cases(cases: Iterable[Case]) -> Iterator[tuple[Case, int]]:
    """Yield each case with its number among the cases of one operator and dtype with the same targets and opsets."""
    seen: Counter[tuple[object, ...]] = Counter()
    for case in cases:
        kind = case.op, case.dtype, tuple(case.targets), tuple(case.opsets)
        yield case, seen[kind]
        seen[kind] += 1


def select_variants(case: Case, place: int, variants: Sequence[Variant]) -> Sequence[Variant]:
    """Return the variants of a case at its position. Expected nodes and fusions apply to the minimum plan only."""
    if place == 0 or case.known or case.refused:
        return variants
    asked = case.nodes or case.fuses
    first, *others = variants
    return [
        first,
        *(one for k, one in enumerate(others, place) if k % EVERY == 0 or (asked and one.plan == "least")),
    ]
