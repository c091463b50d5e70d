"""Problems of operators that no handler converts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import quote

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.binding.consistency import Unfit
from onnx_tflite_plugin.codes import UNKNOWN
from onnx_tflite_plugin.errors import AttributedProblem, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, describe_decline
from onnx_tflite_plugin.source.model import Operator

NOBODY = "no installed pack has a handler for it"
Answer = tuple[str, Decline | Failed]
"""A pack, and the reason why it does not claim an operator."""


def describe_location(ops: Sequence[Operator]) -> str:
    first = ops[0]
    output = next((f", output {t.name!r}" for t in first.outputs if t is not None), "")
    subgraph = f"subgraph {first.subgraph} " if first.subgraph else ""
    total = f", {len(ops)} in all" if len(ops) > 1 else ""
    return f"{first.code} v{first.version} ({subgraph}op {first.index}{output}{total})"


def missing_handler_problem(op: Operator, answers: Sequence[Answer], similar: str = "") -> Problem:
    """Return the problem that no pack takes an operator, with reasons and remedies. ``similar``: a remedy to name first."""
    unfit = next((answer for pack, answer in answers if isinstance(answer, Unfit) and pack == BUILTIN), None)
    if unfit is not None:
        return unfit.problem
    if answers:
        texts = dict.fromkeys(
            answer.reason if isinstance(answer, Failed) else describe_decline(pack, answer.reason)
            for pack, answer in answers
        )
        reason, hint = "; ".join(texts), "; ".join(dict.fromkeys(filter(None, (a.hint for _, a in answers))))
        failed = [answer for _, answer in answers if isinstance(answer, Failed)]
        if not failed:
            return Problem(op.code, reason, hint)
        return AttributedProblem(op.code, reason, hint, all(answer.pack == BUILTIN for answer in failed))
    hint = "; ".join(filter(None, (similar, _remedy(op))))
    if op.code.startswith(UNKNOWN):
        number = op.code.removeprefix(UNKNOWN)
        return Problem(
            op.code, f"operator code {number} is not in the schema this version knows; the file is newer", hint
        )
    return Problem(op.code, NOBODY, hint)


def _remedy(op: Operator) -> str:
    """Return the remedies for an operator without a handler: a pack of one's own, or the model before or after it."""
    pack = (
        f"an op pack can convert it; create one with: onnx-tflite new-pack DIR --op {quote(op.code, safe='._-')}, "
        "and --like KIND if it is not elementwise"
    )
    return "; ".join([pack, *_cut_remedies(op)])


def _cut_remedies(op: Operator) -> list[str]:
    """Return the options that convert the model before or after an operator."""
    remedies = []
    if op.subgraph == 0:
        results = next(([tensor.name] for tensor in op.outputs if tensor is not None and tensor.name), [])
        operands = [
            tensor.name for tensor in op.inputs if tensor is not None and tensor.name and not tensor.is_constant
        ]
        remedies += [f"to convert the operators after it: --inputs-at {shlex.quote(name)}" for name in results]
        remedies += [f"to convert the operators before it: --outputs {shlex.quote(name)}" for name in operands[:1]]
    return remedies


def describe_skipped_hooks(pack: str) -> str:
    return f"{pack}, whose hooks are left out"
