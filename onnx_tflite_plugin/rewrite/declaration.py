"""Declarations of rewrite rules, which are read without importing the rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ZEN_5 = "AMD Zen 5 (AVX-512 VNNI)"
ZEN_4 = "AMD Zen 4 (AVX-512 VNNI)"
XEON = "Intel Xeon (AVX-512 VNNI, AMX)"


class Gain(NamedTuple):
    """Measured speedup in percent: time without the rule divided by time with it, minus 1.

    ``mean``, ``best`` and ``worst`` are over the ``networks`` that the rule changes. ``python -m benchmarks.ablation``
    measures them with ONNX Runtime on one thread.
    """

    networks: int
    mean: float
    best: float
    worst: float
    processor: str = ZEN_5


class Needed(NamedTuple):
    """A reason other than speed, for example that the runtime fails without the rule."""

    reason: str


class RuleDeclaration(NamedTuple):
    """Declaration of the rule ``name`` in the module ``package.module``.

    ``module`` is by default the rule's name. ``summary`` completes "the model was rewritten: ..." in reports.
    ``operators``: ONNX operators that the main graph must contain; otherwise the rule is not imported. ``after``: rules
    that must run before this one. ``exact``: integer results are identical, and float32 results differ in the last
    digits at most; other rules run only under ``--optimize speed``.
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
    """Return the declaration of a pass that the target of a pack names as ``module:attribute``."""
    return RuleDeclaration(pack, name, f"pass {name}", Needed("the target names it"))


def sort_rules(rules: Iterable[RuleDeclaration]) -> list[RuleDeclaration]:
    """Return the rules in the given order, except that each follows all rules of its ``after``.

    Raises ValueError if the ``after`` of some rules form a cycle.
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
