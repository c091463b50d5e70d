"""Targets of installed packs, loaded on demand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host.offers import TARGETS, Offer, canonical


class Targets:
    """Targets by name. ``prefer``: packs that win if several have a target of one name."""

    def __init__(self, offers: Sequence[Offer], prefer: Sequence[str] = ()) -> None:
        self._prefer = prefer
        self._by_name: dict[str, list[Offer]] = defaultdict(list)
        for offer in offers:
            if offer.group == TARGETS:
                self._by_name[offer.code].append(offer)

    def __iter__(self) -> Iterator[tuple[str, str, Target | Failed]]:
        """Yield name, pack and target, or the failure that makes it unusable, for every target in order of name."""
        for name, offers in sorted(self._by_name.items()):
            for offer in offers:
                try:
                    yield name, offer.pack, offer.target()
                except Failed as failed:
                    yield name, offer.pack, failed

    def named(self, name: str) -> Target:
        """Return the target with a name. Raises UnsupportedOption if there is none, or several, or it does not load."""
        offers = self._by_name.get(name, [])
        if not offers:
            names = sorted(self._by_name)
            raise UnsupportedOption(f"there is no target {name!r}, only {', '.join(names)}{did_you_mean(name, names)}")
        preferred = [offer for pack in self._prefer for offer in offers if canonical(offer.pack) == pack]
        if len(offers) > 1 and not preferred:
            packs = sorted(offer.pack for offer in offers)
            hint = " or ".join(f"--prefer {pack}" for pack in packs)
            raise UnsupportedOption(f"{' and '.join(packs)} each provide a target {name!r}; choose with {hint}")
        try:
            return (preferred or offers)[0].target()
        except Failed as failed:
            raise UnsupportedOption(f"target {name!r} cannot be used: {failed.reason}") from failed
