"""Command ``python -m tests.qa.fuzz``; the package describes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tests.qa.fuzz.campaign import UNEXPECTED, Tally, keep_file, run
from tests.qa.fuzz.child import SECONDS, Child
from tests.qa.fuzz.outcome import KINDS

FOLDER = Path(__file__).parents[3] / ".cache/fuzz"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--seed", default=1, show_default=True, help="Seed of the inputs.")
@click.option("--start", default=0, show_default=True, help="Number of the first input.")
@click.option("--count", type=int, help="Number of inputs.")
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Duration of the run.")
@click.option("--limit", default=SECONDS, show_default=True, help="Maximum seconds per input.")
@click.option("--nice", default=0, show_default=True, help="Niceness of the worker.")
@click.option("--minimise", default=30.0, show_default=True, help="Maximum seconds to minimize a file.")
@click.option(
    "--keep",
    default=FOLDER,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for files with unexpected outcomes.",
)
def main(
    files: Sequence[Path],
    seed: int,
    start: int,
    count: int | None,
    seconds: float,
    limit: float,
    nice: int,
    minimise: float,
    keep: Path,
) -> None:
    """Mutate models and keep a file of each unexpected outcome; or test FILES.

    The files are minimized. The run ends when the time is up. Exits with 1 if there was a bug, or a difference without
    an excuse.
    """
    with Child(limit, nice=nice) as child:
        if files:
            for path in files:
                click.echo(f"{path.stem} {child.try_file(path.read_bytes()).line}")
            return
        tally, started_at = Tally(), time.monotonic()
        for tested, outcome in run(seed, child, count=count, seconds=seconds, start=start):
            if outcome.kind in UNEXPECTED:
                click.echo(f"{tested.name}: {outcome.line[:300]}")
            if tally.add(tested, outcome):
                keep_file(keep, tested, outcome, child, seconds=minimise)
        report(tally, time.monotonic() - started_at, seed)
    sys.exit(1 if tally.kinds["bug"] or tally.kinds["different"] else 0)


def report(tally: Tally, seconds: float, seed: int) -> None:
    total = sum(tally.kinds.values())
    click.echo(f"\nseed {seed}: {total} inputs in {seconds / 60:.1f} minutes")
    for kind, text in KINDS.items():
        click.echo(f"{tally.kinds[kind]:8} {kind:10} {text}")
    for key, count in tally.keys.most_common():
        if key[0] in ("bug", "different", "excused"):
            click.echo(f"{count:8} {' | '.join(key)}")


if __name__ == "__main__":
    main()
