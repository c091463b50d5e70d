"""``python -m benchmarks.growth``: time and memory of conversions of large graphs.

By default, graphs have 1,000 and 10,000 operators. There are six kinds of graphs: a chain, a residual network, blocks
that resemble recurrent steps, composites with a common subgraph, one tensor with many readers, and one operator with
many operands. If the time per operator rises with the number of operators, some code is not linear. Times are processor
seconds. Every conversion runs in a separate process, whose peak memory, including the imports, is reported.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np

from conformance.builder import GraphBuilder, ModelBuilder

SIZES = (1_000, 10_000)


def chain(g: GraphBuilder, count: int) -> None:
    """Build a chain of operators."""
    x = g.input("x", (1, 8))
    for k in range(count):
        y = g.tensor(f"y{k}", (1, 8))
        g.operator(("ABS", "NEG", "FLOOR")[k % 3], [x], [y])
        x = y
    g.output(x)


def residual(g: GraphBuilder, count: int) -> None:
    """Build blocks of a convolution, a RELU and a residual ADD."""
    x, size = g.input("x", (1, 4, 4, 8)), (1, 4, 4, 8)
    w, b = g.constant("w", np.eye(8, dtype=np.float32).reshape(8, 1, 1, 8)), g.constant("b", np.zeros(8, np.float32))
    for k in range(count // 3):
        a, r, y = (g.tensor(f"{letter}{k}", size) for letter in "ary")
        g.operator("CONV_2D", [x, w, b], [a], {"padding": "SAME", "stride_w": 1, "stride_h": 1})
        g.operator("RELU", [a], [r])
        g.operator("ADD", [r, x], [y])
        x = y
    g.output(x)


def steps(g: GraphBuilder, count: int) -> None:
    """Build blocks of a convolution, an ADD and a TANH, like steps of a recurrence."""
    x, size = g.input("x", (1, 4, 4, 8)), (1, 4, 4, 8)
    w, b = g.constant("w", np.eye(8, dtype=np.float32).reshape(8, 1, 1, 8)), g.constant("b", np.zeros(8, np.float32))
    for k in range(count // 3):
        a, s, y = (g.tensor(f"{letter}{k}", size) for letter in "asy")
        g.operator("CONV_2D", [x, w, b], [a], {"padding": "SAME", "stride_w": 1, "stride_h": 1})
        g.operator("ADD", [a, x], [s])
        g.operator("TANH", [s], [y])
        x = y
    g.output(x)


def calls(g: GraphBuilder, count: int) -> None:
    """Build a chain of composites that all call the same subgraph of one operator."""
    inner = g.model.subgraph("inner")
    inner.operator("NEG", [inner.input("x", (1, 8))], [y := inner.tensor("y", (1, 8))])
    inner.output(y)
    options = {"decomposition_subgraph_index": inner.index, "composite_attributes": {}}
    x = g.input("x", (1, 8))
    for k in range(count):
        y = g.tensor(f"y{k}", (1, 8))
        g.operator("COMPOSITE.benchmark.neg", [x], [y], options)
        x = y
    g.output(x)


def fan(g: GraphBuilder, count: int) -> None:
    """Build operators that all read one tensor; all results are graph outputs."""
    x = g.input("x", (1, 8))
    for k in range(count):
        g.operator("ABS", [x], [y := g.tensor(f"y{k}", (1, 8))])
        g.output(y)


def join_readers(g: GraphBuilder, count: int) -> None:
    """Build operators that read one tensor, and join their results, each one twice."""
    x = g.input("x", (1, 8))
    parts = [g.tensor(f"y{k}", (1, 8)) for k in range(count - 1)]
    for y in parts:
        g.operator("ABS", [x], [y])
    g.operator("CONCATENATION", [*parts, *parts], [z := g.tensor("z", (1, 16 * len(parts)))], {"axis": 1})
    g.output(z)


GRAPHS: dict[str, Callable[[GraphBuilder, int], None]] = {
    shape.__name__: shape for shape in (chain, residual, steps, calls, fan, join_readers)
}


def measure(shape: str, count: int) -> dict[str, float]:
    """Convert in this process; return processor seconds and peak memory in bytes."""
    from onnx_tflite_plugin import convert

    warm_up_model, model = ModelBuilder(), ModelBuilder()
    GRAPHS[shape](warm_up_model.main, 6)
    GRAPHS[shape](model.main, count)
    convert(warm_up_model.build())
    data = model.build()
    del model
    start = time.process_time()
    convert(data)
    seconds = time.process_time() - start
    return {"seconds": seconds, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def measure_in_process(shape: str, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--one", shape, str(count)]
    completed = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    result: dict[str, float] = json.loads(completed.stdout)
    return result


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--shape", "shapes", multiple=True, type=click.Choice([*GRAPHS]), help="Kind of graph; all by default. Repeatable."
)
@click.option(
    "--size", "sizes", multiple=True, type=int, help="Number of operators; 1,000 and 10,000 by default. Repeatable."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw a chart of time and memory to this file.")
@click.option("--one", "shape_and_size", type=(str, int), hidden=True)
def main(
    shapes: Sequence[str], sizes: Sequence[int], picture: Path | None, shape_and_size: tuple[str, int] | None
) -> None:
    """Convert generated models of growing size and report time and memory."""
    if shape_and_size:
        click.echo(json.dumps(measure(*shape_and_size)))
        return
    sizes = sorted(sizes or SIZES)
    measurements: dict[str, list[dict[str, float]]] = {}
    for shape in shapes or GRAPHS:
        for count in sizes:
            result = measure_in_process(shape, count)
            measurements.setdefault(shape, []).append(result)
            milliseconds = 1e3 * result["seconds"] / count
            click.echo(
                f"{shape:9} {count:7} operators {result['seconds']:8.1f} s {milliseconds:6.2f} ms each {result['bytes'] / 1e6:7.0f} MB"
            )
    if picture:
        draw(measurements, sizes, picture)


def draw(measurements: dict[str, list[dict[str, float]]], sizes: Sequence[int], path: Path) -> None:
    """Plot time and memory against the number of operators, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.5))
    for panel, key, unit, label in zip(panels, ("seconds", "bytes"), (1, 1e6), ("seconds", "MB"), strict=True):
        for shape, rows in measurements.items():
            panel.loglog(sizes, [row[key] / unit for row in rows], marker="o", label=shape)
        panel.set_xlabel("operators")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
