"""Results as a JSON file, from which an interrupted benchmark can resume."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.results import Graph, Outcome, Row, means
from onnx_tflite_plugin.verify.times.bench import Spread

_UNCOMMITTED = "with changes"


def commit() -> str:
    """Return the commit of this checkout, marked if files have uncommitted changes.

    Returns "no commit" outside of a git checkout.
    """
    command = ["git", "describe", "--always", "--abbrev=10", "--exclude=*", f"--dirty= {_UNCOMMITTED}"]
    try:
        completed = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return "no commit"
    return f"commit {completed.stdout.strip()}" if not completed.returncode else "no commit"


def format_results(rows: Sequence[Row], about: Sequence[str]) -> str:
    """Return the measured seconds, ratios and counts as JSON; missing values are null."""
    content = {"about": about, "models": [asdict(row) for row in rows], "means": [asdict(mean) for mean in means(rows)]}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def resume(path: Path, about: Sequence[str], digests: Mapping[str, str]) -> dict[str, Row]:
    """Return the results of an earlier run by model, if both runs are comparable.

    Runs are comparable if ``about`` (machine, converters, commit and rounds) is equal and the checkout has no
    uncommitted changes. ``digests``: hashes of the models' files. Results of a file whose hash has changed are skipped.
    """
    if not any(note.startswith("commit ") and not note.endswith(_UNCOMMITTED) for note in about):
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [_row(**row_content) for row_content in content["models"]] if content["about"] == list(about) else []
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {row.model: row for row in rows if digests.get(row.model) == row.digest}


def _row(*, seconds: Any, outcomes: Sequence[Mapping[str, Any]], **rest: Any) -> Row:
    return Row(
        **rest, seconds=_spread(seconds), outcomes=tuple(_outcome(**outcome_content) for outcome_content in outcomes)
    )


def _outcome(*, seconds: Any, ratio: Any, graph: Any, **rest: Any) -> Outcome:
    counts = None if graph is None else Graph(**graph)
    return Outcome(**rest, seconds=_spread(seconds), ratio=_spread(ratio), graph=counts)


def _spread(content: Mapping[str, float] | None) -> Spread | None:
    return None if content is None else Spread(**content)
