"""Declarations of rewrite rules: all that is known of a rule without importing it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ZEN_5 = "AMD Zen 5 (AVX-512 VNNI)"
ZEN_4 = "AMD Zen 4 (AVX-512 VNNI)"
XEON = "Intel Xeon (AVX-512 VNNI, AMX)"


class Gain(NamedTuple):
    """Measured speed-up: time without the rule over time with it, minus 1, in per cent, over the ``networks`` it changes.

    ``python -m benchmarks.ablation`` measures it, with ONNX Runtime and one thread.
    """

    networks: int
    mean: float
    best: float
    worst: float
    processor: str = ZEN_5


class Needed(NamedTuple):
    """A reason other than speed: without the rule the runtime computes other results, or fails."""

    reason: str


class RuleDeclaration(NamedTuple):
    """The rule ``name``, an attribute of the module ``module`` (by default of that name) in the package ``package``.

    ``summary`` completes "the model was rewritten: ..." in reports. ``operators``: ONNX operators that the main graph must
    hold, or the rule is not imported. ``after``: rules that must run before this one. ``exact``: same results, except for the
    last digits of float32, and identical integers; other rules run only under ``--optimize speed``.
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
"""The part of a name that tells a pack's pass, ``module:attribute``, from a built-in rule."""


def declare_pack_pass(name: str, pack: str) -> RuleDeclaration:
    """Return the declaration of a pass that the target of a pack names as ``module:attribute``."""
    return RuleDeclaration(pack, name, f"pass {name}", Needed("the target names it"))


def sort_rules(rules: Iterable[RuleDeclaration]) -> list[RuleDeclaration]:
    """Return the rules in the given order, except that each follows all rules of its ``after``."""
    pending, done = list(rules), list[RuleDeclaration]()
    while pending:
        names = {rule.name for rule in pending}
        free = next((rule for rule in pending if names.isdisjoint(rule.after)), None)
        if free is None:
            raise ValueError(f"rewrite rules that each must follow another: {', '.join(sorted(names))}")
        pending.remove(free)
        done.append(free)
    return done
