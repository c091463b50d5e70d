"""Command ``report``: a conversion as one web page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin import files
from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import UsageProblem, set_failure_output, shorten_names
from onnx_tflite_plugin.cli.isolation import isolate_command
from onnx_tflite_plugin.cli.options import (
    DATA_OPTIONS,
    GroupedCommand,
    add_options,
    bisect_line,
    check_exists,
    forwarded_options,
)
from onnx_tflite_plugin.cli.output import (
    Row,
    format_size,
    print_json,
    print_rows,
    redirect_stdout_to_stderr,
    show_progress,
)
from onnx_tflite_plugin.cli.paths import FilePath, check_pair
from onnx_tflite_plugin.cli.summary import DIFFERS, INCONCLUSIVE
from onnx_tflite_plugin.options import VerifyOptions

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.page.content import Page
    from onnx_tflite_plugin.progress import Progress
    from onnx_tflite_plugin.report import Report


@click.command(cls=GroupedCommand)
@click.argument("tflite", metavar="MODEL.tflite", type=FilePath())
@click.argument("onnx", metavar="MODEL.onnx", type=FilePath())
@click.argument("output", metavar="[REPORT.html]", required=False, type=FilePath())
@add_options(VerifyOptions, "inputs", "ranges", "seed", "tolerance")
@click.option("--json", "as_json", is_flag=True, help="Print what the page shows as JSON; no page is written.")
def report(tflite: Path, onnx: Path, output: Path | None, as_json: bool, **options: Any) -> None:
    """Write a page about a conversion.

    The page is one HTML file that works offline. It shows inputs and outputs, the network with the nodes of each
    operator, the error of every tensor against LiteRT, and the time of each operator. Errors and times require the
    extra verify. Exits like verify: with 3 if the models differ, with 4 if the verdict is inconclusive.
    """
    set_failure_output(as_json=as_json)
    check_pair(tflite, onnx)
    check_exists(options["inputs"])
    verify_options = VerifyOptions(**options)
    output = html_path(output or onnx.with_suffix(".html"))
    command_files = CommandFiles()
    command_files.register_models(tflite, onnx, verify_options.inputs)
    if not as_json:
        command_files.register_output(output, "the report", "choose a different file for the report")
        command_files.prepare(folders=False)
        set_failure_output(note=command_files.note)
    wrap = isolate_command()
    from onnx_tflite_plugin.graph.serialized import read_onnx
    from onnx_tflite_plugin.page.content import collect_page_data
    from onnx_tflite_plugin.source import read_bytes

    model = read_onnx(onnx)

    with show_progress(f"reading {onnx.name}") as show_stage, redirect_stdout_to_stderr():
        content, progress = read_bytes(tflite), wrap(show_stage)
        if as_json:
            page = collect_page_data(
                content, model, tflite.name, onnx_name=onnx.name, options=verify_options, progress=progress
            )
        else:
            page = write_page(output, content, model, tflite.name, None, progress, verify_options, onnx_name=onnx.name)
    exit_code = DIFFERS if page.wrong else INCONCLUSIVE if page.verdict.startswith("inconclusive: ") else 0
    if as_json:
        print_json(page.as_dict())
        click.get_current_context().exit(exit_code)
    rows = [Row("wrote", [f"{output} ({format_size(output.stat().st_size)}); open it in a browser"], "bold green")]
    if page.wrong:
        rows.append(Row("FAILED", _verdict_lines(page), "red"))
    elif page.verdict.startswith("inconclusive: "):
        rows.append(Row("inconclusive", _verdict_lines(page), "yellow"))
    print_rows([*rows, *no_comparison_rows(page), *(_next_rows(tflite, onnx) if page.wrong else [])])
    click.get_current_context().exit(exit_code)


def no_comparison_rows(page: Page) -> list[Row]:
    """Return a warning with the reason if a page has no comparison."""
    return [] if page.verdict else [Row("warning", [shorten_names(note) for note in page.notes], "yellow")]


def _next_rows(tflite: Path, onnx: Path) -> list[Row]:
    """Return the command that writes the submodels that differ, on the same data."""
    return [Row("next", [bisect_line(tflite, onnx, forwarded_options(click.get_current_context(), DATA_OPTIONS))])]


def _verdict_lines(page: Page) -> list[str]:
    """Return lines with the verdict, the error of each output and the notes."""
    outputs = [f"{row['name']}: {row['error']}" for row in page.outputs]
    lines = [
        page.verdict.removeprefix("inconclusive: "),
        *(f"  {text}" for text in (*outputs, *page.verification_notes)),
    ]
    return [shorten_names(line) for line in lines]


def html_path(path: Path) -> Path:
    """Return the path of a page. Raises UsageProblem unless it ends in .html or .htm."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageProblem(f"{path}: the report is a web page; give a name with the suffix .html")
    return path


def write_page(
    output: Path,
    tflite: bytes,
    onnx: ModelProto,
    title: str,
    report: Report | None,
    progress: Progress,
    options: VerifyOptions | None = None,
    *,
    onnx_name: str = "",
) -> Page:
    """Write the page about a conversion atomically.

    ``report``: the report of the conversion, if available.
    """
    from onnx_tflite_plugin.page.content import collect_page_data
    from onnx_tflite_plugin.page.html import html

    page = collect_page_data(
        tflite, onnx, title, report=report, onnx_name=onnx_name, options=options, progress=progress
    )
    files.write(files.resolve_output_path(output), html(page).encode())
    return page
