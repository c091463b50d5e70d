"""Benchmark results as data, the source of the table, the chart and the JSON file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx_tflite_plugin.verify.times.bench import Spread

MIN_SECONDS = 1e-4  # below this, the fixed cost of a call dominates
ALL = "all"
OURS = "ours"


@dataclass(frozen=True, slots=True)
class Graph:
    """Operator counts of ONNX Runtime's optimized graph.

    ``unfused``: float operators between dequantization and quantization.
    """

    fused: int
    unfused: int
    transposes: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one converter.

    ``seconds``: seconds per run. ``ratio``: the time divided by LiteRT's in the same round. ``best_ratio``: ratio of
    the fastest rounds, which other processes affect least. ``error``: maximum error of the outputs.
    ``within_tolerance``: False if the error exceeds rounding differences. ``problem``: the failed step, a colon, and
    the reason.
    """

    converter: str
    seconds: Spread | None = None
    ratio: Spread | None = None
    best_ratio: float | None = None
    graph: Graph | None = None
    error: str = ""
    within_tolerance: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one model.

    ``seconds``: LiteRT's seconds per run. ``problem``: the reason why LiteRT does not run the model. ``digest``: hash
    of the file. ``minimum_seconds``: time of all multiplications at the processor's highest rate; None if there are
    none.
    """

    model: str
    kind: str = ""
    seconds: Spread | None = None
    outcomes: tuple[Outcome, ...] = ()
    problem: str = ""
    digest: str = ""
    minimum_seconds: float | None = None

    @property
    def is_in_means(self) -> bool:
        """True if the ratios of this row are included in the means."""
        return self.seconds is not None and self.seconds.median > MIN_SECONDS

    def ratios_of(self, converter: str) -> tuple[float, float] | None:
        """Return a converter's ratio and its best ratio, if measured."""
        outcomes = (outcome for outcome in self.outcomes if outcome.converter == converter)
        return next(
            (
                (outcome.ratio.median, outcome.best_ratio)
                for outcome in outcomes
                if outcome.ratio and outcome.best_ratio
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Mean:
    """Geometric means of a converter's ratios and best ratios over models of one kind.

    ``counted``: the number of models in the mean; ``models``: the number of models of the kind. ``ours``: mean of this
    project's ratios over the counted models that it converts; None if it converts none.
    """

    kind: str
    converter: str
    ratio: float
    best_ratio: float
    counted: int
    models: int
    ours: float | None


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def means(rows: Sequence[Row]) -> Iterator[Mean]:
    """Yield one mean per kind and converter, and over all kinds if there are several."""
    rows_with_kind = [row for row in rows if row.kind]
    kinds = sorted({row.kind for row in rows_with_kind})
    names = list(dict.fromkeys(outcome.converter for row in rows_with_kind for outcome in row.outcomes))
    for kind in [*kinds, *([ALL] if len(kinds) > 1 else [])]:
        rows_of_kind = [row for row in rows_with_kind if kind in (row.kind, ALL)]
        for name in names:
            counted_rows = [row for row in rows_of_kind if row.is_in_means and row.ratios_of(name)]
            ratio, best_ratio = _means(counted_rows, name)
            if ratio and best_ratio:
                yield Mean(
                    kind, name, ratio, best_ratio, len(counted_rows), len(rows_of_kind), _means(counted_rows, OURS)[0]
                )


def _means(rows: Sequence[Row], converter: str) -> tuple[float | None, float | None]:
    """Return the means of a converter's ratios and of its best ratios.

    Rows without a ratio of the converter are skipped; both means are None if no row remains.
    """
    pairs = [pair for row in rows if (pair := row.ratios_of(converter))]
    ratios, best_ratios = ([pair[k] for pair in pairs] for k in range(2))
    return (geometric_mean(ratios), geometric_mean(best_ratios)) if pairs else (None, None)
