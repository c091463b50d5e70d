"""Write the documentation's table: ``python -m tests.qa.runtimes.table --write``.

The table is made from the committed results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.qa.runtimes.models import QUANTIZED

ROOT = Path(__file__).parents[3]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "reference" / "targets.md"
BEGIN, END = "<!-- runtimes: generated -->", "<!-- runtimes: end -->"
RIGHT = "right"


def format_table(results: Mapping[str, Any]) -> str:
    """Return the table of models that run and of correct ones, per runtime.

    It has one column per target.
    """
    rows: Sequence[Mapping[str, Any]] = results["rows"]
    targets = list(dict.fromkeys(row["target"] for row in rows))
    models = {row["model"]: row["kind"] for row in rows}
    quantized = sum(kind in QUANTIZED for kind in models.values())
    lines = [
        f"Measured on {results['date']} with {len(models)} models, {quantized} of them with 8-bit or 16-bit activations. "
        "In a cell `a / b`, `a` models run and `b` of them give correct results.",
        "",
        f"| runtime | {' | '.join(f'`{target}`' for target in targets)} |",
        f"|---|{'---|' * len(targets)}",
        f"| converted | {' | '.join(str(_count_converted(rows, target)) for target in targets)} |",
    ]
    for runtime in results["runtimes"]:
        cells = [
            _count(row["outcomes"][runtime] for row in rows if row["target"] == t and row["outcomes"]) for t in targets
        ]
        lines.append(f"| {runtime} | {' | '.join(f'{running} / {correct}' for running, correct in cells)} |")
    return "\n".join(lines)


def _count_converted(rows: Sequence[Mapping[str, Any]], target: str) -> int:
    return sum(row["target"] == target and not row["refused"] for row in rows)


def _count(outcomes: Iterator[str]) -> tuple[int, int]:
    """Return the number of models that run, and of those with correct results."""
    texts = list(outcomes)
    return sum(not text.startswith("fails") for text in texts), texts.count(RIGHT)


def insert_table(page: str, table: str) -> str:
    """Return the page with the table between the markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page = PAGE.read_text()
    new_page = insert_table(page, format_table(json.loads(RESULTS.read_text())))
    if arguments.write:
        PAGE.write_text(new_page)
    elif new_page != page:
        print(f"{PAGE} does not match {RESULTS.name}; run python -m tests.qa.runtimes.table --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
