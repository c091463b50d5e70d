"""Replacement of operators whose handlers declare ``rewrite``, before planning.

Replacements are bound to the handlers that the declaration names. Therefore no pack can claim them, and the dtypes
of LiteRT's kernels do not limit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Decline, Replacement
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import OperatorInstance, call_accepts
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.guard import Failed, Mismatch, WrongResult, attribute_errors, describe_decline
from onnx_tflite_plugin.source.model import Operator
from onnx_tflite_plugin.targets import Target


class Site(NamedTuple):
    """An operator to replace, with the target and opset of the conversion."""

    bound: Bound
    target: Target
    opset: int


def rewrite_operator(
    site: Site, substitute: Callable[[Operator], Operator]
) -> Iterator[tuple[Operator, Bound | Problem]]:
    """Yield each replacement with its handler, or the problem that prevents it.

    A problem is yielded with the original operator. ``substitute`` replaces operands whose values are known constants.
    """
    bound = site.bound
    try:
        replacements = call_rewrite(site)
    except Refusal as refusal:
        yield bound.op, Problem(bound.op.code, describe_decline(bound.pack, str(refusal)))
        return
    except Failed as failed:
        yield bound.op, failed.problem(bound.op.code)
        return
    for replacement in replacements:
        op = substitute(replacement.op)
        try:
            decline = call_accepts(replacement.handler, bound.pack, OperatorInstance(op, site.target, site.opset))
        except Failed as failed:
            yield bound.op, failed.problem(bound.op.code)
            return
        if decline is not None:
            yield bound.op, _decline_problem(bound, op, decline)
            return
        yield op, Bound(op, replacement.handler, bound.pack, bound.members)


def call_rewrite(site: Site) -> Sequence[Replacement]:
    """Return the operators that replace an operator.

    Raises Refusal if no operators can replace it, and Failed if the handler's function fails.
    """
    bound = site.bound
    rewrite = bound.handler.rewrite
    assert rewrite is not None
    with attribute_errors(
        f"rewrite of handler {bound.handler.name}", bound.pack, rewrite, bound.label, expected=(Refusal,)
    ):
        replacements = rewrite(OperatorInstance(bound.op, site.target, site.opset))
        if not isinstance(replacements, list | tuple) or not all(isinstance(r, Replacement) for r in replacements):
            raise WrongResult(f"it returned {describe(replacements)}, not a list of Replacement")
        if not replacements or replacements[-1].op.outputs != bound.op.outputs:
            raise Mismatch("the last replacement does not compute the operator's results")
        return replacements


def final_operator(bound: Bound, target: Target, opset: int) -> Bound:
    """Return the last replacement of an operator.

    Return the operator itself if its handler declares no ``rewrite``. Raises Failed and Refusal as ``call_rewrite`` does.
    """
    if bound.handler.rewrite is None:
        return bound
    last = call_rewrite(Site(bound, target, opset))[-1]
    return Bound(last.op, last.handler, bound.pack, bound.members)


def _decline_problem(bound: Bound, op: Operator, decline: Decline) -> Problem:
    return Problem(bound.op.code, describe_decline(bound.pack, f"as {op.code}, {decline.reason}"), decline.hint)
