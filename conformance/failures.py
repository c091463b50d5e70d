"""Failures of a case, grouped by message."""

from __future__ import annotations

from typing import Literal

from conformance.variants import Variant


class Failures:
    """Messages on failures, each with the variants that have it."""

    def __init__(self) -> None:
        self._by_text: dict[str, list[str]] = {}

    def add(self, variant: Variant, *texts: str) -> None:
        for text in texts:
            self._by_text.setdefault(text, []).append(variant.text)

    def followed_by(self, others: Failures) -> Failures:
        """Return these mismatches and then the others."""
        joined = Failures()
        joined._by_text = {**self._by_text, **others._by_text}
        return joined

    @property
    def status(self) -> Literal["passed", "failed"]:
        return "failed" if self._by_text else "passed"

    @property
    def lines(self) -> list[str]:
        return [f"{', '.join(variants)}: {text}" for text, variants in self._by_text.items()]
