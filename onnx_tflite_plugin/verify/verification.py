"""What a verification found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.operators.diverging import Divergence
from onnx_tflite_plugin.verify.runtimes.processor import processor


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
        notes = [*self.notes, *self._wide()]
        return "\n".join([*lines, *(f"  {note}" for note in notes)])

    def _wide(self) -> Iterator[str]:
        """Where what agrees could hardly have disagreed."""
        wide = [one.name for one in self.comparisons if one.wide] if self.ok else []
        if wide:
            others = f" and {len(wide) - 1} more" if len(wide) > 1 else ""
            yield (
                f"{wide[0]!r}{others}: LiteRT's own kernels differ there by more than a quarter of the range, so that this "
                "says little; inputs like those that the model was made for say more"
            )
