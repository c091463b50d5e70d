"""Results as text: environment, one line per model and converter, and means."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.results import MIN_SECONDS, OURS, Outcome, Row, means
from onnx_tflite_plugin.cli.output import clean, limit_lines
from onnx_tflite_plugin.verify.times.bench import Spread

LITERT = "LiteRT"
_TEXT_COLUMNS = ("model", "kind", "converter")  # left-aligned; other columns are right-aligned numbers
_WIDTH = 150  # columns of output without a terminal
_MAX_REASON_LENGTH = 200  # characters; the JSON file contains the full reason


def show(rows: Sequence[Row], notes: Sequence[str]) -> None:
    """Print notes, the table of models, the means and the reasons of failures."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, emoji=False)
    for note in notes:
        console.print(clean(note))
    console.print()
    console.print(models(rows))
    console.print(_legend())
    if list(means(rows)):
        console.print(summary(rows))
    for line in reasons(rows):
        console.print(line, style="red")


def models(rows: Sequence[Row]) -> Table:
    """Return the table of models, with the times of LiteRT and of each converter."""
    table = _table(
        "model",
        "kind",
        "converter",
        "ms",
        "ratio",
        "quartiles",
        "best",
        "fused",
        "unfused",
        "transposes",
        "nodes",
        "error",
    )
    for row in rows:
        label_cells = (clean(row.model), row.kind, LITERT)
        table.add_row(
            *label_cells, _milliseconds(row.seconds) if row.seconds else Text(short_problem(row.problem), "red")
        )
        for outcome in row.outcomes:
            table.add_row("", "", *_cells(outcome))
    return table


def reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each problem once, with the models that have it."""
    models_by_problem: dict[str, list[str]] = {}
    for row in rows:
        problems = [(LITERT, row.problem), *((outcome.converter, outcome.problem) for outcome in row.outcomes)]
        for name, problem in problems:
            if problem:
                models_by_problem.setdefault(f"{name} {shorten(problem)}", []).append(clean(row.model))
    for text, names in models_by_problem.items():
        yield f"{text} ({', '.join(limit_lines(names, 5))})"


def summary(rows: Sequence[Row]) -> Table:
    """Return the table of geometric means per kind and converter.

    The last column is this project's mean over the models that the converter supports.
    """
    table = _table("kind", "converter", "mean ratio", "best", "models", "ours, same models")
    for mean in means(rows):
        model_count = f"{mean.counted} of {mean.models}"
        our_ratio = "" if mean.converter == OURS or mean.ours is None else f"{mean.ours:.2f}"
        table.add_row(mean.kind, mean.converter, f"{mean.ratio:.2f}", f"{mean.best_ratio:.2f}", model_count, our_ratio)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        if heading in _TEXT_COLUMNS:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cells(outcome: Outcome) -> Iterator[str | Text]:
    yield outcome.converter
    if not (outcome.seconds and outcome.ratio and outcome.best_ratio):
        yield Text(short_problem(outcome.problem), "red")
        return
    ratio, graph = outcome.ratio, outcome.graph
    yield _milliseconds(outcome.seconds)
    yield f"{ratio.median:.2f}"
    yield f"{ratio.low:.2f}–{ratio.high:.2f}"
    yield f"{outcome.best_ratio:.2f}"
    counts = ("–",) * 4 if graph is None else (graph.fused, graph.unfused, graph.transposes, graph.nodes)
    yield from map(str, counts)
    yield outcome.error if outcome.within_tolerance else Text(f"{outcome.error} !", "red")


def _milliseconds(seconds: Spread) -> str:
    return f"{seconds.median * 1000:.3f}"


def short_problem(problem: str) -> str:
    """Return a problem without its reason."""
    return problem.partition(":")[0]


def shorten(text: str, max_length: int = _MAX_REASON_LENGTH) -> str:
    """Return a text, cut with an ellipsis if it is too long."""
    text = clean(text)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def _legend() -> str:
    return (
        "\nms: processor time of a run, median of the rounds. ratio to LiteRT's time in the same round: median and quartiles."
        "\nbest: the ratio of the fastest rounds. If it differs a lot from the ratio, other processes kept the machine busy."
        "\nfused: operators on integers in ONNX Runtime's graph; unfused: float ones between dequantizing and quantizing."
        "\nerror: largest difference from LiteRT's outputs; !: exceeds the tolerance."
        f"\nMeans: geometric, over models that take LiteRT more than {MIN_SECONDS * 1000:g} ms.\n"
    )
