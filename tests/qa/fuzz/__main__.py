"""``python -m tests.qa.fuzz``: see the package."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tests.qa.fuzz.campaign import WORSE, Tally, keep_file, run
from tests.qa.fuzz.child import SECONDS, Child
from tests.qa.fuzz.outcome import KINDS

FOLDER = Path(__file__).parents[3] / ".cache/fuzz"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--seed", default=1, show_default=True, help="Inputs of one seed are always the same.")
@click.option("--start", default=0, show_default=True, help="The first input's number.")
@click.option("--count", type=int, help="How many inputs.")
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="For how long.")
@click.option("--limit", default=SECONDS, show_default=True, help="Seconds that one input may take.")
@click.option("--nice", default=0, show_default=True, help="How much the child gives way to other processes.")
@click.option("--minimise", default=30.0, show_default=True, help="Seconds to make each find small in.")
@click.option(
    "--keep", default=FOLDER, show_default=True, type=click.Path(path_type=Path), help="Where what is found goes."
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
    """Mutate models until time is up and keep a minimized file of each unexpected outcome; or try FILES.

    Exits with 1 where something was a bug, or a difference that no rule of ``excuses`` covers.
    """
    with Child(limit, nice=nice) as child:
        if files:
            for path in files:
                click.echo(f"{path.stem} {child.try_file(path.read_bytes()).line}")
            return
        tally, started_at = Tally(), time.monotonic()
        for made, outcome in run(seed, child, count=count, seconds=seconds, start=start):
            if outcome.kind in WORSE:
                click.echo(f"{made.name}: {outcome.line[:300]}")
            if tally.add(made, outcome):
                keep_file(keep, made, outcome, child, seconds=minimise)
        report(tally, time.monotonic() - started_at, seed)
    sys.exit(1 if tally.kinds["bug"] or tally.kinds["different"] else 0)


def report(tally: Tally, seconds: float, seed: int) -> None:
    total = sum(tally.kinds.values())
    click.echo(f"\nseed {seed}: {total} inputs in {seconds / 60:.1f} minutes")
    for kind, text in KINDS.items():
        click.echo(f"{tally.kinds[kind]:8} {kind:10} {text}")
    for key, count in tally.sorts.most_common():
        if key[0] in ("bug", "different", "excused"):
            click.echo(f"{count:8} {' | '.join(key)}")


if __name__ == "__main__":
    main()
