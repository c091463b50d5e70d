"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field

from .compare import Comparison
from .diverging import Divergence
from .processor import processor


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What came out: ``comparisons`` in the order of the model's outputs, ``kernels`` the kernel sets compared with,
    ``processor`` what both ran on.
    """

    comparisons: tuple[Comparison, ...]
    kernels: tuple[str, ...]
    runs: int
    processor: str = field(default_factory=processor)
    diverging: Divergence | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        verdict, first, *others = [line.strip() for line in self.text.splitlines()][: 1 + len(self.comparisons)]
        more = f"; and {len(others)} outputs more" if others else ""
        return f"<Verification: {verdict}; {first}{more}>"

    @property
    def ok(self) -> bool:
        return all(comparison.ok for comparison in self.comparisons)

    @property
    def text(self) -> str:
        """One line on the whole, one an output, then the first wrong tensor and what may be the reason."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        verdict = "within" if self.ok else "NOT within"
        where = "" if self.ok else f", on {self.processor}"
        lines = [f"{verdict} tolerance of LiteRT's {' and '.join(self.kernels)} kernels, {runs}{where}"]
        lines += [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.text}" for one in self.comparisons]
        if self.diverging:
            lines.append(f"  first outside its tolerance: {self.diverging.text}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
