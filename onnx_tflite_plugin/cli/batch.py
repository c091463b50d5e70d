"""Conversion of several models in one command, with a table of the results."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from onnx_tflite_plugin.checked import list_first, plural
from onnx_tflite_plugin.cli.failures import error_json, problem_lines, with_hints
from onnx_tflite_plugin.cli.isolation import ProgressWrapper, pass_through, run_isolated_jobs
from onnx_tflite_plugin.cli.jobs import Job, safe_file_name
from onnx_tflite_plugin.cli.json_report import report_json
from onnx_tflite_plugin.cli.output import (
    Row,
    format_size,
    print_error,
    print_json,
    print_rows,
    print_table,
    redirect_stdout_to_stderr,
    show_progress,
)
from onnx_tflite_plugin.cli.summary import (
    DIFFERS,
    INCONCLUSIVE,
    all_warnings,
    hint_row,
    verification_exit_code,
    warning_row,
)
from onnx_tflite_plugin.errors import ConversionError, Problem

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion

_BISECT_HINT = (
    "convert the model by itself without --verify; onnx-tflite verify MODEL MODEL.onnx --bisect DIR writes the submodels "
    "that differ"
)
_HEADINGS = ("operators", "nodes", "Transposes", "written", "file", "model")


class Outcome(NamedTuple):
    """Result of one conversion. ``row``: its table row. ``result``: its JSON object."""

    row: tuple[object, ...]
    result: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    exit_code: int = 0
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


def convert_all(jobs: Sequence[Job], options: Mapping[str, Any], source: Path, *, as_json: bool, quiet: bool) -> int:
    """Convert all jobs, print the results, and return the highest exit code.

    A refused model does not stop the conversion of the next models.
    """
    output_root = os.path.commonpath([os.path.abspath(job.output.parent) for job in jobs])
    outcomes = _run_jobs(jobs, options, output_root, quiet=quiet)
    weight_files = _share_weights(jobs, outcomes)
    if as_json:
        results = [outcome.result for outcome in outcomes]
        refused_count = sum("error" in result for result in results)
        print_json(
            {"source": str(source), "models": results, "converted": len(jobs) - refused_count, "refused": refused_count}
        )
    elif not quiet:
        _print_outcomes(jobs, outcomes, weight_files, output_root, verified=bool(options["verify"]))
    _print_problems(jobs, outcomes)
    codes = {outcome.exit_code for outcome in outcomes}
    return max(codes - {INCONCLUSIVE}, default=0) or max(codes, default=0)


def _run_jobs(jobs: Sequence[Job], options: Mapping[str, Any], output_root: str, *, quiet: bool) -> list[Outcome]:
    """Return the outcome of each job. ``output_root``: the folder of all outputs."""

    def run(numbered_job: tuple[int, Job], wrap: ProgressWrapper) -> Outcome:
        from onnx_tflite_plugin.conversion import convert

        number, job = numbered_job
        start = time.perf_counter()
        activity = f"{number} of {len(jobs)}, {job.name}"
        with show_progress(activity, quiet=quiet) as show_stage, redirect_stdout_to_stderr():
            try:
                conversion = convert(job.load(), **{**options, "signature": job.signature}, progress=wrap(show_stage))
                files = conversion.save(job.output)
            except ConversionError as error:
                return _refused_outcome(job, error)
        seconds = time.perf_counter() - start - conversion.verification_seconds
        result = report_json(conversion, Path(job.name), files, seconds)
        if job.split_reason:
            result["separate"] = job.split_reason
        row = (*_count_cells(conversion, files), _relative_path(files[0], output_root), job.name)
        warnings, hints = tuple(all_warnings(conversion.report, job.signature)), conversion.report.hints
        return Outcome(row, result, (), verification_exit_code(conversion.verification), warnings, hints)

    numbered_jobs = [*enumerate(jobs, 1)]
    isolates = options["verify"] or any(job.is_memory_mapped for job in jobs)
    results = run_isolated_jobs(numbered_jobs, run) if isolates else (run(item, pass_through) for item in numbered_jobs)
    return [
        _refused_outcome(job, result) if isinstance(result, ConversionError) else result
        for job, result in zip(jobs, results, strict=True)
    ]


def _print_outcomes(
    jobs: Sequence[Job], outcomes: Sequence[Outcome], weight_files: Sequence[Path], output_root: str, *, verified: bool
) -> None:
    """Print the table of all models, and the lines below it.

    ``weight_files``: files of weights that several models share. ``verified``: verification was requested.
    """
    print_table(_HEADINGS, [outcome.row for outcome in outcomes], numeric=(0, 1, 2, 3))
    click.echo()
    results = [outcome.result for outcome in outcomes]
    converted_count = sum("error" not in result for result in results)
    folders = {job.output.parent for job in jobs}
    location = "" if folders == {Path()} else f", in {_describe_folders(folders, output_root)}"
    verdicts = _verdict_counts(results) if converted_count and verified else ""
    weight_rows = [
        Row("weights", [f"{path.name}: {format_size(path.stat().st_size)}, shared"]) for path in weight_files
    ]
    split_reasons = dict.fromkeys(job.split_reason for job in jobs if job.split_reason)
    print_rows(
        [
            *(Row("signatures", [reason]) for reason in split_reasons),
            *weight_rows,
            warning_row(_merge_notes(jobs, [outcome.warnings for outcome in outcomes])),
            hint_row(_merge_notes(jobs, [outcome.hints for outcome in outcomes])),
            Row("converted", [f"{converted_count} of {plural(len(jobs), 'model')}{location}{verdicts}"], "bold"),
        ]
    )


def _describe_folders(folders: Collection[Path], output_root: str) -> str:
    if len(folders) > 1:
        return f"{len(folders)} folders in {output_root}"
    (folder,) = folders
    return str(folder)


def _print_problems(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Print each kind of problem once, with the models that have it."""
    problems: dict[Problem, list[str]] = {}
    locations: dict[Problem, str] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        for problem in outcome.problems:
            kind = Problem(_operator_name(problem), problem.reason, problem.hint)
            problems.setdefault(kind, []).append(job.name)
            locations.setdefault(kind, "" if kind.where else problem.where)
    if problems:
        heading = f"{len(problems)} kinds of problems:" if len(problems) > 1 else "not converted:"
        print_error("error", [heading, *_error_lines(problems, locations)])


def _merge_notes(jobs: Sequence[Job], notes: Sequence[Sequence[str]]) -> list[str]:
    """Return each distinct note once, prefixed with the names of its models."""
    names: dict[str, list[str]] = {}
    for job, texts in zip(jobs, notes, strict=True):
        for text in texts:
            names.setdefault(text, []).append(job.name)
    return [f"{list_first(models, 2)}: {text}" for text, models in names.items()]


def _share_weights(jobs: Sequence[Job], outcomes: list[Outcome]) -> list[Path]:
    """Share the weights of each model's signatures, and return the files of weights.

    Updates the outcomes in place.
    """
    from onnx_tflite_plugin.files import resolve_output_path
    from onnx_tflite_plugin.shared_weights import share_weights

    groups: dict[tuple[str, Path], list[int]] = {}
    for k, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
        if job.signature is not None and "error" not in outcome.result:
            model = job.output.name.removesuffix(".onnx").removesuffix(f".{safe_file_name(job.signature)}")
            groups.setdefault((model, resolve_output_path(job.output).parent), []).append(k)
    weight_files = []
    for (model, _), members in groups.items():
        paths = [resolve_output_path(jobs[k].output) for k in members]
        data = share_weights(paths, model) if len(paths) > 1 else None
        if data is not None:
            weight_files.append(data)
            for k, path in zip(members, paths, strict=True):
                outcomes[k] = _with_files(outcomes[k], [path, data])
    return weight_files


def _with_files(outcome: Outcome, files: Sequence[Path]) -> Outcome:
    """Return the outcome with the sizes of these files; the first one is the model."""
    sizes = [{"path": str(file), "bytes": file.stat().st_size} for file in files]
    row = (*outcome.row[:3], format_size(files[0].stat().st_size), *outcome.row[4:])
    return outcome._replace(row=row, result={**outcome.result, "files": sizes})


def _verdict_counts(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of verified models, and the names of inconclusive ones."""
    verdicts = {result["model"]: result["verification"]["verdict"] for result in results if "error" not in result}
    inconclusive_models = [Path(model).name for model, verdict in verdicts.items() if verdict == "inconclusive"]
    if not inconclusive_models:
        return ", verified against LiteRT"
    verified_count = len(verdicts) - len(inconclusive_models)
    return f", {verified_count} verified against LiteRT, {len(inconclusive_models)} inconclusive: {list_first(inconclusive_models, 3)}"


def _count_cells(conversion: Conversion, files: Sequence[Path]) -> tuple[object, ...]:
    """Return the first cells of a model's row: operators, nodes, Transposes, bytes."""
    report = conversion.report
    written = format_size(sum(file.stat().st_size for file in files))
    return sum(report.operators.values()), sum(report.nodes.values()), report.nodes.get("Transpose", 0), written


def _relative_path(file: Path, folder: str) -> str:
    """Return a file's path relative to ``folder``.

    Return the full path of a file outside the folder, such as the target of a link.
    """
    path = os.path.abspath(file)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else path


def _refused_outcome(job: Job, error: ConversionError) -> Outcome:
    text = f"refused, {len(error.problems)} problems" if len(error.problems) > 1 else "refused"
    text = "differs from LiteRT, not written" if error.exit_code == DIFFERS else text
    result = {"model": job.name, **error_json(error)}
    hint = _BISECT_HINT if error.exit_code == DIFFERS else ""
    problems = error.problems or (Problem("", error.message, hint),)
    return Outcome(("-", "-", "-", "-", "-", f"{job.name}: {text}"), result, problems, error.exit_code)


def _operator_name(problem: Problem) -> str:
    """Return the operator of a problem, without its location in one model."""
    operator, separator, _ = problem.where.partition(" (")
    return operator if separator else ""


def _error_lines(
    problems: Mapping[Problem, Sequence[str]], locations: Mapping[Problem, str] = MappingProxyType({})
) -> list[str]:
    """Return the lines of each kind of problem, with the models that have it.

    ``locations``: the location in the first of these models; empty if the problem names an operator.
    """
    hinted_lines: list[tuple[str, list[str]]] = []
    for problem, models in sorted(problems.items(), key=lambda item: -len(item[1])):
        model_list = list_first(list(dict.fromkeys(models)), 3)
        if location := locations.get(problem, ""):
            model_list += f", first at {location}" if len(models) > 1 else f", at {location}"
        hinted_lines.append((problem.hint, problem_lines(problem.where, problem.reason, more=f"in {model_list}")))
    return with_hints(hinted_lines)
