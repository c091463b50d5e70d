"""Targets of installed packs, loaded on demand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host.offers import TARGETS, Offer, canonical_name


class Targets:
    """Mapping of names to targets.

    ``prefer``: packs to prefer if several have a target of one name. ``warnings``: messages about pack targets with the
    name of a built-in target, which cannot be replaced.
    """

    def __init__(self, offers: Sequence[Offer], prefer: Sequence[str] = ()) -> None:
        self._prefer = prefer
        self._by_name: dict[str, list[Offer]] = defaultdict(list)
        self._rejected: list[Offer] = []
        targets = [offer for offer in offers if offer.group == TARGETS]
        builtin = {offer.code for offer in targets if offer.pack == BUILTIN}
        for offer in targets:
            if offer.code in builtin and offer.pack != BUILTIN:
                self._rejected.append(offer)
            else:
                self._by_name[offer.code].append(offer)
        self.warnings = [
            f"{offer.description} of {offer.pack} is unused: {_reserved_name_reason(offer)}" for offer in self._rejected
        ]

    def __iter__(self) -> Iterator[tuple[str, str, Target | Failed]]:
        """Yield (name, pack, target), or (name, pack, failure) for an unusable target."""
        for name, offers in sorted(self._by_name.items()):
            for offer in offers:
                try:
                    yield name, offer.pack, offer.target()
                except Failed as failed:
                    yield name, offer.pack, failed
        for offer in self._rejected:
            yield offer.code, offer.pack, Failed(offer.pack, _reserved_name_reason(offer))

    def get(self, name: str) -> Target:
        """Return the target with a name, ignoring case.

        Raises UnsupportedOption if there is none, or several, or if it does not load.
        """
        offer = self._find(name)
        try:
            return offer.target()
        except Failed as failed:
            raise UnsupportedOption(f"target {name!r} cannot be used: {failed.reason}") from failed

    def pack_of(self, name: str) -> str:
        """Return the pack of a target. Raises UnsupportedOption for none or several."""
        return self._find(name).pack

    def _find(self, name: str) -> Offer:
        offers = self._by_name.get(name) or self._by_name.get(name.lower(), [])
        if not offers:
            names = sorted(self._by_name)
            raise UnsupportedOption(f"there is no target {name!r}, only {', '.join(names)}{did_you_mean(name, names)}")
        preferred = [offer for pack in self._prefer for offer in offers if canonical_name(offer.pack) == pack]
        if len(offers) > 1 and not preferred:
            packs = sorted(offer.pack for offer in offers)
            hint = " or ".join(f"--prefer {pack}" for pack in packs)
            raise UnsupportedOption(f"{' and '.join(packs)} each provide a target {name!r}; choose with {hint}")
        return (preferred or offers)[0]


def _reserved_name_reason(offer: Offer) -> str:
    return f"{offer.code!r} is a built-in target; name the pack's target and its entry point differently"
