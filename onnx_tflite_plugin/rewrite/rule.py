"""Rewrite rules: pattern, check and rewrite, applied by an onnx_ir pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, InvariantError, PassBase, PassError, PassResult, Sequential

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.host.hooks import Check
from onnx_tflite_plugin.progress import LOG
from onnx_tflite_plugin.rewrite.declaration import PACK_PASS, RuleDeclaration, sort_rules
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import nodes_of
from onnx_tflite_plugin.rewrite.pack_pass import PackPass

Place = TypeVar("Place")
Match = TypeVar("Match")
_T = TypeVar("_T")


class RewriteOptions(NamedTuple):
    """Options of a conversion that rules depend on.

    ``unroll``: maximum number of iterations of loops to unroll. ``check``: called after each pass of a pack.
    """

    weights_dtype: str = "auto"
    unroll: int = 0
    check: Check = lambda before, after: ""


DEFAULTS = RewriteOptions()

Pattern = Callable[[ir.Model, RewriteOptions], Iterable[Place]]


@dataclass
class Outcome:
    """Number of changes that a rule made, and reason -> number of declined places."""

    applied: int = 0
    declined: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> dict[str, int]:
        """Return the number of declined places per reason, most frequent first.

        Places declined without a reason are not counted.
        """
        return {reason: count for reason, count in self.declined.most_common() if reason}


@dataclass(frozen=True)
class RewriteRule(Generic[Place, Match]):
    """A rewrite of a finished model: pattern, check and rewrite, as in ``@fusion``.

    ``pattern`` yields the places of a model that may be rewritten. ``check`` returns the match at a place, or a Decline
    with a reason for the log. The reason is empty if the mismatch is not worth reporting. ``check`` may also
    raise Refusal instead of returning a Decline (see :func:`require`). ``rewrite`` changes the model and returns the
    number of changes; None counts as one change.
    """

    pattern: Pattern[Place]
    check: Callable[[Place], Match | Decline]
    rewrite: Callable[[Editor, Match], int | None]

    def apply(self, model: ir.Model, options: RewriteOptions = DEFAULTS) -> Outcome:
        """Rewrite every place that passes the check, in the order of the pattern."""
        outcome = Outcome()
        editor = Editor(model)
        for place in self.pattern(model, options):
            match = self._match(place)
            if isinstance(match, Decline):
                outcome.declined[match.reason] += 1
            else:
                count = self.rewrite(editor, match)
                outcome.applied += 1 if count is None else count
        if outcome.applied:
            editor.remove_unused()
        return outcome

    def _match(self, place: Place) -> Match | Decline:
        try:
            return self.check(place)
        except Refusal as refusal:
            return Decline(str(refusal))


def nodes(*op_types: str) -> Pattern[ir.Node]:
    """Return a pattern that yields main-graph nodes with one of these operators."""
    return lambda model, _: nodes_of(model.graph, *op_types)


def nodes_of_all_graphs(*op_types: str) -> Pattern[ir.Node]:
    """Return a pattern that yields nodes of all graphs with one of these operators."""
    return lambda model, _: nodes_of(model.graph.all_nodes(), *op_types)


def require_match(match: _T | None, reason: str = "") -> _T:
    """Return ``match``. Raises Refusal with the reason if it is ``None``."""
    if match is None:
        raise Refusal(reason)
    return match


def require(condition: object, reason: str = "") -> None:
    """Raise Refusal with the reason unless a condition holds."""
    if not condition:
        raise Refusal(reason)


def load_rule(declaration: RuleDeclaration) -> RewriteRule[Any, Any] | PackPass:
    """Import and return a rule, or return the wrapper of a pack's pass."""
    if PACK_PASS in declaration.name:
        return PackPass(declaration.package, declaration.name)
    module = import_module(f"{declaration.package}.{declaration.module or declaration.name}")
    rule: RewriteRule[Any, Any] = getattr(module, declaration.name)
    return rule


class RewritePass(InPlacePass):
    """Apply one rule if the model has the operators that the rule needs.

    ``outcome``: the result of the last call.
    """

    def __init__(self, rule: RuleDeclaration, options: RewriteOptions) -> None:
        self.rule, self.options, self.outcome = rule, options, Outcome()

    def call(self, model: ir.Model) -> PassResult:
        if self.rule.operators <= operators(model):
            rule = load_rule(self.rule)
            if isinstance(rule, PackPass):
                self.outcome = Outcome(rule.apply(model, self.options.check))
            else:
                self.outcome = rule.apply(model, self.options)
            for line in _log_lines(self.rule.name, self.outcome):
                LOG.debug("%s", line)
        return PassResult(model, bool(self.outcome.applied))


def apply_rules(
    rules: Iterable[RuleDeclaration], model: ir.Model, options: RewriteOptions = DEFAULTS
) -> dict[str, Outcome]:
    """Apply rules in the order of :func:`sort_rules`. Return outcomes by rule name."""
    passes = [RewritePass(rule, options) for rule in sort_rules(rules)]
    run_passes(model, passes)
    return {rewrite_pass.rule.name: rewrite_pass.outcome for rewrite_pass in passes}


def run_passes(model: ir.Model, passes: Sequence[PassBase]) -> None:
    """Run passes one after the other.

    If a pass fails, raises its original exception instead of the PassError or InvariantError in which onnx_ir wraps it.
    """
    if not passes:
        return
    try:
        Sequential(*passes)(model)
    except (PassError, InvariantError) as error:
        cause: BaseException = error
        while isinstance(cause, PassError | InvariantError) and cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


def operators(model: ir.Model) -> Set[str]:
    """Return the operators of the main graph."""
    return {node.op_type for node in model.graph}


def _log_lines(name: str, outcome: Outcome) -> Iterator[str]:
    if outcome.applied:
        yield f"rewrite {name}: applied ({outcome.applied}x)"
    for reason, count in outcome.reasons().items():
        yield f"rewrite {name}: not applied ({count}x): {reason}"
