"""Command ``convert``: conversion of .tflite files to .onnx files."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from onnx_tflite_plugin.cli.batch import convert_all
from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import UsageProblem, set_failure_output
from onnx_tflite_plugin.cli.isolation import ProgressWrapper, isolate_command, pass_through
from onnx_tflite_plugin.cli.jobs import STREAM, Job, collect_jobs
from onnx_tflite_plugin.cli.options import DATA_OPTIONS, GroupedCommand, add_options, check_exists, forwarded_options
from onnx_tflite_plugin.cli.output import (
    Row,
    ignore_broken_pipe,
    print_json,
    print_rows,
    redirect_stdout_to_stderr,
    show_progress,
    unlimited_lists,
)
from onnx_tflite_plugin.cli.paths import FilePath, OutputPath, check_readable
from onnx_tflite_plugin.cli.report import html_path, no_comparison_rows, write_page
from onnx_tflite_plugin.options import ConvertOptions, VerifyOptions
from onnx_tflite_plugin.progress import Stages

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="MODEL", type=FilePath())
@click.argument("output", metavar="[MODEL.onnx]", required=False, type=OutputPath())
@add_options(ConvertOptions)
@add_options(VerifyOptions, *DATA_OPTIONS)
@click.option(
    "--report",
    "page",
    metavar="FILE.html",
    type=FilePath(),
    help="Also write a page about the conversion: the network, the error of every tensor against LiteRT, and times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print only errors, and the output of --json.")
@click.option(
    "-v", "--verbose", "verbosity", count=True,
    help="Print layout, rewrites, counts and the Python lines that run the model. -vv: also the ONNX nodes of each operator, why "
    "fusions and rewrites did not apply, complete lists, and the time of each stage. Applies to a single model; on stderr if stdout has "
    "the model or JSON.",
)  # fmt: skip
@click.pass_context
def convert(
    ctx: click.Context,
    /,
    model: Path,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    verbosity: int,
    signature: str | None,
    page: Path | None,
    **options: Any,
) -> None:
    """Convert MODEL to ONNX.

    MODEL is a .tflite file, a folder of them, a MediaPipe .task bundle, a LiteRT-LM bundle, or - for stdin. MODEL.onnx
    may be a file, a folder, or - for stdout. By default it is the model's path with the suffix .onnx. In a folder, the
    file is named after the model.

    Prints a summary. Exits with 1 if a model is refused, with 2 for a usage error or a missing extra, and with 3 if
    --verify finds a difference; then no file is written. Exits with 4 if the verdict is inconclusive; the file is
    written. The Verification options imply --verify.
    """
    set_failure_output(as_json=as_json)
    if output == STREAM and as_json:
        raise UsageProblem("--json and the model would both be written to stdout; name a file for the model")
    if output == STREAM and sys.stdout.isatty():
        raise UsageProblem("- writes the model to stdout, which is a terminal: redirect stdout to a file")
    options["verify"] = _verification(ctx, options)
    if model != STREAM:
        _check_model_exists(model)
    command_files = CommandFiles()
    set_failure_output(as_json=as_json, note=command_files.note)
    verify_options = options["verify"] if isinstance(options["verify"], VerifyOptions) else None
    if verify_options is not None:
        command_files.register_data(verify_options.inputs)
    jobs, is_single = collect_jobs(
        model, output, signature, command_files, lambda source: _signature_difference(source, options)
    )
    if is_single and OutputPath.MISSING_FOLDER in ctx.meta:
        raise UsageProblem(f"there is no folder {output}; create it first, or leave out the slash to name a file")
    if page is not None:
        if not is_single:
            raise UsageProblem("--report writes the page of a single model; convert one model at a time")
        command_files.register_output(html_path(page), "the report", "choose a different file for the report")
    command_files.prepare(folders=not is_single)
    if not is_single:
        if verbosity:
            click.echo("-v prints details of a single model only; convert one model at a time to see them", err=True)
        ctx.exit(convert_all(jobs, options, model, as_json=as_json, quiet=quiet))
    (job,) = jobs
    isolates = options["verify"] or page is not None or job.is_memory_mapped
    wrap = isolate_command() if isolates else pass_through
    result = _convert_job(job, page, options, verify_options, wrap, quiet=quiet)
    from onnx_tflite_plugin.cli.summary import verification_exit_code

    exit_code = verification_exit_code(result.conversion.verification)
    if job.output == STREAM:
        set_failure_output(note="the model on stdout is incomplete")
        result.conversion.write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        set_failure_output()
        with redirect_stdout(sys.stderr):
            print_rows(_detailed_rows(result, verbosity))
        ctx.exit(exit_code)
    from onnx_tflite_plugin.cli.json_report import report_json

    with ignore_broken_pipe():
        if as_json:
            print_json(report_json(result.conversion, Path(job.name), result.files, result.seconds))
            with redirect_stdout(sys.stderr):
                print_rows(_detailed_rows(result, verbosity))
        elif not quiet and verbosity:
            print_rows([*_detailed_rows(result, verbosity), *result.page_rows])
        elif not quiet:
            print_rows(_brief_rows(ctx, result))
    ctx.exit(exit_code)


class _Result(NamedTuple):
    """Result of one job.

    ``files``: the written files; empty if the model is written to stdout. ``page_rows``: rows on the page of ``--report``.
    """

    conversion: Conversion
    files: Sequence[Path]
    seconds: float
    stages: Stages
    page_rows: Sequence[Row]


def _convert_job(
    job: Job,
    page: Path | None,
    options: dict[str, Any],
    verify_options: VerifyOptions | None,
    wrap: ProgressWrapper,
    *,
    quiet: bool,
) -> _Result:
    """Convert one model, and write its files and its page."""
    start = time.perf_counter()
    from onnx_tflite_plugin.conversion import convert as run
    from onnx_tflite_plugin.source import read_bytes

    page_rows: list[Row] = []
    name = Path(job.name).name
    activity = f"{'converting and verifying' if options['verify'] else 'converting'} {name}"
    with show_progress(activity, quiet=quiet) as show_stage, redirect_stdout_to_stderr():
        source = job.load()
        stages = Stages(wrap(show_stage))
        conversion = run(source, signature=job.signature, progress=stages, **options)
        stages.finish()
        files = [] if job.output == STREAM else conversion.save(job.output)
        seconds = time.perf_counter() - start - conversion.verification_seconds
        if page is not None:
            onnx_name = Path(job.output).name if files else ""
            tflite, proto, report = read_bytes(source), conversion.proto, conversion.report
            written = write_page(
                page, tflite, proto, name, report, wrap(show_stage), verify_options, onnx_name=onnx_name
            )
            page_rows = [Row("report", [f"{page}; open it in a browser"]), *no_comparison_rows(written)]
    return _Result(conversion, files, seconds, stages, page_rows)


def _brief_rows(ctx: click.Context, result: _Result) -> list[Row]:
    """Return the rows to print by default, and the next commands."""
    from onnx_tflite_plugin.cli.summary import brief_summary, next_row

    model, page, signature = (ctx.params[name] for name in ("model", "page", "signature"))
    options_by_command = {
        command: forwarded_options(ctx, names) for command, names in _forwarded_parameters(ctx).items()
    }
    return [
        *brief_summary(result.conversion, result.files, result.seconds, given_signature=signature),
        *result.page_rows,
        next_row(
            result.conversion,
            None if model == STREAM else model,
            result.files,
            options_by_command,
            has_page=page is not None,
        ),
    ]


def _detailed_rows(result: _Result, verbosity: int) -> list[Row]:
    """Return the rows of -v or -vv; the lists of -vv are complete."""
    from onnx_tflite_plugin.cli.details import detail_rows
    from onnx_tflite_plugin.cli.summary import summary

    with unlimited_lists(verbosity > 1):
        rows = summary(result.conversion, result.files, result.seconds) if verbosity else []
        return [*rows, *(detail_rows(result.conversion, result.stages.seconds) if verbosity > 1 else [])]


def _forwarded_parameters(ctx: click.Context) -> dict[str, set[str]]:
    """Return the names of the parameters to forward to each suggested next command."""
    parameters = {str(param.name) for param in ctx.command.params}
    convert_options = parameters - {"signature", "json", "quiet", "verbosity", "page"}
    return {"verify": {*DATA_OPTIONS}, "report": {*DATA_OPTIONS} - {"runs"}, "convert": convert_options}


def _signature_difference(source: Any, options: dict[str, Any]) -> str:
    """Return the reason why signatures cannot share one model; empty if they can.

    Raises UsageProblem if an option requires a shared model.
    """
    from onnx_tflite_plugin.conversion import describe_signature_difference

    reason = describe_signature_difference(source, **options)
    if reason and options["logits"] == "last":
        raise UsageProblem(f"--logits last: {reason}; leave the option out")
    return reason


def _check_model_exists(model: Path) -> None:
    """Raise UsageProblem if the path is neither a folder nor a readable file."""
    if not model.is_dir():
        check_readable(model)


def _verification(ctx: click.Context, options: dict[str, Any]) -> bool | VerifyOptions:
    """Return the verification that ``--verify`` and the data options request.

    Data options are removed from ``options``.
    """
    partial = options["verify"] == "partial"
    data_options = [name for name in DATA_OPTIONS if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    data = {name: options.pop(name) for name in DATA_OPTIONS}
    check_exists(data["inputs"])
    return VerifyOptions(**data, partial=partial) if data_options or partial else options["verify"] is not None
