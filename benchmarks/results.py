"""Benchmark results as data, the source of the table, the chart and the JSON file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx_tflite_plugin.verify.times.bench import Spread

LEAST_SECONDS = 1e-4  # faster models measure the fixed cost of a call, not the converter
ALL = "all"
OURS = "ours"


@dataclass(frozen=True, slots=True)
class Graph:
    """Operator counts of ONNX Runtime's optimized graph. ``unfused``: float operators between dequantization and quantization."""

    fused: int
    unfused: int
    transposes: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one converter. ``seconds``: per run; ``ratio``: to LiteRT in the same round; ``error``: of the outputs.

    ``best``: ratio of the fastest rounds, which other processes affect least. ``within``: False if the error exceeds
    single rounding differences. ``problem``: the failed step, a colon, and the reason.
    """

    converter: str
    seconds: Spread | None = None
    ratio: Spread | None = None
    best: float | None = None
    graph: Graph | None = None
    error: str = ""
    within: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One model. ``seconds``: per run in LiteRT; ``problem``: the reason why LiteRT does not run it; ``digest``: hash of the file.

    ``least``: seconds that its multiplications take at the processor's highest rate, None without any.
    """

    model: str
    kind: str = ""
    seconds: Spread | None = None
    outcomes: tuple[Outcome, ...] = ()
    problem: str = ""
    digest: str = ""
    least: float | None = None

    @property
    def counts(self) -> bool:
        """True if the ratios of this row enter the means."""
        return self.seconds is not None and self.seconds.median > LEAST_SECONDS

    def time_of(self, converter: str) -> tuple[float, float] | None:
        """Return a converter's ratio and its best ratio, if measured."""
        times = (one for one in self.outcomes if one.converter == converter)
        return next(((one.ratio.median, one.best) for one in times if one.ratio and one.best), None)


@dataclass(frozen=True, slots=True)
class Mean:
    """Geometric means of a converter's ratios and best ratios for a kind. ``counted`` of ``models`` models are included.

    ``ours``: mean of our ratios over the same models, without models that we cannot convert; None if we convert none.
    """

    kind: str
    converter: str
    ratio: float
    best: float
    counted: int
    models: int
    ours: float | None


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def means(rows: Sequence[Row]) -> Iterator[Mean]:
    """Return one mean per kind and converter, and over all kinds if there are several."""
    sorted_rows = [row for row in rows if row.kind]
    kinds = sorted({row.kind for row in sorted_rows})
    names = list(dict.fromkeys(one.converter for row in sorted_rows for one in row.outcomes))
    for kind in [*kinds, *([ALL] if len(kinds) > 1 else [])]:
        chosen = [row for row in sorted_rows if kind in (row.kind, ALL)]
        for name in names:
            counting = [row for row in chosen if row.counts and row.time_of(name)]
            ratio, best = _means(counting, name)
            if ratio and best:
                yield Mean(kind, name, ratio, best, len(counting), len(chosen), _means(counting, OURS)[0])


def _means(rows: Sequence[Row], converter: str) -> tuple[float | None, float | None]:
    """Return the means of the ratios and of the best ratios, over the rows that have them."""
    times = [timed for row in rows if (timed := row.time_of(converter))]
    ratio, best = ([pair[k] for pair in times] for k in range(2))
    return (geometric_mean(ratio), geometric_mean(best)) if times else (None, None)
