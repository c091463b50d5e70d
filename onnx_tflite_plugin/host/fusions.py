"""Fusions of installed packs, loaded only if a model has operators that they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from onnx_tflite_plugin.api.patterns import Fusion
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host.offers import (
    Offer,
    canonical_name,
    find_needs_problem,
    find_unknown_operators,
    find_unknown_predecessors,
)


class Fusions:
    """Fusions of packs, each loaded once.

    ``offers``: the entry points of the fusions. ``handler_codes``: operators of all handlers, which patterns may contain.
    ``warn``: function that reports a warning about a pack.
    """

    def __init__(self, offers: Sequence[Offer], handler_codes: Collection[str], warn: Callable[[str], None]) -> None:
        self._offers = offers
        self._handler_codes = handler_codes
        self._warn = warn
        self._loaded: dict[int, Fusion | None] = {}

    def builtin(self) -> Fusions:
        """Return the fusions of the built-in pack."""
        offers = [offer for offer in self._offers if canonical_name(offer.pack) == BUILTIN]
        return Fusions(offers, self._handler_codes, self._warn)

    def load(self, present: Collection[str] | None = None) -> list[tuple[str, Fusion]]:
        """Return (pack, fusion) for fusions that ``present`` operators can match.

        ``present``: codes of operators; None for all fusions. The name of a loaded fusion counts as present, because a
        fusion may match the result of another fusion. An entry point that does not load, or is not a fusion, causes a
        warning.
        """
        loaded: dict[int, Fusion | None] = {}
        codes = set(present or ())
        while pending := [
            k
            for k, offer in enumerate(self._offers)
            if k not in loaded and (present is None or not offer.needs or offer.needs & codes)
        ]:
            for k in pending:
                loaded[k] = fusion = self._get_fusion(k)
                codes.update((fusion.name,) if fusion else ())
        fusions = ((offer.pack, loaded.get(k)) for k, offer in enumerate(self._offers))
        return [(pack, fusion) for pack, fusion in fusions if fusion is not None]

    def _get_fusion(self, k: int) -> Fusion | None:
        """Return the fusion of an entry point; ``None`` if it does not load."""
        if k not in self._loaded:
            self._loaded[k] = self._load_fusion(self._offers[k])
        return self._loaded[k]

    def _load_fusion(self, offer: Offer) -> Fusion | None:
        try:
            fusion = offer.fusion()
        except Failed as failed:
            self._warn(f"{failed.reason}; the fusion is skipped")
            return None
        unknown_operators = ""
        if canonical_name(offer.pack) != BUILTIN:
            unknown_operators = find_unknown_operators(fusion, self._pattern_names)
            for problem in filter(None, (unknown_operators, find_unknown_predecessors(fusion, self._fusion_names))):
                self._warn(f"the fusion {fusion.name} of {offer.pack} {problem}")
        needs_problem = find_needs_problem(offer.needs, fusion)
        if needs_problem and not unknown_operators:  # a misspelled operator of the pattern causes both
            self._warn(f"the entry point {offer.code} of {offer.pack} {needs_problem}")
        return fusion

    def _pattern_names(self) -> set[str]:
        """Return the names of handlers and fusions, which patterns may contain."""
        return {*self._handler_codes, *self._fusion_names()}

    def _fusion_names(self) -> set[str]:
        names = set()
        for offer in self._offers:
            with suppress(Failed):
                names.add(offer.fusion().name)
        return names
