"""``convert``: .tflite files become .onnx files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from onnx_tflite_plugin.cli.data import PARTIAL, Partial, data_options, existing, pack_options, pairs
from onnx_tflite_plugin.cli.failures import UsageProblem, on_failure
from onnx_tflite_plugin.cli.isolation import isolated, unwatched
from onnx_tflite_plugin.cli.jobs import STREAM, jobs
from onnx_tflite_plugin.cli.many import convert_all
from onnx_tflite_plugin.cli.output import Row, apart, print_json, print_rows, unread, working
from onnx_tflite_plugin.cli.outputs import Outputs
from onnx_tflite_plugin.cli.paths import readable
from onnx_tflite_plugin.cli.report import html_file, write_page
from onnx_tflite_plugin.cli.target import TargetName
from onnx_tflite_plugin.options import CHOICES, ConvertOptions, VerifyOptions, flag


def _repeated(name: str, form: str, read: Callable[[str], Any], text: str) -> Callable[[Any], Any]:
    return click.option(flag(name), metavar=form, multiple=True, callback=pairs(form, read), help=f"{text} Repeatable.")


def _sizes(text: str) -> tuple[int | str, ...]:
    """``1,224,224,3`` or ``N,224,224,3``. Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    if any(not part.isdigit() and not part.isidentifier() for part in parts):
        raise ValueError
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _names(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """Names of tensors, given apart or separated by commas."""
    return tuple(name for text in given for name in text.split(",") if name)


def _choice(name: str, text: str) -> Callable[[Any], Any]:
    default = getattr(ConvertOptions, name)
    return click.option(
        flag(name), type=click.Choice(list(CHOICES[name])), default=default, show_default=True, help=text
    )


def _switch(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag(name), is_flag=True, help=text)


@click.command(cls=Partial)
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("output", metavar="[MODEL.onnx]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--opset", type=int, metavar="N", help="ONNX opset; by default the target's, raised where an operator needs it."
)
@click.option(
    "--target",
    type=TargetName(),
    default=ConvertOptions.target,
    show_default=True,
    help="Runtime to write for.",
)
@_choice("quantization", "Keep quantization as QuantizeLinear and DequantizeLinear, or drop it: float32 throughout.")
@_choice(
    "optimize",
    "faithful rearranges convolutions where the runtime gains and no number changes, speed also where a rounding is skipped; "
    "none leaves every operator as it is written.",
)
@_choice("weights", "Weights of weight-only quantization: as in the file, or folded into float32.")
@_choice(
    "weights_dtype",
    "Weights of 8-bit products: auto is exact on every processor and chosen for it as the model loads, uint8 exact "
    "and one plain graph, int8 exact only on processors with 32-bit sums (VNNI, ARM), keep the file's dtype.",
)
@_choice("io_layout", "Axis order of inputs and outputs: the source's, or whichever costs least.")
@_repeated(
    "layout", "TENSOR=NHWC:NCHW", str, "Axis order of one input or output: the file's letters, then the wanted order."
)
@_choice("layout_plan", "local keeps the source's order everywhere between operators.")
@_repeated(
    "input_shape",
    "NAME=N,224,224,3",
    _sizes,
    "Shape of an input, as if the model had been written for it; a size given as a name is left open.",
)
@_switch("dynamic_batch", "Leave the first axis of the inputs open, where every operator takes any batch.")
@_choice("state", "States as extra inputs and outputs, or reset in every run.")
@click.option(
    "--unroll",
    metavar="N",
    type=click.IntRange(min=0),
    default=ConvertOptions.unroll,
    help="Spell out loops that are known to run N times at most; by default loops stay loops.",
)
@click.option("--signature", metavar="KEY|all", help="Convert this signature, or each into a file of its own.")
@click.option(
    "--inputs-at",
    metavar="NAME,…",
    multiple=True,
    callback=_names,
    help="Convert what lies behind these tensors: they become the inputs.",
)
@click.option(
    "--outputs",
    metavar="NAME,…",
    multiple=True,
    callback=_names,
    help="Convert what computes these tensors: they become the outputs.",
)
@_switch(
    "keep_unknown",
    "Write operators that nobody converts as nodes of the domain tflite.custom, for a runtime that has kernels for them.",
)
@_switch(
    "verify",
    "Compare with LiteRT before writing; no file if they disagree (extra: verify). --verify=partial leaves out "
    "operators that neither LiteRT nor an op pack has a kernel of.",
)
@click.option(PARTIAL, "partial", is_flag=True, hidden=True)
@_choice(
    "check",
    "Whether ONNX Runtime must open the result before it is written: auto asks it where that is cheap or in doubt.",
)
@data_options
@pack_options
@click.option(
    "--report",
    "page",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Also write a page about the conversion: the network, every tensor's distance from LiteRT, times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.pass_context
def convert(
    ctx: click.Context,
    /,
    model: Path,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    signature: str | None,
    page: Path | None,
    **options: Any,
) -> None:
    """Convert MODEL to ONNX.

    MODEL is a .tflite file, a folder of them, a MediaPipe .task bundle, a LiteRT-LM bundle, or - for stdin. Writes
    MODEL.onnx (by default beside the model, with its suffix replaced; - is stdout; into a folder under the model's name)
    and says what came of it. Exits with 1 where a model is refused, 2 for usage or a missing extra, 3 where --verify
    fails; then no file is written. Options about data imply --verify.
    """
    on_failure(as_json=as_json)
    if output == STREAM and as_json:
        raise UsageProblem("--json and a model on stdout would be mixed; name a file to write")
    if output == STREAM and sys.stdout.isatty():
        raise UsageProblem("- writes the model to stdout, which is a terminal: redirect it")
    options["verify"] = _verification(ctx, options)
    if model != STREAM:
        _there(model)
    outputs = Outputs()
    if (given := options["verify"]) and isinstance(given, VerifyOptions) and isinstance(given.inputs, Path):
        outputs.read(given.inputs, "the data of --inputs")
    all_jobs, single = jobs(model, output, signature, outputs)
    if page is not None:
        if not single:
            raise UsageProblem("--report is about one model")
        outputs.write(html_file(page), "the report", "name another file for the report")
    outputs.prepare(folders=not single)
    on_failure(as_json=as_json, note=outputs.note)
    if not single:
        ctx.exit(convert_all(all_jobs, options, model, as_json=as_json, quiet=quiet))
    (job,) = all_jobs
    isolates = options["verify"] or page is not None or job.mapped
    watched = isolated() if isolates else unwatched
    start = time.perf_counter()
    from onnx_tflite_plugin.conversion import convert as run
    from onnx_tflite_plugin.source import read_bytes

    doing = f"{'converting and verifying' if options['verify'] else 'converting'} {Path(job.name).name}"
    with working(doing, quiet=quiet) as stage, apart():
        source = job.load()
        conversion = run(source, signature=job.signature, progress=watched(stage), **options)
        files = [] if job.output == STREAM else conversion.save(job.output)
        if page is not None:
            write_page(
                page, read_bytes(source), conversion.proto, Path(job.name).name, conversion.report, watched(stage)
            )
    if job.output == STREAM:
        sys.stdout.buffer.write(conversion.proto.SerializeToString())
        return
    on_failure(as_json=as_json)
    seconds = time.perf_counter() - start
    from onnx_tflite_plugin.cli.summary import as_json as described
    from onnx_tflite_plugin.cli.summary import summary

    with unread():
        if as_json:
            print_json(described(conversion, Path(job.name), files, seconds))
        elif not quiet:
            told = [Row("report", [f"{page}; open it in a browser"])] if page is not None else []
            print_rows([*summary(conversion, files, seconds), *told])


def _there(model: Path) -> None:
    """Raises UsageProblem for a path where nothing is."""
    if not model.is_dir():
        readable(model)


_DATA = ("inputs", "ranges", "seed", "runs", "tolerance")


def _verification(ctx: click.Context, options: dict[str, Any]) -> bool | VerifyOptions:
    """What ``--verify`` and the options about data come to; takes the latter out of ``options``."""
    partial = options.pop("partial")
    given = [name for name in _DATA if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    data = {name: options.pop(name) for name in _DATA}
    existing(data["inputs"])
    return VerifyOptions(**data, partial=partial) if given or partial else bool(options["verify"])
