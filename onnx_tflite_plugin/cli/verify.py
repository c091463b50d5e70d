"""``verify``: LiteRT and ONNX Runtime side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnx_tflite_plugin.cli.failures import on_failure, shortened
from onnx_tflite_plugin.cli.isolation import isolated
from onnx_tflite_plugin.cli.options import Grouped, add_options, existing
from onnx_tflite_plugin.cli.output import Row, apart, print_json, print_rows, working
from onnx_tflite_plugin.cli.outputs import Outputs
from onnx_tflite_plugin.cli.paths import pair
from onnx_tflite_plugin.options import ConvertOptions, VerifyOptions


@click.command(cls=Grouped)
@click.argument("tflite", metavar="MODEL.tflite", type=click.Path(path_type=Path))
@click.argument("onnx", metavar="MODEL.onnx", type=click.Path(path_type=Path))
@add_options(
    ConvertOptions, "signature", metavar="KEY", help="The signature that was converted, if the ONNX file does not say."
)
@add_options(VerifyOptions)
@click.option(
    "--bisect",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="On failure write the smallest part that disagrees into DIR, for a bug report: .tflite, .onnx and its inputs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    tflite: Path,
    onnx: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare a model with its conversion.

    Runs LiteRT and ONNX Runtime on the same inputs and compares every output. Exits with 3 where they differ by more
    than the tolerance and more than LiteRT's kernel sets differ from each other. Needs the extra verify.
    """
    on_failure(as_json=as_json)
    existing(options["inputs"])
    pair(tflite, onnx)
    _plan(options["bisect"], tflite, onnx, options["inputs"])
    watched = isolated()
    from onnx_tflite_plugin.cli.summary import verification_json, verified
    from onnx_tflite_plugin.verify import verify as run

    with working(f"verifying {onnx.name}") as stage, apart():
        result = run(tflite, onnx, progress=watched(stage), **options)
    if as_json:
        print_json({"model": str(tflite), "onnx": str(onnx), **verification_json(result)})
    else:
        lines = verified(result, 20) if result.ok else [*map(shortened, result.text.splitlines())]
        print_rows([Row("ok" if result.ok else "FAILED", lines, "green" if result.ok else "red")])
    if not result.ok:
        ctx.exit(3)


def _plan(folder: Path | None, tflite: Path, onnx: Path, inputs: Path | None) -> None:
    """Raise UsageProblem if the part that ``--bisect`` writes would replace what is compared."""
    if folder is None:
        return
    from onnx_tflite_plugin.verify.operators.bisect import PARTS

    outputs = Outputs()
    outputs.read(tflite, "the TFLite model")
    outputs.read(onnx, "the ONNX model")
    if inputs is not None:
        outputs.read(inputs, "the data of --inputs")
    for name in PARTS:
        outputs.write(folder / name, "the part", "name another folder for --bisect")
