"""Host: finds handlers, resolves competing claims, and reports missing operators.

Entry points are read once, loaded only if a model has their operator, and registered with pluggy as ``CODE@pack``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.hooks import hookimpl
from onnx_tflite_plugin.api.patterns import Fusion
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.activation import resolve_activation
from onnx_tflite_plugin.binding.bound import (
    Bound,
    BoundModel,
)
from onnx_tflite_plugin.binding.consistency import check_arity
from onnx_tflite_plugin.binding.declared import OperatorInstance, check_acceptance
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import (
    Problem,
    UnsupportedOption,
)
from onnx_tflite_plugin.guard import BUILTIN, INLINE, Failed, PackSkipped
from onnx_tflite_plugin.host.fusions import Fusions
from onnx_tflite_plugin.host.hooks import Hooks
from onnx_tflite_plugin.host.missing_operators import (
    Answer,
    competing_claims_problem,
    describe_skipped_hooks,
    missing_handler_problem,
)
from onnx_tflite_plugin.host.model_binding import ModelBinding
from onnx_tflite_plugin.host.offers import (
    FUSIONS,
    HANDLERS,
    HOOKS,
    PIN,
    TARGETS,
    Offer,
    canonical_name,
    discover,
    find_group_problem,
    find_name_problem,
)
from onnx_tflite_plugin.host.registration import RegistrationSearch, describe_similar_handler
from onnx_tflite_plugin.host.targets import Targets
from onnx_tflite_plugin.host.unknown import domain_and_name, placeholder_handler
from onnx_tflite_plugin.source.model import Model, Operator


@dataclass(frozen=True, eq=False)
class Registration:
    """Plugin that claims operators for a handler, under the name of its entry point.

    The name may differ from the handler's code: it may be an alias, or a test may rename operators.
    """

    code: str
    handler: Handler
    pack: str

    @hookimpl
    def claim(self, op: Operator, target: Target, opset: int) -> Handler | Decline | None:
        if op.code != self.code:
            return None
        return (
            check_arity(self.handler, op)
            or check_acceptance(self.handler, self.pack, OperatorInstance(op, target, opset))
            or self.handler
        )


class Host:
    """Selection of a handler for each operator.

    ``prefer`` and ``block``: names of packs. ``packs``: the packs to use, ``"builtin"`` or a list of names. ``offers``:
    entry points to use in place of the installed ones; the built-in targets remain. ``handlers``: further handlers by
    operator, in the pack ``"inline"``. ``keep_unknown``: True makes an operator without a handler a node of a separate
    domain. Raises UnsupportedOption if a pack in ``prefer`` or ``packs`` is not installed.
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
        self.prefer = [canonical_name(pack) for pack in prefer]
        self.block = {canonical_name(pack) for pack in block}
        self.allowed_packs = None if packs is None else {canonical_name(BUILTIN), *_pack_names(packs)}
        self.keep_unknown = keep_unknown
        self.warnings: list[str] = []
        installed = discover(self.warn) if offers is None else offers
        available = {canonical_name(BUILTIN), INLINE, *(canonical_name(o.pack) for o in installed)}
        for name in sorted(self.block - available):
            packs = ", ".join(sorted(available - {INLINE, canonical_name(BUILTIN)})) or "none"
            similar = did_you_mean(name, available)
            self.warn(
                f"no op pack {name!r} is installed, so --block {name} has no effect; installed op packs: {packs}{similar}"
            )
        for name in sorted({*self.prefer, *(self.allowed_packs or ())} - available):
            names = sorted(available - {INLINE})
            raise UnsupportedOption(
                f"no op pack {name!r} is installed, only {', '.join(names)}{did_you_mean(name, names) or ';'}"
                " install your own pack with pip install -e DIR"
            )
        admitted = [o for o in installed if self._is_admitted(o.pack)]
        self.offers = [offer for offer in admitted if not offer.unmet]
        # Built-in targets cannot be replaced or blocked.
        builtin_targets = [o for o in (installed if offers is None else discover()) if _is_builtin_target(o)]
        other_offers = [o for o in self.offers if not _is_builtin_target(o)]
        self.targets = Targets([*other_offers, *builtin_targets], self.prefer)
        self.overrides: dict[str, str] = {}
        self.hooks = Hooks(dict(options or {}), self.warn)
        self._by_code: dict[str, list[Offer]] = defaultdict(list)
        for offer in admitted:
            if offer.group == HANDLERS:
                self._by_code[offer.code].append(offer)
        self._load_failures: dict[str, list[Failed]] = {}
        self._fusions = Fusions([o for o in self.offers if o.group == FUSIONS], self._by_code, self.warn)
        self._unused_offers: list[tuple[Offer, Problem]] = []
        is_searched = self._is_admitted if offers is None else lambda pack: False
        self._registrations = RegistrationSearch(self._unused_offers, is_searched)
        self._warn_about_packs(admitted)
        for text in self.targets.warnings:
            self.warn(text)
        for code, handler in (handlers or {}).items():
            self.hooks.register(Registration(code, handler, INLINE), code, INLINE)
        self._load_hooks()

    def _is_admitted(self, pack: str) -> bool:
        return canonical_name(pack) not in self.block and (
            self.allowed_packs is None or canonical_name(pack) in self.allowed_packs
        )

    def warn(self, text: str) -> None:
        """Add a warning about packs, once per text."""
        if text not in self.warnings:
            self.warnings.append(text)

    # --- loading ------------------------------------------------------------------------------

    def _warn_about_packs(self, offers: Iterable[Offer]) -> None:
        """Warn about unused entry points, and packs for a different converter version."""
        for offer in offers:
            if offer.unmet:
                self.warn(f"{offer.pack} is skipped: {_version_reason(offer)}")
            elif canonical_name(offer.pack) != BUILTIN and (reason := _find_offer_problem(offer)):
                self.warn(f"{offer.description} of {offer.pack} is unused: {reason}")
                problem = Problem(f"{offer.description} of {offer.pack}", f"the entry point is unused: {reason}")
                self._unused_offers.append((offer, problem))

    @property
    def unused(self) -> list[Problem]:
        """Return a problem for each entry point that is unused."""
        return [problem for _, problem in self._unused_offers]

    def _load_hooks(self) -> None:
        for offer in self.offers:
            if offer.group != HOOKS:
                continue
            try:
                self.hooks.add(offer.load(), offer.code, offer.pack)
            except Failed as failed:
                self.hooks.skip(offer.pack, failed)
                self.warn(f"{failed.reason}; the hooks of {offer.pack} are skipped")

    def _load_handlers(self, code: str) -> list[Failed]:
        """Load the entry points of one operator, and return their failures."""
        if code not in self._load_failures:
            self._load_failures[code] = []
            for offer in self._by_code.get(code, ()):
                try:
                    if offer.unmet:
                        raise PackSkipped(
                            offer.pack,
                            f"{offer.pack}, which has a handler for it, is skipped: {_version_reason(offer)}",
                        )
                    self.hooks.register(Registration(code, offer.handler(), offer.pack), code, offer.pack)
                except Failed as failed:
                    self._load_failures[code].append(failed)
                    if not offer.unmet:  # the constructor warned of unmet requirements
                        self.warn(f"{failed.reason}; the handler is skipped")
        return self._load_failures[code]

    def fusions(self, present: Collection[str] | None = None) -> list[tuple[str, Fusion]]:
        """Return (pack, fusion) for fusions that ``present`` operators can match.

        ``present``: codes of operators; None for all fusions.
        """
        return self._fusions.load(present)

    def without_pack_fusions(self) -> Host:
        """Return a host like this one, with the fusions of the built-in pack only."""
        host = copy(self)
        host._fusions = self._fusions.builtin()
        return host

    def handler_names(self) -> list[tuple[str, str]]:
        """Return (code, pack) of every discovered handler, sorted. No handler is loaded."""
        return sorted((offer.code, offer.pack) for offer in self.offers if offer.group == HANDLERS)

    def handlers(self, codes: Collection[str] | None = None) -> Iterator[tuple[str, str, Handler | Failed]]:
        """Yield (code, pack, handler or Failed) of discovered handlers, sorted by code.

        ``codes``: only handlers of these operators; None for all.
        """
        for offer in sorted((o for o in self.offers if o.group == HANDLERS), key=lambda o: (o.code, o.pack)):
            if codes is not None and offer.code not in codes:
                continue
            try:
                if canonical_name(offer.pack) != BUILTIN and (reason := find_name_problem(offer.code)):
                    raise Failed(offer.pack, f"{offer.description} of {offer.pack} is unused: {reason}")
                yield offer.code, offer.pack, offer.handler()
            except Failed as failed:
                yield offer.code, offer.pack, failed

    def registered_handlers(self, code: str) -> list[tuple[str, Handler]]:
        """Return each (pack, handler) of an operator.

        The built-in handler is included only if no other pack has one.
        """
        self._load_handlers(code)
        handlers = [
            (pack, plugin.handler)
            for pack, plugin in self.hooks.registered_handlers(code)
            if isinstance(plugin, Registration)
        ]
        return [
            (pack, handler) for pack, handler in handlers if canonical_name(pack) != canonical_name(BUILTIN)
        ] or handlers

    # --- claims -------------------------------------------------------------------------------

    def bind(self, model: Model, target: Target, opset: int) -> BoundModel:
        """Bind a handler to each reachable operator.

        Raises UnsupportedOperator with all unsupported operators, and InvalidModel for calls that contradict each
        other.
        """
        return ModelBinding(model, self.bind_operator, self.hooks.failures, self.unused, target, opset).bind()

    def bind_operator(self, op: Operator, target: Target, opset: int) -> Bound | Problem:
        """Return the operator with its handler, or a problem.

        ``opset``: the opset passed to declarations that are functions.
        """
        binding = self._find_handler(op, target, opset)
        if isinstance(binding, Bound) or not self.keep_unknown:
            return binding
        placeholder = placeholder_handler(op)
        if placeholder is None:
            return binding
        self.warn(
            f"{op.code} is kept as a node of domain {domain_and_name(op.code)[0]}, for a runtime that has a kernel: {binding.reason}"
        )
        return Bound(op, placeholder, BUILTIN, (op,))

    def skipped_packs(self) -> list[str]:
        """Return a message per skipped hook, which might have claimed an operator."""
        return [
            f"{describe_skipped_hooks(pack)}: {failed.reason}"
            for pack, failures in self.hooks.failures.items()
            for failed in failures
        ]

    def _find_handler(self, op: Operator, target: Target, opset: int) -> Bound | Problem:
        failures = self._load_handlers(op.code) + (self._load_handlers(op.builtin) if op.builtin != op.code else [])
        claims, declined = self._collect_claims(OperatorInstance(op, target, opset))
        if not claims and op.builtin != op.code:
            claims, builtin_declined = self._collect_claims(
                OperatorInstance(replace(op, code=op.builtin), target, opset)
            )
            declined += builtin_declined
        if not claims:
            answers = [*declined, *((failed.pack, failed) for failed in failures)]
            if not answers and (problem := self.find_wrong_registration(op.code)):
                return problem
            similar = "" if answers else describe_similar_handler(op.code, self._by_code)
            is_registered = bool(self._by_code.get(op.code))
            return missing_handler_problem(op, answers, similar, is_registered=is_registered)
        claim = self._choose_claim(op, claims)
        if isinstance(claim, Problem):
            return claim
        pack, handler = claim
        if op.version > handler.max_version:
            reason = f"version {op.version} is not supported; {pack} supports versions up to {handler.max_version}"
            return Problem(op.code, reason, f"update {pack}, or install a pack for this version")
        try:
            resolved = resolve_activation(handler, pack, OperatorInstance(op, target, opset))
        except Failed as failed:
            return missing_handler_problem(op, [(pack, failed)])
        return (
            Bound(resolved, handler, pack, (resolved,))
            if isinstance(resolved, Operator)
            else missing_handler_problem(op, [(pack, resolved)])
        )

    def find_wrong_registration(self, code: str) -> Problem | None:
        """Return the problem of a pack with a misregistered handler for the operator."""
        return self._registrations.find(code)

    def _collect_claims(self, at: OperatorInstance) -> tuple[list[tuple[str, Handler]], list[Answer]]:
        """Return the claims on an operator, and the answers of packs that do not claim it."""
        claims: list[tuple[str, Handler]] = []
        declined: list[Answer] = []
        has_pack_handler = any(canonical_name(offer.pack) != BUILTIN for offer in self._by_code.get(at.op.code, ()))
        for pack, answer in self.hooks.claims(at, has_pack_handler):
            if isinstance(answer, Handler):
                claims.append((pack, answer))
                continue
            declined.append((pack, answer))
            if isinstance(answer, Failed):
                self.warn(f"{answer.reason}; the claim of {pack} is skipped")
        return claims, declined

    def _choose_claim(self, op: Operator, claims: list[tuple[str, Handler]]) -> tuple[str, Handler] | Problem:
        """Return the claim of a preferred pack, another pack, or the built-in pack.

        If several packs claim the operator and none is preferred, return a problem that names them.
        """
        for preferred in self.prefer:
            for pack, handler in claims:
                if canonical_name(pack) == preferred:
                    self._record_override(op, pack, claims)
                    return pack, handler
        pack_claims = [(pack, handler) for pack, handler in claims if canonical_name(pack) != canonical_name(BUILTIN)]
        if len({pack for pack, _ in pack_claims}) > 1:
            return competing_claims_problem(op, sorted({pack for pack, _ in pack_claims}))
        pack, handler = (pack_claims or claims)[0]
        self._record_override(op, pack, claims)
        return pack, handler

    def _record_override(self, op: Operator, pack: str, claims: list[tuple[str, Handler]]) -> None:
        if canonical_name(pack) != canonical_name(BUILTIN) and any(
            canonical_name(p) == canonical_name(BUILTIN) for p, _ in claims
        ):
            self.overrides[op.code] = pack


def _find_offer_problem(offer: Offer) -> str:
    """Return why an entry point is unused, without loading it; empty if it is used."""
    return find_group_problem(offer.group) or (find_name_problem(offer.code) if offer.group == HANDLERS else "")


def _is_builtin_target(offer: Offer) -> bool:
    return offer.group == TARGETS and canonical_name(offer.pack) == BUILTIN


def _pack_names(packs: str | Iterable[str]) -> set[str]:
    names = packs.split(",") if isinstance(packs, str) else packs
    return {canonical_name(name.strip()) for name in names if name.strip() and name.strip() != "builtin"}


def _version_reason(offer: Offer) -> str:
    remedy = f"update {offer.pack}, or write {PIN} in its install_requires and install it again"
    return f"it requires onnx-tflite-plugin {offer.unmet}, but version {VERSION} is installed; {remedy}"
