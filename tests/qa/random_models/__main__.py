"""Command ``python -m tests.qa.random_models``; the package describes it."""

from __future__ import annotations

import os
import sys
import time

import click

from tests.qa.random_models import families  # noqa: F401  registers the functions
from tests.qa.random_models.trial import Model, NetworkModel, Tally, Trial, operators, outcomes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", default=1, show_default=True, help="Seed of the models.")
@click.option("--start", default=0, show_default=True, help="Number of the first model.")
@click.option("--count", default=1000, show_default=True, help="Number of models.")
@click.option(
    "--op",
    "ops",
    multiple=True,
    help="Only this operator; the models differ from those without the option. Repeatable.",
)
@click.option("--networks", is_flag=True, help="Networks of several operators.")
@click.option("--nice", default=0, show_default=True, help="Niceness of the process.")
@click.option("--all", "report_all", is_flag=True, help="Also report models that LiteRT does not run.")
def main(seed: int, start: int, count: int, ops: tuple[str, ...], networks: bool, nice: int, report_all: bool) -> None:
    """Compare random models with LiteRT, and report each class of differences.

    Exits with 1 if a model differs or crashes.
    """
    os.nice(nice)
    numbers = range(start, start + count)
    models: list[Trial] = (
        [NetworkModel(seed, k) for k in numbers] if networks else [Model(seed, k, ops or operators()) for k in numbers]
    )
    tally, started_at = Tally(), time.monotonic()
    for model, outcome in zip(models, outcomes(models), strict=True):
        first = tally.add(model, outcome)
        if first and (report_all or outcome.kind != "not run"):
            click.echo(f"{seed}:{model.number} {outcome.kind} {' '.join(model.label())}: {outcome.text[:400]}")
            sys.stdout.flush()
    report(tally, time.monotonic() - started_at, seed)
    sys.exit(1 if tally.kinds["different"] or tally.kinds["crash"] else 0)


def report(tally: Tally, seconds: float, seed: int) -> None:
    total = tally.kinds.total()
    counts = ", ".join(f"{number} {kind}" for kind, number in tally.kinds.most_common())
    click.echo(f"\nseed {seed}: {total} models in {seconds:.0f} s: {counts}")
    for key, numbers in sorted(tally.classes.items(), key=lambda item: -len(item[1])):
        if key[0] != "not run":
            click.echo(f"{len(numbers):5} {' | '.join(key)} (such as {numbers[0]})")
    for op in sorted({op for op, _ in tally.operators}):
        model_count = sum(number for (code, _), number in tally.operators.items() if code == op)
        if tally.operators[op, "equal"] < model_count / 2:
            click.echo(f"{tally.operators[op, 'equal']} of {model_count} equal: {op}")


if __name__ == "__main__":
    main()
