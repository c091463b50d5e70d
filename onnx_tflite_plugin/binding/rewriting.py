"""An operator whose handler declares ``rewrite`` gives way to others before anything is planned.

They are bound to the handlers that the declaration names, so no pack is asked for them, and the dtypes of LiteRT's kernels
do not limit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Decline, Replacement
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import At, declined
from onnx_tflite_plugin.checked import described
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.guard import Failed, Mismatch, guarded
from onnx_tflite_plugin.source.model import Operator
from onnx_tflite_plugin.targets import Target


class Place(NamedTuple):
    """An operator that gives way, and what the conversion is for."""

    bound: Bound
    target: Target
    opset: int


def rewritten(place: Place, applied: Callable[[Operator], Operator]) -> Iterator[tuple[Operator, Bound | Problem]]:
    """Each replacement with its handler, or the operator and the reason why it cannot be replaced.

    ``applied`` puts in the constants that are known by the time each is asked for.
    """
    bound = place.bound
    try:
        replacements = replacements_of(place)
    except Refused as refusal:
        yield bound.op, Problem(bound.op.code, f"declined by {bound.pack}: {refusal}")
        return
    except Failed as failed:
        yield bound.op, failed.problem(bound.op.code)
        return
    for replacement in replacements:
        op = applied(replacement.op)
        try:
            refusal_of_it = declined(replacement.handler, bound.pack, At(op, place.target, place.opset))
        except Failed as failed:
            yield bound.op, failed.problem(bound.op.code)
            return
        if refusal_of_it is not None:
            yield bound.op, _unsupported(bound, op, refusal_of_it)
            return
        yield op, Bound(op, replacement.handler, bound.pack, bound.members)


def replacements_of(place: Place) -> Sequence[Replacement]:
    """The operators that take an operator's place. Raises Refused where there are none, Failed where the function fails."""
    bound = place.bound
    rewrite = bound.handler.rewrite
    assert rewrite is not None
    with guarded(f"rewrite of handler {bound.handler.name}", bound.pack, rewrite, bound.label, passes=(Refused,)):
        replacements = rewrite(At(bound.op, place.target, place.opset))
        if not isinstance(replacements, list | tuple) or not all(isinstance(r, Replacement) for r in replacements):
            raise Mismatch(f"it returned {described(replacements)}, not a list of Replacement")
        if not replacements or replacements[-1].op.outputs != bound.op.outputs:
            raise Mismatch("the last of its operators does not give the operator's results")
        return replacements


def final(bound: Bound, target: Target, opset: int) -> Bound:
    """The operator that gives an operator's results: its last replacement, or itself. Raises Failed and Refused."""
    if bound.handler.rewrite is None:
        return bound
    last = replacements_of(Place(bound, target, opset))[-1]
    return Bound(last.op, last.handler, bound.pack, bound.members)


def _unsupported(bound: Bound, op: Operator, decline: Decline) -> Problem:
    return Problem(bound.op.code, f"declined by {bound.pack}: as {op.code}, {decline.reason}", decline.hint)
