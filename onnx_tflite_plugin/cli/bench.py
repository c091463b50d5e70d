"""``bench``: how long a model takes in LiteRT and its conversion in ONNX Runtime."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_tflite_plugin.cli.data import existing
from onnx_tflite_plugin.cli.failures import on_failure
from onnx_tflite_plugin.cli.output import Row, apart, print_json, print_rows, working
from onnx_tflite_plugin.cli.paths import pair, readable

if TYPE_CHECKING:
    from onnx_tflite_plugin.verify.bench import Benchmark, Spread


@click.command()
@click.argument("tflite", metavar="MODEL.tflite", type=click.Path(path_type=Path))
@click.argument("onnx", metavar="[MODEL.onnx]", required=False, type=click.Path(path_type=Path))
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of each runtime.")
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=20,
    show_default=True,
    help="Rounds; in each, both runtimes are timed for some 20 ms.",
)
@click.option("--inputs", metavar="PATH", type=click.Path(path_type=Path), help="Your data, as for verify.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random inputs, where none are given.")
@click.option("--signature", metavar="KEY", help="The signature to run.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def bench(
    tflite: Path,
    onnx: Path | None,
    threads: int,
    rounds: int,
    inputs: Path | None,
    seed: int,
    signature: str | None,
    as_json: bool,
) -> None:
    """Time a model in LiteRT and its conversion in ONNX Runtime.

    Without MODEL.onnx the model is converted first, with the default options. Both take turns on the same inputs; the
    ratio is of each round, so that what slows the machine down slows both. Needs the extra verify.
    """
    on_failure(as_json=as_json)
    existing(inputs)
    if onnx is None:
        readable(tflite)
    else:
        pair(tflite, onnx)
    from onnx_tflite_plugin.conversion import convert
    from onnx_tflite_plugin.verify.bench import bench as run

    with working(f"timing {tflite.name}") as stage, apart():
        model = onnx if onnx is not None else convert(tflite, signature=signature, progress=stage).proto
        found = run(
            tflite, model, threads=threads, rounds=rounds, inputs=inputs, seed=seed, signature=signature, progress=stage
        )
    if as_json:
        print_json({"model": str(tflite), "onnx": None if onnx is None else str(onnx), **asdict(found)})
        return
    print_rows(_rows(found))


def _rows(found: Benchmark) -> list[Row]:
    ratio = found.ratio
    verdict = "faster" if ratio.high < 1 else "slower" if ratio.low > 1 else "as fast, within the spread"
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    how = f"{found.clock}, {threads}, medians and quartiles of {found.rounds} rounds"
    return [
        Row("LiteRT", [f"{_time(found.litert)} ({found.kernels} kernels)"]),
        Row("ONNX Runtime", [_time(found.onnxruntime)]),
        Row("ratio", [f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}): {verdict}"], "bold"),
        Row("measured", [how, found.processor]),
    ]


def _time(spread: Spread) -> str:
    factor, unit = (1e3, "ms") if spread.median >= 1e-3 else (1e6, "µs")
    low, median, high = (f"{seconds * factor:.3g}" for seconds in (spread.low, spread.median, spread.high))
    return f"{median} {unit} ({low} to {high})"
