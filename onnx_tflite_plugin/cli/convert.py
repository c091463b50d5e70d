"""``convert``: a .tflite file becomes an .onnx file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from onnx_tflite_plugin.cli.failures import on_failure
from onnx_tflite_plugin.cli.output import apart, print_json, print_rows, size, working
from onnx_tflite_plugin.cli.paths import readable, writable
from onnx_tflite_plugin.options import CHOICES, LATER, flag
from onnx_tflite_plugin.targets import TARGETS

_LONG = 20_000_000  # bytes of a model that takes seconds to convert


def _pairs(form: str, read: Callable[[str], Any]) -> Callable[..., Mapping[str, Any]]:
    """Reads repeated ``NAME=VALUE`` into a mapping; cut at the last ``=``, for names may hold one."""

    def callback(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for text in given:
            name, _, value = text.rpartition("=")
            try:
                if not name or not value:
                    raise ValueError
                if name in found:
                    raise click.BadParameter(f"{name!r} is given more than once", ctx, param)
                found[name] = read(value)
            except ValueError:
                raise click.BadParameter(f"{text!r} is not of the form {form}", ctx, param) from None
        return found

    return callback


def _repeated(name: str, form: str, read: Callable[[str], Any], text: str) -> Callable[[Any], Any]:
    return click.option(
        flag(name), metavar=form, multiple=True, callback=_pairs(form, read), help=f"{text} Repeatable."
    )


def _sizes(text: str) -> tuple[int, ...]:
    """``1,224,224,3``. Raises ValueError."""
    sizes = tuple(int(part) for part in text.split(","))
    if min(sizes) < 0:
        raise ValueError
    return sizes


def _choice(name: str, text: str) -> Callable[[Any], Any]:
    values = CHOICES[name]
    return click.option(
        flag(name), type=click.Choice(list(values)), default=values[0], show_default=True, help=text + _later(name)
    )


def _switch(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag(name), is_flag=True, help=text + _later(name))


def _later(name: str) -> str:
    """What this version does not do yet; asked for, it is refused."""
    value = LATER.get(name)
    return "" if value is None else " Not in this version." if value is True else f" Not in this version: {value}."


@click.command()
@click.argument("model", metavar="MODEL.tflite", type=click.Path(path_type=Path))
@click.argument("output", metavar="[MODEL.onnx]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--opset", type=int, metavar="N", help="ONNX opset; by default the target's, raised where an operator needs it."
)
@click.option(
    "--target", type=click.Choice(list(TARGETS)), default="onnxruntime", show_default=True, help="Runtime to write for."
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
@_repeated("input_shape", "NAME=1,224,224,3", _sizes, "Shape of an input, as if the model had been written for it.")
@_switch("dynamic_batch", "Leave the first axis of the inputs open, where every operator takes any batch.")
@_choice("state", "States as extra inputs and outputs, or reset in every run.")
@click.option("--signature", metavar="KEY", help="Convert this signature, with its names.")
@_switch("keep_unknown", "Write operators nobody handles as nodes of a domain of their own.")
@_switch("verify", "Compare with LiteRT before writing; no file if they disagree (extra: verify).")
@click.option(
    "--prefer", metavar="DIST", multiple=True, help="This op pack wins where several claim an operator. Repeatable."
)
@click.option("--block", metavar="DIST", multiple=True, help="Leave this op pack out. Repeatable.")
@click.option(
    "--packs", metavar="builtin|LIST", help="Use only the built-in operators, or also these packs (comma-separated)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def convert(model: Path, output: Path | None, as_json: bool, quiet: bool, **options: Any) -> None:
    """Convert MODEL.tflite to ONNX.

    Writes MODEL.onnx (by default beside the model, with its suffix replaced) and says what came of it. Exits with 1
    where the model is refused, 2 for usage or a missing extra, 3 where --verify fails; then no file is written.
    """
    on_failure(as_json=as_json)
    output = writable(output or model.with_suffix(".onnx"), sources=(readable(model),))
    on_failure(as_json=as_json, note=_untouched(output))
    start = time.perf_counter()
    from onnx_tflite_plugin.conversion import convert as run

    count = model.stat().st_size
    doing = f"converting{' and verifying' if options['verify'] else ''} {model.name} ({size(count)})"
    with working(doing, shown=count > _LONG or options["verify"]), apart():
        conversion = run(model, **options)
        files = conversion.save(output)
    on_failure(as_json=as_json)
    seconds = time.perf_counter() - start
    from onnx_tflite_plugin.cli.summary import as_json as described
    from onnx_tflite_plugin.cli.summary import summary

    if as_json:
        print_json(described(conversion, model, files, seconds))
    elif not quiet:
        print_rows(summary(conversion, files, seconds))


def _untouched(output: Path) -> str:
    return f"{output} is as it was before" if output.exists() else f"{output} was not written"
