"""The thin host: finds handlers, settles who takes an operator, and says what is missing.

A host is an object; tests build one with handlers of their own. Entry points are read once, loaded only when a
model holds their operator, and registered with pluggy as ``CODE@pack``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import Any
from urllib.parse import unquote

import pluggy

from onnx_tflite_plugin import hookspecs
from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.patterns import Fusion
from onnx_tflite_plugin.bound import Bound, BoundGraph, BoundModel, called
from onnx_tflite_plugin.errors import ConversionError, PackError, Problem, UnsupportedOperator
from onnx_tflite_plugin.known import Known
from onnx_tflite_plugin.source.model import Model, Operator

HANDLERS, FUSIONS, HOOKS = (f"onnx_tflite_plugin.{kind}" for kind in ("handlers", "fusions", "hooks"))
BUILTIN = "onnx-tflite-plugin"


@dataclass(frozen=True)
class Offer:
    """One entry point, not loaded yet."""

    code: str
    pack: str
    group: str
    entry: EntryPoint

    @property
    def needs(self) -> frozenset[str]:
        """Operators of which a fusion takes one at least: ``module:attribute [CODE, CODE]``. Empty: not known.

        Read from the value, since ``EntryPoint.extras`` takes ``CUSTOM.MyOp`` for two.
        """
        _, _, listed = self.entry.value.partition("[")
        return frozenset(unquote(code.strip()) for code in listed.rstrip("] ").split(",") if code.strip())

    def load(self) -> Any:
        """The object behind it. Raises PackError naming pack, entry point and cause."""
        try:
            return self.entry.load()
        except Exception as error:
            where = f"{self.entry.name} = {self.entry.value} of {self.pack}"
            hint = f"repair or uninstall {self.pack}, or --block {self.pack}"
            raise PackError(
                "an op pack could not be loaded:", [Problem(where, f"{type(error).__name__}: {error}", hint)]
            ) from error


@dataclass(frozen=True, eq=False)
class Registration:
    """A handler under the name its entry point gave it: the plugin the host registers.

    A handler may serve under a name other than its own (an alias, or a test that renames opcodes).
    """

    code: str
    handler: Handler
    pack: str

    @hookspecs.hookimpl
    def claim(self, op: Operator) -> Handler | Decline | None:
        if op.code != self.code:
            return None
        declined = self.handler.accepts(op) if self.handler.accepts else None
        return declined or self.handler


def discover() -> list[Offer]:
    """Every entry point of every installed distribution, first on the path first."""
    found: dict[tuple[str, str, str], Offer] = {}
    for distribution in distributions():
        for entry in distribution.entry_points:
            if entry.group in (HANDLERS, FUSIONS, HOOKS):
                pack = distribution.metadata["Name"] or "unknown"
                code = unquote(entry.name)
                found.setdefault((entry.group, code, pack), Offer(code, pack, entry.group, entry))
    return list(found.values())


def canonical(pack: str) -> str:
    """Distribution names are compared as pip compares them."""
    return pack.replace("_", "-").replace(".", "-").lower()


class Host:
    """Who lowers what. ``prefer`` and ``block`` name packs; ``packs`` limits to ``"builtin"`` or a list of names.

    ``offers`` replaces what is installed; ``handlers`` adds unpackaged ones as pack ``"inline"``.
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
    ) -> None:
        self.prefer = [canonical(pack) for pack in prefer]
        self.block = {canonical(pack) for pack in block}
        self.only = None if packs is None else {canonical(BUILTIN), *_listed(packs)}
        installed = discover() if offers is None else offers
        self.offers = [o for o in installed if self._admitted(o.pack)]
        known = {canonical(BUILTIN), "inline", *(canonical(o.pack) for o in installed)}
        unknown = sorted({*self.prefer, *self.block, *(self.only or ())} - known)
        self.warnings = [f"no op pack {name!r} is installed" for name in unknown]
        self.overrides: dict[str, str] = {}
        self.pm = pluggy.PluginManager(hookspecs.PROJECT)
        self.pm.add_hookspecs(hookspecs)
        self.pm.hook.configure.call_historic(kwargs={"options": dict(options or {})})
        self._by_code: dict[str, list[Offer]] = defaultdict(list)
        for offer in self.offers:
            if offer.group == HANDLERS:
                self._by_code[offer.code].append(offer)
        self._loaded: dict[str, list[Problem]] = {}
        for code, found in (handlers or {}).items():
            self._register(Registration(code, found, "inline"))
        self._load_hooks()

    def _admitted(self, pack: str) -> bool:
        return canonical(pack) not in self.block and (self.only is None or canonical(pack) in self.only)

    # --- loading ------------------------------------------------------------------------------

    def _load_hooks(self) -> None:
        for offer in self.offers:
            if offer.group != HOOKS:
                continue
            try:
                self.pm.register(offer.load(), name=f"{offer.code}@{offer.pack}")
            except (ConversionError, ValueError, pluggy.PluginValidationError) as error:
                self.warnings.append(f"the hooks of {offer.pack} were left out: {str(error).strip()}")

    def _register(self, registration: Registration) -> None:
        self.pm.register(registration, name=f"{registration.code}@{registration.pack}")

    def _load(self, code: str) -> list[Problem]:
        """Load the entry points of one operator; what fails is a problem only if nobody else takes the operator."""
        if code not in self._loaded:
            self._loaded[code] = [problem for offer in self._by_code.get(code, ()) for problem in self._try(offer)]
        return self._loaded[code]

    def _try(self, offer: Offer) -> Sequence[Problem]:
        try:
            found = offer.load()
        except PackError as error:
            return error.problems
        if not isinstance(found, Handler):
            where = f"{offer.code} of {offer.pack}"
            return [Problem(where, f"is a {type(found).__name__}, not a handler", "decorate it with @handler(...)")]
        self._register(Registration(offer.code, found, offer.pack))
        return ()

    def fusions(self, present: Collection[str] | None = None) -> list[tuple[str, Fusion]]:
        """(pack, fusion) of the admitted fusions that can match where these operators are present, else of all.

        A fusion may start with the result of another, so the name of one that is loaded counts as present. One that does
        not load, or is no fusion, is a warning.
        """
        offers = [offer for offer in self.offers if offer.group == FUSIONS]
        loaded: dict[Offer, Fusion | None] = {}
        codes = set(present or ())
        while wanted := [
            offer
            for offer in offers
            if offer not in loaded and (present is None or not offer.needs or offer.needs & codes)
        ]:
            for offer in wanted:
                loaded[offer] = fusion = self._fusion(offer)
                codes.update((fusion.name,) if fusion else ())
        return [(offer.pack, fusion) for offer in offers if (fusion := loaded.get(offer)) is not None]

    def _fusion(self, offer: Offer) -> Fusion | None:
        try:
            loaded = offer.load()
        except PackError as error:
            self._warn(str(error))
            return None
        if not isinstance(loaded, Fusion):
            self._warn(f"{offer.code} of {offer.pack} is a {type(loaded).__name__}, not a fusion: use @fusion(...)")
            return None
        if wrong := _misdeclared(offer.needs, loaded):
            self._warn(f"the entry point {offer.code} of {offer.pack} {wrong}")
        return loaded

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def handlers(self) -> Iterator[tuple[str, str, Handler | PackError]]:
        """(code, pack, handler or why it does not load) of everything discovered, by code."""
        for offer in sorted((o for o in self.offers if o.group == HANDLERS), key=lambda o: (o.code, o.pack)):
            try:
                yield offer.code, offer.pack, offer.load()
            except PackError as error:
                yield offer.code, offer.pack, error

    # --- claims -------------------------------------------------------------------------------

    def bind(self, model: Model) -> BoundModel:
        """One handler per operator that can run. Raises UnsupportedOperator with everything that is missing."""
        missing: dict[tuple[str, str], list[Operator]] = defaultdict(list)
        hints: dict[tuple[str, str], str] = {}
        graphs: dict[int, BoundGraph] = {}
        waiting = [0]
        while waiting:
            index = waiting.pop()
            if index in graphs:
                continue
            bound: list[Bound] = []
            known = Known()
            for op in model.subgraphs[index].operators:
                taken = self.take(known.applied(op))
                if isinstance(taken, Bound):
                    bound.append(taken)
                    known.learn(taken)
                    waiting.extend(i for i in called(taken) if i < len(model.subgraphs))
                else:
                    missing[op.code, taken.reason].append(op)
                    hints[op.code, taken.reason] = taken.hint
            graphs[index] = BoundGraph(model.subgraphs[index], tuple(bound))
        if missing:
            problems = [Problem(_where(ops), reason, hints[code, reason]) for (code, reason), ops in missing.items()]
            raise UnsupportedOperator("operators that cannot be converted:", problems)
        return BoundModel(model, tuple(graphs.get(g.index, BoundGraph(g, ())) for g in model.subgraphs))

    def take(self, op: Operator) -> Bound | Problem:
        """The operator with its handler, or why nobody has it."""
        failures = self._load(op.code) + (self._load(op.builtin) if op.builtin != op.code else [])
        claims, declined = self._claims(op)
        if not claims and op.builtin != op.code:
            claims, more = self._claims(_as_builtin(op))
            declined += more
        if not claims:
            reasons = declined + [f"{p.where} {p.reason}" for p in failures]
            return Problem(
                op.code, "; ".join(reasons) if reasons else _unknown(op), _served_by(op) if not reasons else ""
            )
        settled = self._settle(op, claims)
        if isinstance(settled, Problem):
            return settled
        pack, found = settled
        if op.version > found.max_version:
            reason = f"version {op.version} is newer than the {found.max_version} that {pack} knows"
            return Problem(op.code, reason, f"update {pack}, or install a pack that serves it")
        return Bound(op, found, pack, (op,))

    def _claims(self, op: Operator) -> tuple[list[tuple[str, Handler]], list[str]]:
        claims: list[tuple[str, Handler]] = []
        declined: list[str] = []
        for implementation in self.pm.hook.claim.get_hookimpls():
            answer = implementation.function(*[op for _ in implementation.argnames])
            pack = implementation.plugin_name.rpartition("@")[2]
            if isinstance(answer, Decline):
                declined.append(f"declined by {pack}: {answer.reason}")
            elif isinstance(answer, Handler):
                claims.append((pack, answer))
        return claims, declined

    def _settle(self, op: Operator, claims: list[tuple[str, Handler]]) -> tuple[str, Handler] | Problem:
        """Preferred pack, then the one third party, then the built-in; two third parties are a problem naming both."""
        for wanted in self.prefer:
            for pack, found in claims:
                if canonical(pack) == wanted:
                    self._note(op, pack, claims)
                    return pack, found
        others = [(pack, found) for pack, found in claims if canonical(pack) != canonical(BUILTIN)]
        if len({pack for pack, _ in others}) > 1:
            names = sorted({pack for pack, _ in others})
            hint = " or ".join(f"--prefer {name}" for name in names)
            return Problem(
                op.code, f"claimed by two packs, {' and '.join(names)}", f"choose with {hint}, or --block one"
            )
        pack, found = (others or claims)[0]
        self._note(op, pack, claims)
        return pack, found

    def _note(self, op: Operator, pack: str, claims: list[tuple[str, Handler]]) -> None:
        if canonical(pack) != canonical(BUILTIN) and any(canonical(p) == canonical(BUILTIN) for p, _ in claims):
            self.overrides[op.code] = pack


def _listed(packs: str | Iterable[str]) -> set[str]:
    names = packs.split(",") if isinstance(packs, str) else packs
    return {canonical(name.strip()) for name in names if name.strip() and name.strip() != "builtin"}


def _misdeclared(needs: frozenset[str], fusion: Fusion) -> str:
    """How an entry point contradicts the patterns of its fusion; empty where it does not."""
    if not needs:
        return ""
    patterns = [pattern.codes() for pattern in fusion.patterns]
    missed = next((codes for codes in patterns if not codes & needs), None)
    if missed is not None:
        return (
            f"needs {', '.join(sorted(needs))}, but a pattern of {fusion.name} holds {', '.join(sorted(missed))} alone: "
            "models with that alone do not load it; list an operator of every pattern"
        )
    idle = needs.difference(*patterns)
    return f"needs {', '.join(sorted(idle))}, which no pattern of {fusion.name} holds; leave it out" if idle else ""


def _as_builtin(op: Operator) -> Operator:
    from dataclasses import replace

    return replace(op, code=op.builtin)


def _where(ops: Sequence[Operator]) -> str:
    first = ops[0]
    named = next((f", output {t.name!r}" for t in first.outputs if t is not None), "")
    place = f"subgraph {first.subgraph} " if first.subgraph else ""
    more = f", {len(ops)} in all" if len(ops) > 1 else ""
    return f"{first.code} v{first.version} ({place}op {first.index}{named}{more})"


def _unknown(op: Operator) -> str:
    if op.code.startswith("UNKNOWN_"):
        return f"operator code {op.code.removeprefix('UNKNOWN_')} is not in the schema this version knows; the file is newer"
    return "no installed pack has a handler for it"


def _served_by(op: Operator) -> str:
    from urllib.parse import quote

    name = quote(op.code, safe="._-")
    return f"an entry point named {name!r} in the group {HANDLERS} would serve it: python -m onnx_tflite_plugin new-pack DIR --op {name}"
