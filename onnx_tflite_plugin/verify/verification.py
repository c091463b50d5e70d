"""Result of a verification: verdict, comparisons, reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.runtimes.processor import processor

Verdict = Literal["agrees", "differs", "inconclusive"]
NOT_COMPARED = "operators were not compared"
"""Beginning of a note or a reason if only the outputs were compared, end to end."""


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """Verdict on a conversion, with the comparisons that it is based on.

    ``comparisons`` are in the order of the model's outputs, ``kernels`` the kernel sets of LiteRT, ``processor`` the
    processor that both runtimes ran on. ``operators``: the number of operators that were compared with LiteRT on its own
    operands; ``by_packs``: the number of those that the reference kernels of packs compute. ``reasons``: why the verdict is
    inconclusive although nothing compared differs. ``partial``: the caller accepts an inconclusive verdict.
    """

    comparisons: tuple[Comparison, ...]
    kernels: tuple[str, ...]
    runs: int
    processor: str = field(default_factory=processor)
    diverging: Divergence | None = None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    partial: bool = False
    operators: int = 0
    by_packs: int = 0

    def __repr__(self) -> str:
        verdict, first, *others = [line.strip() for line in self.text.splitlines()][: 1 + len(self.comparisons)]
        more = f"; and {len(others)} more outputs" if others else ""
        return f"<Verification: {verdict}; {first}{more}>"

    def __str__(self) -> str:
        return self.text

    @property
    def verdict(self) -> Verdict:
        """Return ``differs`` if a comparison fails, else ``inconclusive`` if there is a reason, else ``agrees``."""
        if not all(comparison.ok for comparison in self.comparisons):
            return "differs"
        return "inconclusive" if self.reasons else "agrees"

    @property
    def ok(self) -> bool:
        """True if the verdict is ``agrees``, or ``inconclusive`` and accepted by ``partial``."""
        return self.verdict == "agrees" or (self.partial and self.verdict == "inconclusive")

    @property
    def text(self) -> str:
        """Return lines: the verdict, each output, the first wrong tensor, notes."""
        lines = [self._headline()]
        lines += [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.text}" for one in self.comparisons]
        if self.diverging:
            lines.append(f"  first outside its tolerance: {self.diverging.text}")
        notes = [*self.reasons[1:], *self.notes]
        return "\n".join([*lines, *(f"  {note}" for note in notes)])

    def _headline(self) -> str:
        if self.verdict == "inconclusive":
            return f"inconclusive: {self.reasons[0]}"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        kernels = f"LiteRT's {' and '.join(self.kernels)} kernels"
        if self.verdict == "differs":
            return f"NOT within tolerance of {kernels}, {runs}, on {self.processor}"
        if not self.operators:
            rest = f"; {NOT_COMPARED}" if any(note.startswith(NOT_COMPARED) for note in self.notes) else ""
            return f"outputs within tolerance of {kernels}, {runs}{rest}"
        operators = "1 operator agrees" if self.operators == 1 else f"{self.operators} operators agree"
        if self.by_packs:
            kernels += f", {self.by_packs} of them with the reference kernels of packs,"
        return f"{operators} with {kernels} on the same operands, {runs}{self._end_to_end()}"

    def _end_to_end(self) -> str:
        """Return the errors of outputs beyond their end-to-end tolerance; empty if there are none."""
        beyond = [one for one in self.comparisons if one.end_to_end]
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        return f"; end to end {beyond[0].name} differs by {beyond[0].end_to_end}{more}" if beyond else ""


def merge_verifications(found: Mapping[str, Verification]) -> Verification:
    """Return the verdict on a joined model from the verifications of its signatures."""

    def prefix(key: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{key}: {text}" for text in texts)

    every = [*found.values()]
    return replace(
        every[0],
        comparisons=tuple(replace(x, name=f"{key} {x.name}") for key, one in found.items() for x in one.comparisons),
        kernels=tuple(dict.fromkeys(name for one in every for name in one.kernels)),
        runs=sum(one.runs for one in every),
        diverging=next((one.diverging for one in every if one.diverging is not None), None),
        notes=tuple(note for key, one in found.items() for note in prefix(key, one.notes)),
        reasons=tuple(reason for key, one in found.items() for reason in prefix(key, one.reasons)),
        operators=sum(one.operators for one in every),
        by_packs=sum(one.by_packs for one in every),
    )
