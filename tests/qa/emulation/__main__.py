"""Command ``python -m tests.qa.emulation``; the package describes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.qa.emulation.catalogue import WHEELS, catalogue
from tests.qa.emulation.emulation import Command, Emulator, NotInstalled, local_command
from tests.qa.emulation.machines import EMULATED, HASWELL, Processor
from tests.qa.emulation.native import MASKS, Unsupported, mask_processor
from tests.qa.emulation.trials import Models, Report, convert_entries, run_on
from tools.wheels import tflite_files

CACHE = Path(__file__).parents[3] / ".cache/emulation"
FAILED, DID_NOT_RUN = 1, 3
PARALLEL_PROCESSORS = 2

Commands = Callable[[Processor], Command]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--on",
    "names",
    multiple=True,
    type=click.Choice([processor.name for processor in EMULATED]),
    help="Processor; all by default. Repeatable.",
)
@click.option("--model", default="", help="Only models with this text in their names.")
@click.option(
    "--native", type=click.Choice([*MASKS]), help="Run on this x86 processor, with all features beyond this hidden."
)
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, help="Folder for downloads.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(names: Sequence[str], model: str, native: str | None, cache: Path, command: Sequence[str]) -> None:
    """Test models on emulated processors, or on this one with hidden instructions.

    With COMMAND, run it on this processor instead. Processors that cannot be emulated here are reported. If the
    environment variable CI is set, that is a failure.
    """
    if command:
        run_masked(native, cache / "native", command)
    processors = [processor for processor in EMULATED if processor.name in names or not names]
    commands: Commands = Emulator(cache).command
    if native is not None:
        try:
            variables = mask_processor(native, cache / "native")
            processors, commands = [MASKS[native]], lambda _: local_command(variables)
        except Unsupported as reason:
            click.echo(f"{reason}: emulating {HASWELL.name} instead")
            processors = [HASWELL]
    start = time.perf_counter()
    wheels, missing = None, []
    try:
        wheels = networks(cache / "networks")
    except NotInstalled as reason:
        missing.append(f"networks of wheels: {reason}")
    models = convert_entries(catalogue(wheels), model)
    click.echo(f"{len(models.entries)} models converted and run in LiteRT, {time.perf_counter() - start:.0f} s")
    reports, unavailable = run_processors(processors, commands, models)
    exit_with_verdict(reports, [*missing, *unavailable], models.problems)


def run_processors(
    processors: Sequence[Processor], commands: Commands, models: Models
) -> tuple[list[Report], list[str]]:
    """Return the reports of processors, and reasons for those not emulated."""
    reports, missing = [], []
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(PARALLEL_PROCESSORS) as pool:
        running = {
            pool.submit(lambda p: run_on(p, commands(p), models, Path(scratch) / p.name), processor): processor
            for processor in processors
        }
        for future in as_completed(running):
            try:
                reports.append(future.result())
                click.echo(reports[-1].text)
            except NotInstalled as reason:
                missing.append(f"{running[future].name}: {reason}")
    return reports, missing


def exit_with_verdict(reports: Sequence[Report], missing: Sequence[str], problems: Sequence[str]) -> None:
    """Print the verdict and exit."""
    for problem in problems:
        click.echo(f"FAILED {problem}")
    for reason in missing:
        click.echo(f"DID NOT RUN {reason}")
    if problems or any(report.problems for report in reports):
        sys.exit(FAILED)
    if reports:
        click.echo(
            f"within the tolerance of LiteRT's results on {', '.join(report.processor.name for report in reports)}"
        )
    sys.exit(DID_NOT_RUN if missing and os.environ.get("CI") else 0)


def run_masked(mask: str | None, folder: Path, command: Sequence[str]) -> None:
    """Replace this process with the command, with instructions hidden from it."""
    if mask is None:
        raise click.UsageError("a command requires --native, the set of features to keep")
    try:
        os.execvpe(command[0], [*command], {**os.environ, **mask_processor(mask, folder.resolve())})
    except Unsupported as reason:
        click.echo(f"DID NOT RUN {command[0]}: {reason}. Without a command, --native emulates {HASWELL.name} instead")
        sys.exit(DID_NOT_RUN)
    except OSError as error:
        raise click.UsageError(f"{command[0]} cannot be run: {error.strerror}") from error


def networks(folder: Path) -> Path:
    """Return the folder of the wheels' .tflite files. Raises NotInstalled."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return tflite_files(folder, WHEELS)
    except subprocess.SubprocessError as error:
        raise NotInstalled(str(getattr(error, "stderr", None) or error).strip().splitlines()[-1]) from error


if __name__ == "__main__":
    main()
