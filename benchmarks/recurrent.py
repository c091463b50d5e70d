"""``python -m benchmarks.recurrent FOLDER``: nodes, errors and speed of RNNs.

``--keras PYTHON`` converts Keras layers with the tensorflow and tf_keras of that Python interpreter. Models of LiteRT's
own operators are built here, because no converter emits all their variants.
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
from benchmarks.markdown import escape_markdown, table_header, table_row
from benchmarks.table import short_problem
from conformance.cases.sequence.lstm.bidirectional import BidirectionalLstm
from conformance.cases.sequence.svdf import Svdf
from conformance.lstms import STEP, Lstm
from conformance.models import Net
from onnx_tflite_plugin.cli.output import show_progress
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify import Verification, verify
from onnx_tflite_plugin.verify.times.bench import bench

SEVERAL_RUNS = 50  # successive runs that carry states
LAYER: Mapping[str, Any] = {"batch": 1, "time": 24, "inputs": 40, "cells": 64, "weight_factor": 0.3}
CLIPPED: Mapping[str, Any] = {"options": (("cell_clip", 10.0),)}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "lstm": {},
    "lstm_clipped_at_10": CLIPPED,
    "lstm_clipped_at_1": {"options": (("cell_clip", 1.0),)},
    "lstm_cifg": {"coupled": True},
    "lstm_peephole": {"peephole": True},
    "lstm_projection": {"projection_size": 32},
    "lstm_layer_norm": {"layer_norm": True},
}
DTYPES: Mapping[str, Mapping[str, Any]] = {
    "float": {},
    "float16": {"float16_constants": True},
    "dynamic": {"weights": "int8"},
    "int8": {"dtype": "int8", "weights": "int8"},
}
RANGE_UNIT = " of the output's range"  # unit of float errors in `verify`
RECURRENT = ("LSTM", "GRU", "RNN", "Scan", "Loop", "If")


@dataclass(frozen=True)
class Row:
    """Nodes, errors and time of one converted model.

    ``nodes``: the number of ONNX nodes, and in brackets of recurrent operators. ``error_after_one_run`` and
    ``error_after_several_runs``: the errors as text; several runs are :data:`SEVERAL_RUNS`. ``microseconds``: LiteRT's
    time. ``ratio``: ONNX Runtime's time divided by LiteRT's. ``problem``: the reason for missing results.
    """

    name: str
    kind: str
    nodes: str = ""
    error_after_one_run: str = ""
    error_after_several_runs: str = ""
    microseconds: float = 0.0
    ratio: float = 0.0
    problem: str = ""


def operator_builders() -> Iterator[tuple[str, Callable[[Net], None]]]:
    """Yield a name and a builder for each recurrent operator of LiteRT."""
    for kind, dtypes in DTYPES.items():
        for name, variant in VARIANTS.items():
            yield f"op_{name}_{kind}", Lstm(**{**LAYER, **variant, **dtypes}).build
        yield f"op_lstm_step_{kind}", Lstm(op=STEP, **{**LAYER, **dtypes}).build
        if kind != "float16":
            yield f"op_svdf_{kind}", Svdf(batch=1, inputs=40, units=64, memory=8, **dtypes).build
        if kind in ("float", "dynamic"):
            lstm = {"inputs": 40, "cells": 64, "weight_factor": 0.3, **dtypes}
            yield (
                f"op_bilstm_{kind}",
                BidirectionalLstm(batch=1, time=24, lstm_fields=lstm, options=(("cell_clip", 10.0),)).build,
            )


def measure_file(path: Path, rounds: int) -> Row:
    """Convert, compare and time one file."""
    name, _, kind = path.stem.rpartition("_")
    data = path.read_bytes()
    try:
        conversion = otp.convert(data)
        one_run, several_runs = (verify(data, conversion.proto, runs=runs) for runs in (1, SEVERAL_RUNS))
        times = bench(data, conversion.proto, rounds=rounds)
    except ConversionError as error:
        return Row(name, kind, problem=" ".join(f"fails: {error}".split()))
    op_types = [node.op_type for node in conversion.model.graph.all_nodes()]
    recurrent_nodes = ", ".join(f"{op_types.count(op)} {op}" for op in RECURRENT if op in op_types)
    return Row(
        name,
        kind,
        f"{len(op_types)} ({recurrent_nodes})" if recurrent_nodes else str(len(op_types)),
        describe_errors(one_run),
        describe_errors(several_runs),
        1e6 * times.litert.median,
        times.ratio.median,
    )


def describe_errors(verification: Verification) -> str:
    """Return the largest errors as text, marked if one exceeds its tolerance.

    A number without a unit is a fraction of the output's range.
    """
    texts = dict.fromkeys(comparison.text.partition(" (")[0] for comparison in verification.comparisons)
    errors = [
        text.removeprefix("max ").removesuffix(RANGE_UNIT) if text.endswith(RANGE_UNIT) else text for text in texts
    ]
    return "; ".join(errors) + ("" if verification.ok else " (exceeds tolerance)")


def render_table(rows: list[Row], notes: list[str]) -> str:
    """Return the table in Markdown."""
    lines = [*(f"- {escape_markdown(note)}" for note in notes), ""]
    headings = ("layer", "kind", "nodes", "error, 1 run", f"error, {SEVERAL_RUNS} runs", "LiteRT µs", "time ratio")
    lines += table_header(headings)
    for result in sorted(rows, key=lambda result: (result.name, result.kind)):
        cells = (
            result.nodes,
            result.error_after_one_run,
            result.error_after_several_runs,
            f"{result.microseconds:.0f}",
            f"{result.ratio:.2f}",
        )
        lines.append(
            table_row(
                (
                    escape_markdown(result.name),
                    result.kind,
                    *(("", "", "", "", short_problem(result.problem)) if result.problem else cells),
                )
            )
        )
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--keras",
    "python",
    metavar="PYTHON",
    help="Python interpreter with tensorflow and tf_keras, used to convert Keras layers.",
)
@click.option("--rounds", type=click.IntRange(min=3), default=25, show_default=True, help="Timing rounds per model.")
@click.option("--only", metavar="TEXT", default="", help="Only models with this text in their names.")
@click.option("--markdown", metavar="FILE.md", type=click.Path(path_type=Path), help="Write the results as a table.")
def recurrent(folder: Path, python: str | None, rounds: int, only: str, markdown: Path | None) -> None:
    """Write recurrent layers into FOLDER; convert, compare and time all models in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in operator_builders():
        model = Net()
        build(model)
        (folder / f"{name}.tflite").write_bytes(model.build())
    if python is not None:
        subprocess.run([python, keras_recurrent.__file__, str(folder)], check=True)
    rows = []
    for path in sorted(folder.glob("*.tflite")):
        if only in path.stem:
            with show_progress(path.stem):
                rows.append(measure_file(path, rounds))
            click.echo(" ".join(str(value) for value in vars(rows[-1]).values()))
    if markdown is not None:
        markdown.write_text(render_table(rows, [machine(), f"{len(rows)} models, {rounds} rounds"]), encoding="utf-8")


if __name__ == "__main__":
    recurrent()
