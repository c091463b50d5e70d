"""Options of several commands: what a verification or a benchmark runs on, and which op packs serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from onnx_tflite_plugin.cli.failures import UsageProblem


def pairs(form: str, read: Callable[[str], Any]) -> Callable[..., Mapping[str, Any]]:
    """Reads repeated ``NAME=VALUE`` into a mapping; cut at the last ``=``, for names may hold one."""

    def callback(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for text in given:
            name, _, value = text.rpartition("=")
            try:
                if not name or not value:
                    raise ValueError
                if name in values:
                    raise click.BadParameter(f"{name!r} is given more than once", ctx, param)
                values[name] = read(value)
            except ValueError:
                raise click.BadParameter(f"{text!r} is not of the form {form}", ctx, param) from None
        return values

    return callback


def _range(text: str) -> tuple[float, float]:
    """``-1:1``. Raises ValueError."""
    low, _, high = text.partition(":")
    least, most = float(low), float(high)
    if not least <= most:
        raise ValueError
    return least, most


_RANGE = "NAME=LOW:HIGH"


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--inputs``, ``--range``, ``--seed``, ``--runs`` and ``--tolerance``."""
    options = [
        click.option(
            "--inputs",
            metavar="PATH",
            type=click.Path(path_type=Path),
            help="Your data: .npz with arrays by input name, .npy, an image, or a folder of these; several inputs may be "
            "stacked along the first axis.",
        ),
        click.option(
            "--range",
            "ranges",
            metavar=_RANGE,
            multiple=True,
            callback=pairs(_RANGE, _range),
            help="Smallest and largest value drawn for an input that is not given. Repeatable.",
        ),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Seed of the random inputs, where none are given."
        ),
        click.option(
            "--runs",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            help="Successive runs; states are carried on.",
        ),
        click.option(
            "--tolerance",
            type=click.FloatRange(min=0),
            help="How far float outputs may be apart, as a share of their range; by default it follows from the model.",
        ),
    ]
    return _with(command, options)


def pack_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--prefer``, ``--block`` and ``--packs``."""
    options = [
        click.option(
            "--prefer",
            metavar="DIST",
            multiple=True,
            help="This op pack wins where several claim an operator. Repeatable.",
        ),
        click.option("--block", metavar="DIST", multiple=True, help="Leave this op pack out. Repeatable."),
        click.option(
            "--packs",
            metavar="builtin|LIST",
            help="Use only the built-in operators, or also these packs (comma-separated).",
        ),
    ]
    return _with(command, options)


def _with(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


PARTIAL = "--verify-partial"


class Partial(click.Command):
    """A command with a switch ``--verify`` that is also written ``--verify=partial``, another switch to click.

    As one option with a value that may be missing it would take the model behind it for the value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [PARTIAL if arg == "--verify=partial" else arg for arg in args])


def existing(path: Path | None) -> Path | None:
    """The path of data that is there. Raises UsageProblem."""
    if path is not None and not path.exists():
        raise UsageProblem(f"{path}: there is no such file or folder")
    return path
