"""Several models in one command: converted one after the other, and one table of what came of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin.cli.failures import described, hinted, problem_lines
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

_HEADINGS = ("operators", "nodes", "Transposes", "written", "model")


def convert_all(jobs: Sequence[Job], options: Mapping[str, Any], source: Path, *, as_json: bool, quiet: bool) -> int:
    """Convert each; returns the exit code, the worst of them. A model that is refused does not stop the others."""
    from onnx_tflite_plugin.conversion import convert

    rows: list[tuple[object, ...]] = []
    results: list[dict[str, Any]] = []
    problems: dict[Problem, list[str]] = {}
    worst = 0
    for number, job in enumerate(jobs, 1):
        start = time.perf_counter()
        with working(f"{number} of {len(jobs)}, {job.name}", quiet=quiet) as stage, apart():
            try:
                conversion = convert(job.source, **{**options, "signature": job.signature}, progress=stage)
                files = conversion.save(job.output)
            except ConversionError as error:
                worst = max(worst, error.exit_code)
                rows.append(("-", "-", "-", "-", f"{job.name}: {_refused(error)}"))
                results.append({"model": job.name, **described(error)})
                for problem in error.problems or (Problem("", error.message),):
                    problems.setdefault(Problem(_what(problem), problem.reason, problem.hint), []).append(job.name)
                continue
        results.append(told(conversion, Path(job.name), files, time.perf_counter() - start))
        rows.append((*_numbers(conversion, files), job.name))
    if as_json:
        refused = sum("error" in result for result in results)
        print_json({"source": str(source), "models": results, "converted": len(jobs) - refused, "refused": refused})
    elif not quiet:
        print_table(_HEADINGS, rows, numeric=(0, 1, 2, 3))
        done = sum("error" not in result for result in results)
        click.echo()
        places = sorted({str(job.output.parent) for job in jobs})
        where = places[0] if len(places) == 1 else f"{len(places)} folders"
        verified = ", verified against LiteRT" if done and options["verify"] else ""
        print_rows([Row("converted", [f"{done} of {plural(len(jobs), 'model')}, in {where}{verified}"], "bold")])
    if problems:
        complain(
            "error",
            [f"{len(problems)} kinds of problems:" if len(problems) > 1 else "not converted:", *_lines(problems)],
        )
    return worst


def _numbers(conversion: Conversion, files: Sequence[Path]) -> tuple[object, ...]:
    report = conversion.report
    written = size(sum(file.stat().st_size for file in files))
    return sum(report.operators.values()), sum(report.nodes.values()), report.transposes, written


def _refused(error: ConversionError) -> str:
    return f"refused, {len(error.problems)} problems" if len(error.problems) > 1 else "refused"


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
