"""Declarations of rewrite rules. Reading them does not import the rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ZEN_5 = "AMD Zen 5 (AVX-512 VNNI)"
ZEN_4 = "AMD Zen 4 (AVX-512 VNNI)"
XEON = "Intel Xeon (AVX-512 VNNI, AMX)"


class Gain(NamedTuple):
    """Measured speedup by a rule, in percent.

    The speedup is the time without the rule divided by the time with it, minus 1. ``networks``: number of benchmark
    networks that the rule changes. ``mean``, ``best`` and ``worst`` are taken over these networks.
    ``python -m benchmarks.ablation`` measures them with ONNX Runtime on one thread.
    """

    networks: int
    mean: float
    best: float
    worst: float
    processor: str = ZEN_5


class Needed(NamedTuple):
    """A reason for a rule other than speed, such as a runtime that fails without it."""

    reason: str


class RuleDeclaration(NamedTuple):
    """Declaration of the rule ``name`` in the module ``package.module``.

    ``module`` is by default the rule's name. ``summary`` completes "the model was rewritten: ..." in reports.
    ``operators``: ONNX operators that the main graph must contain; otherwise the rule is not imported. ``after``: rules
    that must run before this one. ``exact``: the rule leaves integer results identical, and changes float32 results in
    the last digits at most. Rules that are not exact run only under ``--optimize speed``.
    """

    package: str
    name: str
    summary: str
    benefit: Gain | Needed
    operators: frozenset[str] = frozenset()
    after: tuple[str, ...] = ()
    exact: bool = True
    module: str = ""


PACK_PASS = ":"
"""Separator in the name of a pack's pass, ``module:attribute``; names of built-in rules do not contain it."""


def declare_pack_pass(name: str, pack: str) -> RuleDeclaration:
    """Return the declaration of the pass ``module:attribute`` of a pack's target."""
    return RuleDeclaration(pack, name, f"pass {name}", Needed("the target lists it"))


def sort_rules(rules: Iterable[RuleDeclaration]) -> list[RuleDeclaration]:
    """Return the rules sorted so that each rule follows the rules in its ``after``.

    Independent rules keep their order. Raises ValueError if the ``after`` of some rules form a cycle.
    """
    pending, ordered = list(rules), list[RuleDeclaration]()
    while pending:
        names = {rule.name for rule in pending}
        next_rule = next((rule for rule in pending if names.isdisjoint(rule.after)), None)
        if next_rule is None:
            raise ValueError(f"the `after` of these rewrite rules form a cycle: {', '.join(sorted(names))}")
        pending.remove(next_rule)
        ordered.append(next_rule)
    return ordered
