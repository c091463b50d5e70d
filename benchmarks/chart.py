"""Bar chart of the results: one bar per model and converter.

The length of a bar is the time relative to LiteRT's, on a logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.results import ALL, MIN_SECONDS, OURS, Mean, Outcome, Row, means
from benchmarks.table import short_problem
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# palette of Okabe and Ito, distinguishable with color blindness
_COLORS = {OURS: "#0072B2", "tf2onnx": "#E69F00", "tflite2onnx": "#009E73"}
_WIDTH = 11  # inches
_BAR, _GAP = 0.2, 0.14  # inches: height of a bar, space between models
_MARGIN = 1.9  # inches for title, axis and notes
_SMALL = 8  # points


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtra("matplotlib", "benchmark") from error


def draw(rows: Sequence[Row], path: Path, notes: Sequence[str] = ()) -> None:
    """Write the chart as PNG. Models that LiteRT does not run are omitted."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    measured = [row for row in rows if row.seconds is not None]
    names = list(dict.fromkeys(outcome.converter for row in measured for outcome in row.outcomes))
    height = sum(len(row.outcomes) * _BAR + _GAP for row in measured)
    figure = Figure(figsize=(_WIDTH, height + _MARGIN), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    labels_by_position: dict[float, str] = {}
    top = 0.0
    for row in measured:
        labels_by_position[top + len(row.outcomes) * _BAR / 2] = _label(row)
        for k, outcome in enumerate(row.outcomes):
            _draw_bar(axes, outcome, top + (k + 0.5) * _BAR)
        top += len(row.outcomes) * _BAR + _GAP
    axes.set_yticks(list(labels_by_position), list(labels_by_position.values()), size=_SMALL)
    axes.set_ylim(top, -_GAP)
    low, high = _limits(measured)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.grid(axis="x", color="lightgray", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("Time in ONNX Runtime ÷ time in LiteRT, one thread (left of 1: faster than LiteRT)", size=11)
    overall = _overall_means(measured)
    for name in names:
        axes.barh(0, 0, left=1, color=_COLORS.get(name, "gray"), label=_legend_entry(name, overall.get(name)))
    if names:
        title = f"geometric mean over models that take LiteRT more than {MIN_SECONDS * 1000:g} ms"
        figure.legend(loc="outside upper center", ncols=len(names), frameon=False, title=title if overall else None)
    axes.set_xlabel("\n".join(notes), size=_SMALL, color="dimgray", loc="left")
    figure.savefig(path, dpi=120, format="png")


def _draw_bar(axes: Axes, outcome: Outcome, position: float) -> None:
    """Draw a converter's bar with its quartiles and its ratio, or the problem as text."""
    color = _COLORS.get(outcome.converter, "gray")
    if outcome.ratio is None:
        axes.annotate(f" {short_problem(outcome.problem)}", (1, position), va="center", size=_SMALL, color=color)
        return
    ratio = outcome.ratio.median
    axes.barh(position, ratio - 1, _BAR * 0.85, left=1, color=color)
    axes.hlines(position, outcome.ratio.low, outcome.ratio.high, color="black", linewidth=1)
    end, alignment = (max(outcome.ratio.high, 1), "left") if ratio >= 1 else (min(outcome.ratio.low, 1), "right")
    axes.annotate(
        f"{ratio:.2f}", (end, position), (3 if ratio >= 1 else -3, 0), textcoords="offset points",
        ha=alignment, va="center", size=_SMALL,
    )  # fmt: skip


def _label(row: Row) -> str:
    microseconds = row.seconds.median * 1e6 if row.seconds else 0
    time = f"{microseconds:.2g} µs" if microseconds < 99.5 else f"{microseconds / 1000:.3g} ms"
    return f"{row.model}\n{row.kind}, {time}"


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the limits of the x axis, with space for every bar and its number."""
    ends = [
        end
        for row in rows
        for outcome in row.outcomes
        if outcome.ratio
        for end in (outcome.ratio.low, outcome.ratio.high)
    ]
    return min([0.6, *(end / 1.3 for end in ends)]), max([1.7, *(end * 1.3 for end in ends)])


def _overall_means(rows: Sequence[Row]) -> dict[str, Mean]:
    """Return the mean of each converter over all kinds of models."""
    all_means = list(means(rows))
    means_of_all_kinds = [mean for mean in all_means if mean.kind == ALL] or all_means
    return {mean.converter: mean for mean in means_of_all_kinds}


def _legend_entry(name: str, mean: Mean | None) -> str:
    return name if mean is None else f"{name}: {mean.ratio:.2f} over {plural(mean.counted, 'model')}"
