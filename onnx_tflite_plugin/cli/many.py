"""Several models in one command: converted one after the other, and one table of what came of each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from onnx_tflite_plugin.cli.failures import described, hinted, problem_lines
from onnx_tflite_plugin.cli.isolation import Watched, isolated_jobs, unwatched
from onnx_tflite_plugin.cli.jobs import Job
from onnx_tflite_plugin.cli.output import (
    Row,
    apart,
    complain,
    plural,
    print_json,
    print_rows,
    print_table,
    size,
    working,
)
from onnx_tflite_plugin.cli.summary import as_json as told
from onnx_tflite_plugin.errors import ConversionError, Problem

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion

_HEADINGS = ("operators", "nodes", "Transposes", "written", "file", "model")


class Outcome(NamedTuple):
    """What came of a model: its row of the table, and of the JSON; why it is refused."""

    row: tuple[object, ...]
    result: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    exit_code: int = 0


def convert_all(jobs: Sequence[Job], options: Mapping[str, Any], source: Path, *, as_json: bool, quiet: bool) -> int:
    """Convert each; returns the exit code, the worst of them. A model that is refused does not stop the others."""

    top = os.path.commonpath([os.path.abspath(job.output.parent) for job in jobs])

    def outcome(numbered: tuple[int, Job], watched: Watched) -> Outcome:
        from onnx_tflite_plugin.conversion import convert

        number, job = numbered
        start = time.perf_counter()
        with working(f"{number} of {len(jobs)}, {job.name}", quiet=quiet) as stage, apart():
            try:
                conversion = convert(job.load(), **{**options, "signature": job.signature}, progress=watched(stage))
                files = conversion.save(job.output)
            except ConversionError as error:
                return _refusal(job, error)
        result = told(conversion, Path(job.name), files, time.perf_counter() - start)
        return Outcome((*_numbers(conversion, files), _below(files[0], top), job.name), result)

    numbered = [*enumerate(jobs, 1)]
    isolates = options["verify"] or any(job.mapped for job in jobs)
    ends = isolated_jobs(numbered, outcome) if isolates else (outcome(each, unwatched) for each in numbered)
    ended = zip(jobs, ends, strict=True)
    outcomes = [_refusal(job, end) if isinstance(end, ConversionError) else end for job, end in ended]
    rows, results = [one.row for one in outcomes], [one.result for one in outcomes]
    problems: dict[Problem, list[str]] = {}
    for job, one in zip(jobs, outcomes, strict=True):
        for problem in one.problems:
            problems.setdefault(Problem(_what(problem), problem.reason, problem.hint), []).append(job.name)
    if as_json:
        refused = sum("error" in result for result in results)
        print_json({"source": str(source), "models": results, "converted": len(jobs) - refused, "refused": refused})
    elif not quiet:
        print_table(_HEADINGS, rows, numeric=(0, 1, 2, 3))
        done = sum("error" not in result for result in results)
        click.echo()
        folders = {job.output.parent for job in jobs}
        where = str(*folders) if len(folders) == 1 else f"{len(folders)} folders in {top}"
        verified = ", verified against LiteRT" if done and options["verify"] else ""
        print_rows([Row("converted", [f"{done} of {plural(len(jobs), 'model')}, in {where}{verified}"], "bold")])
    if problems:
        complain(
            "error",
            [f"{len(problems)} kinds of problems:" if len(problems) > 1 else "not converted:", *_lines(problems)],
        )
    return max((one.exit_code for one in outcomes), default=0)


def _numbers(conversion: Conversion, files: Sequence[Path]) -> tuple[object, ...]:
    report = conversion.report
    written = size(sum(file.stat().st_size for file in files))
    return sum(report.operators.values()), sum(report.nodes.values()), report.transposes, written


def _below(file: Path, folder: str) -> str:
    """Return a file's path below a folder that holds all of a run; of a link's target the whole path."""
    path = os.path.abspath(file)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else path


def _refusal(job: Job, error: ConversionError) -> Outcome:
    why = f"refused, {len(error.problems)} problems" if len(error.problems) > 1 else "refused"
    result = {"model": job.name, **described(error)}
    problems = error.problems or (Problem("", error.message),)
    return Outcome(("-", "-", "-", "-", "-", f"{job.name}: {why}"), result, problems, error.exit_code)


def _what(problem: Problem) -> str:
    """The operator, without its place in one model."""
    where, place, _ = problem.where.partition(" (")
    return where if place else ""


def _lines(problems: Mapping[Problem, Sequence[str]]) -> list[str]:
    """Each kind of problem once, with the models that have it."""
    told: list[tuple[str, list[str]]] = []
    for problem, models in sorted(problems.items(), key=lambda item: -len(item[1])):
        names = list(dict.fromkeys(models))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        told.append((problem.hint, problem_lines(problem.where, problem.reason, more=f"in {shown}")))
    return hinted(told)
