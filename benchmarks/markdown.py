"""Results as Markdown tables: one row per network, one column per converter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.results import Outcome, Row, means
from benchmarks.table import short_problem


def page(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the page: notes on the run, mean ratios to LiteRT, and a row per network."""
    names = list(dict.fromkeys(outcome.converter for row in rows for outcome in row.outcomes))
    return "\n".join(
        [*(f"- {escape_markdown(note)}" for note in notes), "", *_means(rows, names), "", *_networks(rows, names), ""]
    )


def _means(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """Yield the table of geometric means per kind and converter.

    Each mean is over the networks that the converter supports. The mean of the first converter over these networks
    is added if it differs.
    """
    by_kind = {(mean.kind, mean.converter): mean for mean in means(rows)}
    yield from table_header(("kind", *names))
    for kind in dict.fromkeys(kind for kind, _ in by_kind):
        cells = []
        for name in names:
            mean = by_kind.get((kind, name))
            if mean is None:
                cells.append("–")
                continue
            first = by_kind.get((kind, names[0]))
            differs = mean.ours is not None and first is not None and f"{mean.ours:.2f}" != f"{first.ratio:.2f}"
            note = f"; {names[0]} on these: {mean.ours:.2f}" if differs else ""
            cells.append(f"{mean.ratio:.2f} ({mean.counted} of {mean.models}{note})")
        yield table_row((kind, *cells))


def _networks(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    yield from table_header(("network", "kind", "limit ms", "LiteRT ms", *names))
    for row in sorted(rows, key=lambda row: (row.kind, row.model)):
        outcomes = {outcome.converter: outcome for outcome in row.outcomes}
        cells = [_cell(outcomes[name]) if name in outcomes else "–" for name in names]
        time = short_problem(row.problem) if row.seconds is None else f"{1000 * row.seconds.median:.3f}"
        limit = "–" if row.minimum_seconds is None else f"{1000 * row.minimum_seconds:.3f}"
        yield table_row((escape_markdown(row.model), row.kind, limit, time, *cells))


def _cell(outcome: Outcome) -> str:
    """Return the ratio, marked "(wrong)" if an output exceeds the tolerance."""
    if outcome.ratio is None:
        return short_problem(outcome.problem)
    return f"{outcome.ratio.median:.2f}{'' if outcome.within_tolerance else ' (wrong)'}"


def table_header(cells: Sequence[str]) -> Iterator[str]:
    """Yield the header of a table: column names and the separator line."""
    yield table_row(cells)
    yield table_row(["---"] * len(cells))


def table_row(cells: Sequence[str]) -> str:
    """Return one table row."""
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Return a text with Markdown syntax escaped."""
    return text.replace("|", "\\|").replace("_", "\\_")
