"""Command ``bench``: times of a model in LiteRT and of its conversion."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.failures import set_failure_output
from onnx_tflite_plugin.cli.isolation import isolate_command
from onnx_tflite_plugin.cli.options import GroupedCommand, add_options, check_exists
from onnx_tflite_plugin.cli.output import (
    Row,
    limit_lines,
    print_json,
    print_rows,
    print_table,
    redirect_stdout_to_stderr,
    shorten,
    show_progress,
)
from onnx_tflite_plugin.cli.paths import FilePath, check_pair, check_readable
from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.options import BenchOptions, ConvertOptions, VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx_tflite_plugin.verify.times.bench import Benchmark, Spread
    from onnx_tflite_plugin.verify.times.profile import OperatorTime

_MAX_KIND_ROWS, _MAX_OPERATOR_ROWS = 8, 5
_MAX_NAMES = 3  # maximum number of node or operator types in a cell
_SMALL_MODEL_SECONDS = 1e-4
"""Seconds per run in LiteRT below which the overhead of ONNX Runtime's nodes dominates."""
NOISY = 1.5
"""Ratio of a runtime's upper and lower quartile above which a warning says that the machine may be busy."""
_SMALL_REASON = "below 0.1 ms per run, ONNX Runtime's overhead of 0.2 to 1 µs per node dominates"
_PROFILE_NOTE = (
    "count: groups of operators that ONNX Runtime computes together\n"
    "LiteRT runs each operator in isolation, with builtin kernels, so the sum of its times differs from the time of a run"
)
_TIME_HEADINGS = ("LiteRT µs", "ONNX Runtime µs", "difference µs")


@click.command(cls=GroupedCommand)
@click.argument("tflite", metavar="MODEL.tflite", type=FilePath())
@click.argument("onnx", metavar="[MODEL.onnx]", required=False, type=FilePath())
@add_options(ConvertOptions, "signature", metavar="KEY", help="The signature to run.")
@add_options(VerifyOptions, "inputs", "seed")
@add_options(BenchOptions)
@click.option("--profile", "profiled", is_flag=True, help="Compare times per operator.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def bench(
    tflite: Path,
    onnx: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time a model in LiteRT and its conversion in ONNX Runtime.

    Without MODEL.onnx the model is converted first, with the default options. Both runtimes take turns on the same
    inputs. The ratio is computed per round, so that load from other programs affects both runtimes alike. If LiteRT
    cannot run the model, only ONNX Runtime is timed, and the exit status is 4. Requires the extra verify.

    --profile compares each operator: LiteRT's time for a model of only this operator, and ONNX Runtime's time for its
    nodes.
    """
    set_failure_output(as_json=as_json)
    check_exists(options["inputs"])
    if onnx is None:
        check_readable(tflite)
    else:
        check_pair(tflite, onnx)
    wrap = isolate_command()
    from onnx_tflite_plugin.conversion import convert
    from onnx_tflite_plugin.verify.times.bench import bench as run
    from onnx_tflite_plugin.verify.times.bench import time_onnxruntime

    with show_progress(f"timing {tflite.name}") as show_stage, redirect_stdout_to_stderr():
        progress = wrap(show_stage)
        model = onnx if onnx is not None else convert(tflite, signature=options["signature"], progress=progress).proto
        failure: InconclusiveError | None = None
        alone: Spread | None = None
        try:
            benchmark = run(tflite, model, progress=progress, **options)
        except InconclusiveError as error:
            if as_json:
                raise
            failure = error
            options.pop("profiled")
            with suppress(ConversionError):  # only LiteRT's failure is reported
                alone = time_onnxruntime(tflite, model, **options)
    if failure is not None:
        print_rows([Row("ONNX Runtime", [_format_spread(alone)])] if alone else [])
        raise failure
    if as_json:
        print_json({"model": str(tflite), "onnx": None if onnx is None else str(onnx), **asdict(benchmark)})
        return
    print_rows(row for row in _rows(benchmark) if row.lines)
    if benchmark.operators:
        _print_profile(benchmark.operators)
        click.echo(f"\n{_PROFILE_NOTE}")
        if benchmark.threads > 1:
            click.echo("operators were timed in one thread per runtime")


def _print_profile(rows: Sequence[OperatorTime]) -> None:
    """Print the operators that are slowest relative to LiteRT: by kind, then each one.

    ``rows``: the operators, the largest loss first.
    """
    from onnx_tflite_plugin.presentation.ranges import format_ranges
    from onnx_tflite_plugin.verify.times.profile import KindTime, by_code, format_names

    kinds = by_code(rows)
    listed_kinds = kinds if len(kinds) <= _MAX_KIND_ROWS + 1 else kinds[:_MAX_KIND_ROWS]
    other_rows = [row for row in rows if tuple(format_names(row.codes)) not in {kind.codes for kind in listed_kinds}]
    other_kinds = [KindTime.of((f"{len(kinds) - len(listed_kinds)} more kinds",), other_rows)] if other_rows else []
    table = [
        (_join_names(kind.codes), kind.count, *_microseconds(kind.litert, kind.onnxruntime))
        for kind in (*listed_kinds, *other_kinds, KindTime.of(("all",), rows))
    ]
    click.echo()
    print_table(("operators", "count", *_TIME_HEADINGS), table, numeric=(1, 2, 3, 4))
    slower = [row for row in rows if row.loss > 0]
    listed = slower if len(slower) <= _MAX_OPERATOR_ROWS + 1 else slower[:_MAX_OPERATOR_ROWS]
    slowest = [
        (
            format_ranges(row.operators), _join_names(format_names(row.codes)), _join_names(format_names(row.nodes)),
            *_microseconds(row.litert, row.onnxruntime),
        )
        for row in listed
    ]  # fmt: skip
    click.echo()
    if not slowest:
        click.echo("no operator takes longer than in LiteRT")
        return
    print_table(("index", "operator", "nodes", *_TIME_HEADINGS), slowest, numeric=(3, 4, 5))
    if omitted_count := len(slower) - len(listed):
        click.echo(f"… and {omitted_count} more that take longer than in LiteRT (--json lists all)")


def _join_names(names: Sequence[str]) -> str:
    """Return the first names as text, and the number of omitted names."""
    more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES + 1 else []
    return " + ".join([*(names[:_MAX_NAMES] if more else names), *more])


def _microseconds(litert: float | None, onnxruntime: float) -> tuple[str, str, str]:
    if litert is None:
        return "fails in isolation", f"{1e6 * onnxruntime:.1f}", f"{1e6 * onnxruntime:.1f}"
    return f"{1e6 * litert:.1f}", f"{1e6 * onnxruntime:.1f}", f"{1e6 * (onnxruntime - litert):.1f}"


def _rows(benchmark: Benchmark) -> list[Row]:
    ratio = benchmark.ratio
    is_small_model = ratio.low > 1 and benchmark.litert.median < _SMALL_MODEL_SECONDS
    method = (
        f"{benchmark.clock}, {plural(benchmark.threads, 'thread')}, medians and quartiles of {benchmark.rounds} rounds"
    )
    return [
        Row("LiteRT", [f"{_format_spread(benchmark.litert)} ({benchmark.kernels} kernels)"]),
        Row("ONNX Runtime", [_format_spread(benchmark.onnxruntime)]),
        Row(
            "ratio",
            [f"ONNX Runtime / LiteRT {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}): {_verdict(benchmark)}"],
            "bold",
        ),
        Row("reason", [_SMALL_REASON] if is_small_model else []),
        Row("inputs", _input_lines(benchmark)),
        Row("measured", [method, benchmark.processor]),
        Row("warning", [*benchmark.notes, *_warnings(benchmark)], "yellow"),
    ]


def _verdict(benchmark: Benchmark) -> str:
    """Return whether ONNX Runtime is faster, and the option that shows more."""
    ratio, is_profiled = benchmark.ratio, bool(benchmark.operators)
    if ratio.high < 1:
        return "faster"
    if ratio.low > 1:
        return "slower" if is_profiled else "slower; --profile lists the slower operators"
    if ratio.high <= NOISY * ratio.low:
        return "equal, within the spread"
    text = f"undecided, because the spread includes 1; --rounds {4 * benchmark.rounds} narrows it"
    return text if is_profiled else f"{text}, --profile lists slower operators"


def _input_lines(benchmark: Benchmark) -> list[str]:
    """Return lines with the signature and the inputs of the timed runs."""
    signature = [f"signature {benchmark.signature!r}"] if benchmark.signature else []
    inputs = [f"{shorten(name)} {dtype} {list(shape)}" for name, dtype, shape in benchmark.inputs]
    return limit_lines([*signature, *inputs], 8)


def _warnings(benchmark: Benchmark) -> list[str]:
    """Return warnings about unreliable times: too many threads, or rounds that vary."""
    processors, warnings = available_processors(), list[str]()
    if benchmark.threads > processors:
        warnings.append(f"{benchmark.threads} threads share {processors} processors, so threads wait for each other")
    varying_runtimes = [
        name
        for name, spread in (("LiteRT", benchmark.litert), ("ONNX Runtime", benchmark.onnxruntime))
        if spread.high > NOISY * spread.low
    ]
    if varying_runtimes:
        warnings.append(
            f"the rounds of {' and '.join(varying_runtimes)} vary by more than {NOISY - 1:.0%}: is the machine busy?"
        )
    return warnings


def available_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _format_spread(spread: Spread) -> str:
    factor, unit = (1e3, "ms") if spread.median >= 1e-3 else (1e6, "µs")
    low, median, high = (f"{seconds * factor:.3g}" for seconds in (spread.low, spread.median, spread.high))
    return f"{median} {unit} ({low} to {high})"
