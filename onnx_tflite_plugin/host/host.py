"""The thin host: finds handlers, settles who takes an operator, and says what is missing.

A host is an object; tests build one with handlers of their own. Entry points are read once, loaded only when a
model holds their operator, and registered with pluggy as ``CODE@pack``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.hooks import hookimpl
from onnx_tflite_plugin.api.patterns import Fusion
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.activation import with_applied_activation
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel, called_in_vain, check_calls, check_filled
from onnx_tflite_plugin.binding.consistency import Unfit, unfit
from onnx_tflite_plugin.binding.declared import At, accepted, called
from onnx_tflite_plugin.binding.evaluation import Evaluation
from onnx_tflite_plugin.binding.inlining import Inlining
from onnx_tflite_plugin.binding.rewriting import Place, rewritten
from onnx_tflite_plugin.codes import UNKNOWN
from onnx_tflite_plugin.errors import CONTRADICTION, Blamed, Contradiction, InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.guard import BUILTIN, INLINE, Failed
from onnx_tflite_plugin.host.hooks import Hooks
from onnx_tflite_plugin.host.offers import (
    FUSIONS,
    HANDLERS,
    HOOKS,
    TARGETS,
    Offer,
    canonical,
    discover,
    misdeclared,
    misnamed,
    unknown_operators,
)
from onnx_tflite_plugin.host.targets import Targets
from onnx_tflite_plugin.host.unknown import keeper, spelled
from onnx_tflite_plugin.source.model import Model, Operator

NOBODY = "no installed pack has a handler for it"
Answer = tuple[str, Decline | Failed]
"""A pack, and why it does not take an operator."""


@dataclass(frozen=True, eq=False)
class Registration:
    """A handler under the name its entry point gave it: the plugin the host registers.

    A handler may serve under a name other than its own (an alias, or a test that renames opcodes).
    """

    code: str
    handler: Handler
    pack: str

    @hookimpl
    def claim(self, op: Operator, target: Target, opset: int) -> Handler | Decline | None:
        if op.code != self.code:
            return None
        return unfit(self.handler, op) or accepted(self.handler, self.pack, At(op, target, opset)) or self.handler


class Host:
    """Who lowers what. ``prefer`` and ``block`` name packs; ``packs`` limits to ``"builtin"`` or a list of names.

    ``offers`` replaces what is installed, except for the built-in targets. ``handlers`` adds unpackaged
    handlers as pack ``"inline"``. ``keep_unknown``: an operator that nobody takes becomes a node of its own.
    """

    def __init__(
        self,
        *,
        prefer: Iterable[str] = (),
        block: Iterable[str] = (),
        packs: str | Iterable[str] | None = None,
        offers: Sequence[Offer] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        options: Mapping[str, Any] | None = None,
        keep_unknown: bool = False,
    ) -> None:
        self.prefer = [canonical(pack) for pack in prefer]
        self.block = {canonical(pack) for pack in block}
        self.only = None if packs is None else {canonical(BUILTIN), *_listed(packs)}
        self.keep_unknown = keep_unknown
        self.warnings: list[str] = []
        installed = discover(self.warn) if offers is None else offers
        available = {canonical(BUILTIN), INLINE, *(canonical(o.pack) for o in installed)}
        for name in sorted({*self.prefer, *self.block, *(self.only or ())} - available):
            self.warn(f"no op pack {name!r} is installed")
        admitted = [o for o in installed if self._admitted(o.pack)]
        self.offers = [offer for offer in admitted if not offer.unmet]
        builtin = [o for o in (installed if offers is None else discover()) if _is_builtin_target(o)]
        others = [o for o in self.offers if not _is_builtin_target(o)]
        self.targets = Targets([*others, *builtin], self.prefer)  # the built-in ones cannot be replaced or blocked
        self.overrides: dict[str, str] = {}
        self.hooks = Hooks(dict(options or {}), self.warn)
        self._by_code: dict[str, list[Offer]] = defaultdict(list)
        for offer in admitted:
            if offer.group == HANDLERS:
                self._by_code[offer.code].append(offer)
        self._loaded: dict[str, list[Failed]] = {}
        self._fusion_offers = [offer for offer in self.offers if offer.group == FUSIONS]
        self._fusions: dict[int, Fusion | None] = {}
        self._mention(admitted)
        for code, handler in (handlers or {}).items():
            self.hooks.register(Registration(code, handler, INLINE), code, INLINE)
        self._load_hooks()

    def _admitted(self, pack: str) -> bool:
        return canonical(pack) not in self.block and (self.only is None or canonical(pack) in self.only)

    def warn(self, text: str) -> None:
        """Something the user should know of the packs, said once."""
        if text not in self.warnings:
            self.warnings.append(text)

    # --- loading ------------------------------------------------------------------------------

    def _mention(self, offers: Iterable[Offer]) -> None:
        """What can be said of packs without loading them: those made for another version, and names of no operator."""
        for offer in offers:
            if offer.unmet:
                self.warn(f"{offer.pack} is left out: {_outdated(offer)}")
            elif offer.group == HANDLERS and canonical(offer.pack) != BUILTIN and (reason := misnamed(offer.code)):
                self.warn(f"{offer.named} of {offer.pack} serves nothing: {reason}")

    def _load_hooks(self) -> None:
        for offer in self.offers:
            if offer.group != HOOKS:
                continue
            try:
                self.hooks.add(offer.load(), offer.code, offer.pack)
            except Failed as failed:
                self.hooks.leave_out(offer.pack, failed)
                self.warn(f"{failed.reason}; the hooks of {offer.pack} are left out")

    def _load(self, code: str) -> list[Failed]:
        """Load the entry points of one operator; returns why some cannot serve it, should nobody else."""
        if code not in self._loaded:
            self._loaded[code] = []
            for offer in self._by_code.get(code, ()):
                try:
                    if offer.unmet:
                        raise Failed(offer.pack, f"{offer.pack}, which serves it, is left out: {_outdated(offer)}")
                    self.hooks.register(Registration(code, offer.handler(), offer.pack), code, offer.pack)
                except Failed as failed:
                    self._loaded[code].append(failed)
                    if not offer.unmet:  # which is told already
                        self.warn(f"{failed.reason}; it is left out")
        return self._loaded[code]

    def fusions(self, present: Collection[str] | None = None) -> list[tuple[str, Fusion]]:
        """(pack, fusion) of the admitted fusions that can match where these operators are present, else of all.

        A fusion may start with the result of another, so the name of one that is loaded counts as present. One that does
        not load, or is no fusion, is a warning.
        """
        loaded: dict[int, Fusion | None] = {}
        codes = set(present or ())
        while wanted := [
            k
            for k, offer in enumerate(self._fusion_offers)
            if k not in loaded and (present is None or not offer.needs or offer.needs & codes)
        ]:
            for k in wanted:
                loaded[k] = fusion = self._fusion(k)
                codes.update((fusion.name,) if fusion else ())
        found = ((offer.pack, loaded.get(k)) for k, offer in enumerate(self._fusion_offers))
        return [(pack, fusion) for pack, fusion in found if fusion is not None]

    def _fusion(self, k: int) -> Fusion | None:
        """What an entry point offers, ``None`` where it does not load; what is wrong with it is told once."""
        if k not in self._fusions:
            self._fusions[k] = self._load_fusion(self._fusion_offers[k])
        return self._fusions[k]

    def _load_fusion(self, offer: Offer) -> Fusion | None:
        try:
            fusion = offer.fusion()
        except Failed as failed:
            self.warn(f"{failed.reason}; it is left out")
            return None
        if wrong := misdeclared(offer.needs, fusion):
            self.warn(f"the entry point {offer.code} of {offer.pack} {wrong}")
        if canonical(offer.pack) != BUILTIN and (wrong := unknown_operators(fusion, self._others)):
            self.warn(f"the fusion {fusion.name} of {offer.pack} {wrong}")
        return fusion

    def _others(self) -> set[str]:
        """The operators besides the schema's that may be in patterns: those of entry points, and fusions that load."""
        names = {*self._by_code}
        for offer in self._fusion_offers:
            with suppress(Failed):
                names.add(offer.fusion().name)
        return names

    def serving(self) -> list[tuple[str, str]]:
        """(code, pack) of every handler discovered, by code; none is loaded."""
        return sorted((offer.code, offer.pack) for offer in self.offers if offer.group == HANDLERS)

    def handlers(self, codes: Collection[str] | None = None) -> Iterator[tuple[str, str, Handler | Failed]]:
        """(code, pack, handler or why it does not serve) of everything discovered, or of these operators, by code."""
        for offer in sorted((o for o in self.offers if o.group == HANDLERS), key=lambda o: (o.code, o.pack)):
            if codes is not None and offer.code not in codes:
                continue
            try:
                if canonical(offer.pack) != BUILTIN and (reason := misnamed(offer.code)):
                    raise Failed(offer.pack, f"{offer.named} of {offer.pack}: {reason}")
                yield offer.code, offer.pack, offer.handler()
            except Failed as failed:
                yield offer.code, offer.pack, failed

    def registered(self, code: str) -> list[tuple[str, Handler]]:
        """Return (pack, handler) of all that are registered for an operator; of the built-in pack only if no other has one."""
        self._load(code)
        found = [(pack, one.handler) for pack, one in self.hooks.registered(code) if isinstance(one, Registration)]
        return [each for each in found if canonical(each[0]) != canonical(BUILTIN)] or found

    # --- claims -------------------------------------------------------------------------------

    def bind(self, model: Model, target: Target, opset: int) -> BoundModel:
        """One handler per operator that can run. Raises UnsupportedOperator with everything that is missing."""
        missing: dict[tuple[str, str], list[Operator]] = defaultdict(list)
        contradictions: list[Problem] = []
        reasons: dict[tuple[str, str], Problem] = {}
        graphs: dict[int, BoundGraph] = {}
        calls: dict[tuple[int, Operator], Sequence[int]] = {}
        inlining, waiting = Inlining(model), [model.root]
        while waiting:
            index = waiting.pop()
            if index in graphs:
                continue
            bound: list[Bound] = []
            evaluation = Evaluation()
            for op, taken in self._taken(
                inlining, model.subgraphs[index].operators, evaluation, (index,), target, opset
            ):
                if isinstance(taken, Bound):
                    bound.append(taken)
                    evaluation.learn(taken, target, opset)
                    calls[index, taken.op] = called(taken.handler.subgraphs, taken.op)
                    nowhere = called_in_vain(taken.op, calls[index, taken.op], len(model.subgraphs))
                    contradictions += nowhere
                    waiting.extend(() if nowhere else calls[index, taken.op])
                elif isinstance(taken, Contradiction):
                    contradictions.append(taken)
                else:
                    missing[op.code, taken.reason].append(op)
                    reasons[op.code, taken.reason] = taken
            graphs[index] = BoundGraph(model.subgraphs[index], tuple(bound))
        if contradictions:
            raise InvalidModel(CONTRADICTION, contradictions)
        if missing:
            problems = [replace(problem, where=_where(missing[key])) for key, problem in reasons.items()]
            for pack, failures in self.hooks.failures.items():  # it might have taken them
                problems += [failed.problem(_hookless(pack)) for failed in failures]
            raise UnsupportedOperator("operators that cannot be converted:", problems)
        check_calls(calls)
        check_filled(graphs[index] for index in sorted(graphs))
        return BoundModel(model, tuple(graphs.get(g.index, BoundGraph(g, ())) for g in model.subgraphs))

    def _taken(
        self,
        inlining: Inlining,
        operators: Sequence[Operator],
        evaluation: Evaluation,
        within: tuple[int, ...],
        target: Target,
        opset: int,
    ) -> Iterator[tuple[Operator, Bound | Problem]]:
        """Each operator with its handler or why there is none; calls that can be inlined give way to their operators, and
        operators whose handlers rewrite them to those that they become.

        ``within``: the subgraph and those being inlined into it.
        """
        for op in operators:
            taken = self.take(evaluation.applied(op), target, opset)
            inner = inlining.operators(taken, within) if isinstance(taken, Bound) else None
            if isinstance(taken, Bound) and inner is not None:
                outer = (*within, taken.op.options[taken.handler.inlines])
                yield from self._taken(inlining, inner, evaluation, outer, target, opset)
            elif isinstance(taken, Bound) and taken.handler.rewrite is not None:
                yield from rewritten(Place(taken, target, opset), evaluation.applied)
            else:
                yield op, taken

    def take(self, op: Operator, target: Target, opset: int) -> Bound | Problem:
        """The operator with its handler, or why nobody has it. ``opset``: as declared functions are told."""
        taken = self._take(op, target, opset)
        if isinstance(taken, Bound) or not self.keep_unknown:
            return taken
        kept = keeper(op)
        if kept is None:
            return taken
        self.warn(
            f"{op.code} is kept as a node of domain {spelled(op.code)[0]}, for a runtime that has a kernel: {taken.reason}"
        )
        return Bound(op, kept, BUILTIN, (op,))

    def left_out(self) -> list[str]:
        """The packs whose hooks are left out, each with why: they might have taken what nobody takes."""
        return [f"{_hookless(pack)}: {failed.reason}" for pack, all_ in self.hooks.failures.items() for failed in all_]

    def _take(self, op: Operator, target: Target, opset: int) -> Bound | Problem:
        failures = self._load(op.code) + (self._load(op.builtin) if op.builtin != op.code else [])
        claims, declined = self._claims(At(op, target, opset))
        if not claims and op.builtin != op.code:
            claims, more = self._claims(At(replace(op, code=op.builtin), target, opset))
            declined += more
        if not claims:
            return _nobody(op, [*declined, *((failed.pack, failed) for failed in failures)])
        settled = self._settle(op, claims)
        if isinstance(settled, Problem):
            return settled
        pack, handler = settled
        if op.version > handler.max_version:
            reason = f"version {op.version} is newer than the {handler.max_version} that {pack} knows"
            return Problem(op.code, reason, f"update {pack}, or install a pack that serves it")
        try:
            applied = with_applied_activation(handler, pack, At(op, target, opset))
        except Failed as failed:
            return _nobody(op, [(pack, failed)])
        return (
            Bound(applied, handler, pack, (applied,))
            if isinstance(applied, Operator)
            else _nobody(op, [(pack, applied)])
        )

    def _claims(self, at: At) -> tuple[list[tuple[str, Handler]], list[Answer]]:
        """Who takes an operator, and why others do not; one that fails does not, and is a warning."""
        claims: list[tuple[str, Handler]] = []
        declined: list[Answer] = []
        offered = any(canonical(offer.pack) != BUILTIN for offer in self._by_code.get(at.op.code, ()))
        for pack, answer in self.hooks.claims(at, offered):
            if isinstance(answer, Handler):
                claims.append((pack, answer))
                continue
            declined.append((pack, answer))
            if isinstance(answer, Failed):
                self.warn(f"{answer.reason}; it is passed over")
        return claims, declined

    def _settle(self, op: Operator, claims: list[tuple[str, Handler]]) -> tuple[str, Handler] | Problem:
        """Preferred pack, then the one third party, then the built-in; two third parties are a problem naming both."""
        for wanted in self.prefer:
            for pack, handler in claims:
                if canonical(pack) == wanted:
                    self._note(op, pack, claims)
                    return pack, handler
        others = [(pack, handler) for pack, handler in claims if canonical(pack) != canonical(BUILTIN)]
        if len({pack for pack, _ in others}) > 1:
            names = sorted({pack for pack, _ in others})
            hint = " or ".join(f"--prefer {name}" for name in names)
            return Problem(
                op.code, f"claimed by two packs, {' and '.join(names)}", f"choose with {hint}, or --block one"
            )
        pack, handler = (others or claims)[0]
        self._note(op, pack, claims)
        return pack, handler

    def _note(self, op: Operator, pack: str, claims: list[tuple[str, Handler]]) -> None:
        if canonical(pack) != canonical(BUILTIN) and any(canonical(p) == canonical(BUILTIN) for p, _ in claims):
            self.overrides[op.code] = pack


def _is_builtin_target(offer: Offer) -> bool:
    return offer.group == TARGETS and canonical(offer.pack) == BUILTIN


def _listed(packs: str | Iterable[str]) -> set[str]:
    names = packs.split(",") if isinstance(packs, str) else packs
    return {canonical(name.strip()) for name in names if name.strip() and name.strip() != "builtin"}


def _where(ops: Sequence[Operator]) -> str:
    first = ops[0]
    named = next((f", output {t.name!r}" for t in first.outputs if t is not None), "")
    place = f"subgraph {first.subgraph} " if first.subgraph else ""
    more = f", {len(ops)} in all" if len(ops) > 1 else ""
    return f"{first.code} v{first.version} ({place}op {first.index}{named}{more})"


def _nobody(op: Operator, answers: Sequence[Answer]) -> Problem:
    """Why nobody takes an operator, and what would help."""
    wrong = next((answer for pack, answer in answers if isinstance(answer, Unfit) and pack == BUILTIN), None)
    if wrong is not None:
        return wrong.problem
    if answers:
        texts = dict.fromkeys(
            answer.reason if isinstance(answer, Failed) else f"declined by {pack}: {answer.reason}"
            for pack, answer in answers
        )
        reason, hint = "; ".join(texts), "; ".join(dict.fromkeys(filter(None, (a.hint for _, a in answers))))
        failed = [answer for _, answer in answers if isinstance(answer, Failed)]
        if not failed:
            return Problem(op.code, reason, hint)
        return Blamed(op.code, reason, hint, all(answer.pack == BUILTIN for answer in failed))
    hint = _remedy(op.code)
    if op.code.startswith(UNKNOWN):
        number = op.code.removeprefix(UNKNOWN)
        return Problem(
            op.code, f"operator code {number} is not in the schema this version knows; the file is newer", hint
        )
    return Problem(op.code, NOBODY, hint)


def _remedy(code: str) -> str:
    named = quote(code, safe="._-")
    return f"an op pack can convert it, and this writes one to start from: onnx-tflite new-pack DIR --op {named}"


def _hookless(pack: str) -> str:
    return f"{pack}, whose hooks are left out"


def _outdated(offer: Offer) -> str:
    return f"it is made for onnx-tflite-plugin {offer.unmet}, this is {VERSION}"
