"""Problems of operators that no handler converts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.binding.consistency import ArityDecline
from onnx_tflite_plugin.codes import UNKNOWN, has_custom_name
from onnx_tflite_plugin.errors import NoHandler, PackFailure, Problem
from onnx_tflite_plugin.guard import BUILTIN, INLINE, Failed, describe_decline
from onnx_tflite_plugin.host.remedies import describe_remedies
from onnx_tflite_plugin.source.model import Operator, Subgraph

NO_HANDLER_REASON = "no installed pack has a handler for it"
Answer = tuple[str, Decline | Failed]
"""A pack, and the reason why it does not claim an operator."""


def describe_location(ops: Sequence[Operator]) -> str:
    first = ops[0]
    output = next((f", output {t.name!r}" for t in first.outputs if t is not None), "")
    subgraph = f"subgraph {first.subgraph} " if first.subgraph else ""
    count_text = f", {len(ops)} in all" if len(ops) > 1 else ""
    return f"{first.code} v{first.version} ({subgraph}op {first.index}{output}{count_text})"


def missing_handler_problem(
    op: Operator, answers: Sequence[Answer], similar: str = "", *, is_registered: bool = True
) -> Problem:
    """Return the problem that no pack accepts an operator, with reasons and remedies.

    ``similar``: a remedy that names a similar handler, or "". ``is_registered``: True if a handler of the operator is
    installed, but does not accept it.
    """
    arity_decline = next(
        (answer for pack, answer in answers if isinstance(answer, ArityDecline) and pack == BUILTIN), None
    )
    if arity_decline is not None:
        return arity_decline.problem
    if answers:
        texts = dict.fromkeys(
            answer.reason if isinstance(answer, Failed) else describe_decline(pack, answer.reason)
            for pack, answer in answers
        )
        reason, hint = "; ".join(texts), "; ".join(dict.fromkeys(filter(None, (a.hint for _, a in answers))))
        failed = [answer for _, answer in answers if isinstance(answer, Failed)]
        if not failed:
            needs_pack = not hint and not is_registered and has_custom_name(op.code)
            return (NoHandler if needs_pack else Problem)(op.code, reason, hint)
        return PackFailure(op.code, reason, hint, all(answer.pack == BUILTIN for answer in failed))
    if op.code.startswith(UNKNOWN):
        number = op.code.removeprefix(UNKNOWN)
        return NoHandler(
            op.code,
            f"operator code {number} is not in the schema of this version; the file needs a newer version",
            similar,
        )
    return NoHandler(op.code, NO_HANDLER_REASON, similar)


def competing_claims_problem(op: Operator, packs: Sequence[str]) -> Problem:
    """Return the problem that several packs claim an operator and none is preferred."""
    if INLINE in packs:
        installed = [pack for pack in packs if pack != INLINE]
        return Problem(
            op.code,
            f"claimed by the installed {' and '.join(installed)} and by Host(handlers=...)",
            f"choose with Host(prefer=[{INLINE!r}], ...) or Host(block={installed!r}, ...)",
        )
    count = "two" if len(packs) == 2 else str(len(packs))
    hint = " or ".join(f"--prefer {pack}" for pack in packs)
    return Problem(op.code, f"claimed by {count} packs, {' and '.join(packs)}", f"choose with {hint}, or --block one")


def with_remedies(problems: Mapping[Operator, Problem], main: Subgraph) -> dict[Operator, Problem]:
    """Add the shared remedies to the problems of operators without a handler.

    ``main``: the converted subgraph.
    """
    without_handler = [op for op, problem in problems.items() if isinstance(problem, NoHandler)]
    if not without_handler:
        return dict(problems)
    remedies = describe_remedies(without_handler, [*problems], main)
    return {
        op: replace(problem, hint="; ".join(filter(None, (problem.hint, remedies))))
        if isinstance(problem, NoHandler)
        else problem
        for op, problem in problems.items()
    }


def describe_skipped_hooks(pack: str) -> str:
    return f"{pack}, whose hooks are skipped"
