"""Command ``verify``: comparison of a conversion with LiteRT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin.cli.command_files import CommandFiles
from onnx_tflite_plugin.cli.failures import set_failure_output, shorten_names
from onnx_tflite_plugin.cli.isolation import isolate_command
from onnx_tflite_plugin.cli.options import (
    DATA_OPTIONS,
    GroupedCommand,
    add_options,
    bisect_line,
    check_exists,
    forwarded_options,
)
from onnx_tflite_plugin.cli.output import Row, print_json, print_rows, redirect_stdout_to_stderr, show_progress
from onnx_tflite_plugin.cli.paths import FilePath, check_pair, join_command
from onnx_tflite_plugin.options import ConvertOptions, VerifyOptions

if TYPE_CHECKING:
    from onnx_tflite_plugin.verify import Verification


@click.command(cls=GroupedCommand)
@click.argument("tflite", metavar="MODEL.tflite", type=FilePath())
@click.argument("onnx", metavar="MODEL.onnx", type=FilePath())
@add_options(
    ConvertOptions,
    "signature",
    metavar="KEY",
    help="The signature that was converted, if the ONNX model does not record it.",
)
@add_options(VerifyOptions)
@click.option(
    "--bisect",
    metavar="DIR",
    type=FilePath(),
    help="If the models differ, write the submodels that differ into DIR for a bug report: .tflite, .onnx and operands.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Do not shorten names.")
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    tflite: Path,
    onnx: Path,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Compare a model with its conversion.

    Runs LiteRT and ONNX Runtime on the same inputs and compares every output and every operator. Exits with 3 if the
    models differ, and with 4 if the verdict is inconclusive; --partial turns 4 into 0. Exits with 2 if the models do not
    match. Requires the extra verify.
    """
    set_failure_output(as_json=as_json)
    check_exists(options["inputs"])
    check_pair(tflite, onnx)
    _check_bisect_paths(options["bisect"], tflite, onnx, options["inputs"])
    wrap_progress = isolate_command()
    from onnx_tflite_plugin.cli.json_report import verification_json
    from onnx_tflite_plugin.cli.summary import verification_exit_code
    from onnx_tflite_plugin.verify import verify as run

    with show_progress(f"verifying {onnx.name}") as progress, redirect_stdout_to_stderr():
        result = run(tflite, onnx, progress=wrap_progress(progress), **options)
    if as_json:
        print_json({"model": str(tflite), "onnx": str(onnx), **verification_json(result)})
    else:
        print_rows([_row(result, in_full=verbose), *_next_rows(ctx, result, tflite, onnx)])
    ctx.exit(verification_exit_code(result))


def _row(result: Verification, *, in_full: bool) -> Row:
    """Return the row that shows a verdict.

    ``in_full``: do not shorten names.
    """
    from onnx_tflite_plugin.cli.summary import verification_lines, verification_row

    if result.verdict == "differs":
        row = Row("FAILED", result.text.splitlines(), "red")
    elif result.verdict == "inconclusive":
        row = verification_row(result)
    else:
        row = Row("ok", verification_lines(result, 20), "green")
    return row if in_full else row._replace(lines=[*map(shorten_names, row.lines)])


def _next_rows(ctx: click.Context, result: Verification, tflite: Path, onnx: Path) -> Iterator[Row]:
    """Yield the next commands if the models differ; else a row about ``--bisect``."""
    from onnx_tflite_plugin.verify.submodels.saving import SUBMODEL_NAMES

    bisects = ctx.params["bisect"] is not None
    if result.verdict == "differs" and not bisects and not result.only_tolerance:
        options = [*forwarded_options(ctx, ("signature",)), *forwarded_options(ctx, DATA_OPTIONS)]
        # with a single compared tensor, --bisect would write the same models again
        has_submodels = result.diverging is not None and len(result.tensors) > 1
        lines = [bisect_line(tflite, onnx, options)] if has_submodels else []
        if not result.has_known_cause:
            convert = ["onnx-tflite", "convert", str(tflite), "plain.onnx", "--optimize", "none", "--verify"]
            command = join_command([*convert, *options])
            lines.append(f"{command}: if plain.onnx agrees with LiteRT, a rewrite rule is the cause")
        if lines:
            yield Row("next", lines)
    elif (
        bisects
        and result.verdict == "differs"
        and (submodel := ctx.params["bisect"] / SUBMODEL_NAMES[0]).with_suffix(".tflite").exists()
    ):
        command = join_command(
            ["onnx-tflite", "verify", f"{submodel}.tflite", f"{submodel}.onnx", "--inputs", f"{submodel}.npz"]
        )
        yield Row("next", [f"{command} compares one submodel again"])
    if result.verdict != "differs" and bisects:
        yield Row("bisect", ["nothing to write: no submodel differs"])


def _check_bisect_paths(folder: Path | None, tflite: Path, onnx: Path, inputs: Path | None) -> None:
    """Raise UsageProblem if a file that ``--bisect`` writes would replace an input."""
    if folder is None:
        return
    from onnx_tflite_plugin.verify.submodels.saving import SUBMODEL_FILES

    command_files = CommandFiles()
    command_files.register_models(tflite, onnx, inputs)
    for name in SUBMODEL_FILES:
        command_files.register_output(folder / name, "the submodel", "choose a different folder for --bisect")
