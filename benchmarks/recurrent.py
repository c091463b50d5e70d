"""``python -m benchmarks.recurrent FOLDER``: ONNX nodes, errors and speed of recurrent layers.

``--keras PYTHON`` makes the layers of Keras with the tensorflow and the tf_keras that this Python has. LiteRT's own
operators are written here, because no converter emits every kind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import onnx_tflite_plugin as otp
from benchmarks import keras_recurrent
from benchmarks.__main__ import machine
from benchmarks.markdown import escape_markdown, line, table_header
from benchmarks.table import outcome_of
from conformance.cases.sequence.lstm.bidirectional import Both
from conformance.cases.sequence.svdf import Svdf
from conformance.lstms import STEP, Lstm
from conformance.models import Net
from onnx_tflite_plugin.cli.output import show_progress
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify import Verification, verify
from onnx_tflite_plugin.verify.times.bench import bench

MANY = 50  # successive runs that carry states
LAYER: Mapping[str, Any] = {"batch": 1, "time": 24, "inputs": 40, "cells": 64, "reach": 0.3}
CLIPPED: Mapping[str, Any] = {"options": (("cell_clip", 10.0),)}
PARTS: Mapping[str, Mapping[str, Any]] = {
    "lstm": {},
    "lstm_clipped_at_10": CLIPPED,
    "lstm_clipped_at_1": {"options": (("cell_clip", 1.0),)},
    "lstm_cifg": {"coupled": True},
    "lstm_peephole": {"peephole": True},
    "lstm_projection": {"outputs": 32},
    "lstm_layer_norm": {"norm": True},
}
DTYPES: Mapping[str, Mapping[str, Any]] = {
    "float": {},
    "float16": {"halved": True},
    "dynamic": {"weights": "int8"},
    "int8": {"dtype": "int8", "weights": "int8"},
}
RECURRENT = ("LSTM", "GRU", "RNN", "Scan", "Loop", "If")


@dataclass(frozen=True)
class Row:
    """One model: nodes of the ONNX model, the recurrent ones by name; errors in one run and in several, as text.

    ``ratio``: time over LiteRT's; ``microseconds`` are LiteRT's. ``problem``: the reason for missing results.
    """

    name: str
    kind: str
    nodes: str = ""
    once: str = ""
    often: str = ""
    microseconds: float = 0.0
    ratio: float = 0.0
    problem: str = ""


def operators() -> Iterator[tuple[str, Callable[[Net], None]]]:
    """Yield LiteRT's recurrent operators by name and dtypes."""
    for kind, dtypes in DTYPES.items():
        for name, part in PARTS.items():
            yield f"op_{name}_{kind}", Lstm(**{**LAYER, **part, **dtypes}).draw
        yield f"op_lstm_step_{kind}", Lstm(op=STEP, **{**LAYER, **dtypes}).draw
        if kind != "float16":
            yield f"op_svdf_{kind}", Svdf(batch=1, inputs=40, units=64, memory=8, **dtypes).draw
        if kind in ("float", "dynamic"):
            each = {"inputs": 40, "cells": 64, "reach": 0.3, **dtypes}
            yield f"op_bilstm_{kind}", Both(batch=1, time=24, each=each, options=(("cell_clip", 10.0),)).draw


def row(path: Path, rounds: int) -> Row:
    """Return the measured figures of one file."""
    name, _, kind = path.stem.rpartition("_")
    data = path.read_bytes()
    try:
        conversion = otp.convert(data)
        once, often = (verify(data, conversion.proto, runs=runs) for runs in (1, MANY))
        times = bench(data, conversion.proto, rounds=rounds)
    except ConversionError as error:
        return Row(name, kind, problem=" ".join(f"fails: {error}".split()))
    inner = [node.op_type for node in conversion.model.graph.all_nodes()]
    nodes = [str(len(inner)), *(f"{inner.count(op)} {op}" for op in RECURRENT if op in inner)]
    return Row(
        name,
        kind,
        ", ".join(nodes),
        describe_errors(once),
        describe_errors(often),
        1e6 * times.litert.median,
        times.ratio.median,
    )


def describe_errors(verification: Verification) -> str:
    """Return the largest errors, and whether one exceeds its tolerance."""
    distances = dict.fromkeys(one.text.partition(" (")[0] for one in verification.comparisons)
    return "; ".join(distances) + ("" if verification.ok else ", beyond its tolerance")


def page(rows: list[Row], notes: list[str]) -> str:
    """Return the table in Markdown."""
    lines = [*(f"- {escape_markdown(note)}" for note in notes), ""]
    lines += table_header(("layer", "kind", "nodes", "1 run", f"{MANY} runs", "LiteRT µs", "time"))
    for one in sorted(rows, key=lambda one: (one.name, one.kind)):
        cells = (one.nodes, one.once, one.often, f"{one.microseconds:.0f}", f"{one.ratio:.2f}")
        lines.append(
            line(
                (
                    escape_markdown(one.name),
                    one.kind,
                    *(("", "", "", "", outcome_of(one.problem)) if one.problem else cells),
                )
            )
        )
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--keras", "python", metavar="PYTHON", help="A Python that has tensorflow and tf_keras, for Keras's layers."
)
@click.option("--rounds", type=click.IntRange(min=3), default=25, show_default=True, help="How often each is sampled.")
@click.option("--only", metavar="TEXT", default="", help="Models whose names have this in them.")
@click.option("--markdown", metavar="FILE.md", type=click.Path(path_type=Path), help="Write the table.")
def recurrent(folder: Path, python: str | None, rounds: int, only: str, markdown: Path | None) -> None:
    """Write recurrent layers into FOLDER, convert all that is in it, compare and time them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in operators():
        model = Net()
        draw(model)
        (folder / f"{name}.tflite").write_bytes(model.build())
    if python is not None:
        subprocess.run([python, keras_recurrent.__file__, str(folder)], check=True)
    rows = []
    for path in sorted(folder.glob("*.tflite")):
        if only in path.stem:
            with show_progress(path.stem):
                rows.append(row(path, rounds))
            click.echo(" ".join(str(value) for value in vars(rows[-1]).values()))
    if markdown is not None:
        markdown.write_text(page(rows, [machine(), f"{len(rows)} models, {rounds} rounds"]), encoding="utf-8")


if __name__ == "__main__":
    recurrent()
