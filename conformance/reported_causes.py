"""Report each cause of failures once; later cases refer to the first case."""

from __future__ import annotations

import re

from conformance.runner import NO_KERNEL, CaseResult

_FUNCTION = r"\b(?:handler|kernel|entry point|hook|fusion|pass) "
_CAUSES = (
    re.compile(rf"{_FUNCTION}(?:(?!{_FUNCTION}).)* failed: .*"),
    re.compile(r"[\w.:]+ of \S+ failed: .*"),
    re.compile(
        r"axes '[^']*' of \w+ \d+ do not fit|axes='[^']*': (?:axis|letter) .*|the declaration of \S+ in .*|the case cannot be run: .*"
    ),
)
"""Each pattern matches the part of a reason that names the failing function or declaration.

This part contains neither the operator nor the variants.
"""

_EXPLANATION = re.compile(
    r"layout=\w+ is wrong: |axes='[^']*': (?:axis|letter) |the result differs in every layout: |the table of Lookup is"
    r"|wrong (?:rounding|integer arithmetic): |missing clamp: |shifted by one: |wrong scale or zero point: "
    r"|wrong factor: .*? is [^ ]+ times|has the right values in the wrong positions"
    r"|without it the case passes|the lowering of \S+ does not read its operand"
)
"""Matches a reason that names a wrong declaration or function, which also causes the numerical differences of the case."""


def _cause(reason: str) -> str:
    """Return the part of a reason that is equal in all cases with the same cause.

    Return "" if the reason is only a numerical difference.
    """
    if explanation := _EXPLANATION.search(reason):
        return explanation[0]
    reason = reason.partition(NO_KERNEL)[0]  # the text after it names the operator
    return next((match[0] for pattern in _CAUSES if (match := pattern.search(reason))), "")


class ReportedCauses:
    """The causes reported so far, each with the first case that has it."""

    def __init__(self) -> None:
        self._first_case: dict[str, str] = {}

    def record(self, result: CaseResult) -> str:
        """Record the causes of a failed case; return an earlier case with the same causes.

        Return "" if the case has a new cause, or a numerical difference that no cause explains.
        """
        causes = [cause for reason in result.reasons if (cause := _cause(reason))]
        is_explained = any(_EXPLANATION.search(reason) for reason in result.reasons)
        earlier_cases = [self._first_case[cause] for cause in causes if cause in self._first_case]
        for cause in causes:
            self._first_case.setdefault(cause, result.case.id)
        required_count = len(causes) if is_explained else len(result.reasons)
        return earlier_cases[0] if earlier_cases and len(earlier_cases) == required_count else ""

    def describe(self, result: CaseResult) -> str:
        """Return the text of a failed case, or a reference to a case with the same causes."""
        earlier_case = self.record(result)
        return f"{result.case.id} failed for the same reason as {earlier_case}" if earlier_case else result.text
