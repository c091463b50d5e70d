"""The command ``python -m benchmarks``: time models in LiteRT and in ONNX Runtime."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click

from benchmarks import chart, record
from benchmarks.markdown import page
from benchmarks.model import bench_in_process
from benchmarks.peers import COMMANDS, TIMEOUT, Converter, OpenVINO, Ours, digest, find_peers
from benchmarks.table import show
from onnx_tflite_plugin import files
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.output import show_progress
from onnx_tflite_plugin.cli.paths import check_readable, check_writable
from onnx_tflite_plugin.errors import MissingExtra
from onnx_tflite_plugin.options import ConvertOptions, Optimize, choices
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify.runtimes.processor import processor


def _parse_pythons(ctx: click.Context, param: click.Parameter, options: Sequence[str]) -> Mapping[str, str]:
    """Return repeated ``NAME=PATH`` options as a mapping."""
    pythons = {}
    for text in options:
        name, _, path = text.partition("=")
        if name not in COMMANDS or not path:
            raise click.BadParameter(
                f"{text!r} is not NAME=PATH; NAME must be one of {', '.join(COMMANDS)}", ctx, param
            )
        pythons[name] = path
    return pythons


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("paths", metavar="FOLDER_OR_FILES…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rounds", type=click.IntRange(min=1), default=25, show_default=True, help="Timing rounds per model.")
@click.option("--png", metavar="FILE.png", type=click.Path(path_type=Path), help="Draw the ratios (extra: benchmark).")
@click.option(
    "--json", "as_json", metavar="FILE.json", type=click.Path(path_type=Path),
    help="Write all results, after every model. Existing results of the same commit, options and machine are reused.",
)  # fmt: skip
@click.option(
    "--markdown", "as_markdown", metavar="FILE.md", type=click.Path(path_type=Path),
    help="Write the ratios as a table, after every model.",
)  # fmt: skip
@click.option(
    "--optimize", type=click.Choice(choices("optimize")), default=ConvertOptions.optimize, show_default=True,
    help="As in convert.",
)  # fmt: skip
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    default=ConvertOptions.target,
    show_default=True,
    help="As in convert.",
)
@click.option(
    "--peer-python", "--peer", "pythons", metavar="NAME=PATH", multiple=True, callback=_parse_pythons,
    help=f"Python interpreter with another converter ({', '.join(COMMANDS)}); by default this one. Repeatable.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT, show_default=True,
    help="Maximum seconds per model for another converter.",
)  # fmt: skip
@click.option(
    "--peer-cache", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False),
    help="Cache other converters' models and failures here.",
)  # fmt: skip
@click.option(
    "--openvino", metavar="PYTHON", help="Python interpreter with openvino, which reads .tflite files itself. OpenVINO is timed last.",
)  # fmt: skip
def benchmark(
    paths: Sequence[Path], rounds: int, png: Path | None, as_json: Path | None, as_markdown: Path | None, optimize: Optimize, target: str,
    pythons: Mapping[str, str], timeout: float, peer_cache: Path | None, openvino: str | None,
) -> None:  # fmt: skip
    """Time models in LiteRT and, converted, in ONNX Runtime.

    All runtimes use one thread and the same inputs, and alternate in one process per model. Other converters are
    included if they are installed. A folder stands for all .tflite files in it.
    """
    models = models_by_name(paths)
    for output_path in (png, as_json, as_markdown):
        if output_path is not None:
            check_writable(output_path, sources=tuple(models.values()))
    try:
        if png is not None:
            chart.require_matplotlib()
        peers = list(find_peers(pythons, timeout, peer_cache))
        converters: list[Converter] = [Ours(optimize, target), *(peer for peer in peers if not isinstance(peer, str))]
        run_description = [
            machine(),
            "converters: " + "; ".join(f"{converter.name} {converter.version}" for converter in converters),
        ]
        run_description += [record.commit(), plural(rounds, "round")]
        digests = {name: digest(path) for name, path in models.items()}
        rows_by_name = {} if as_json is None else record.resume(as_json, run_description, digests)
        for number, (name, path) in enumerate(models.items(), 1):
            if name not in rows_by_name:
                with show_progress(f"{number} of {len(models)}: {name}"):
                    row = replace(bench_in_process(path, name, converters, rounds), digest=digests[name])
                    if openvino is not None and row.seconds is not None:
                        openvino_outcome = OpenVINO(openvino).measure(path, rounds, row.seconds)
                        row = replace(row, outcomes=(*row.outcomes, openvino_outcome))
                    rows_by_name[name] = row
            rows = [rows_by_name[name] for name in models if name in rows_by_name]
            notes = [*run_description, f"{len(rows)} of {plural(len(models), 'model')}"]
            if as_json is not None:
                files.write(as_json, record.format_results(rows, run_description).encode())
            if as_markdown is not None:
                files.write(as_markdown, page(rows, notes).encode())
    except MissingExtra as error:
        raise UsageProblem(str(error)) from None
    show(rows, [*notes, *(line for line in peers if isinstance(line, str))])
    if png is not None:
        chart.draw(rows, png, notes)


def models_by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the path of each model by its name, the shortest unique end of the path.

    A folder stands for all .tflite files in it. Raises UsageProblem if a folder has none.
    """
    source_paths: dict[Path, Path] = {}
    for path in paths:
        model_paths = sorted(path.rglob("*.tflite")) if path.is_dir() else [check_readable(path)]
        if not model_paths:
            raise UsageProblem(f"there is no .tflite file in {path}")
        source_paths |= {file.resolve(): file for file in model_paths}
    path_parts = {file: [*file.parts[:-1], file.stem] for file in source_paths}
    by_name = {}
    for file, parts in path_parts.items():
        other_parts = [other for other in path_parts.values() if other is not parts]
        length = next(k for k in range(1, len(parts) + 2) if all(other[-k:] != parts[-k:] for other in other_parts))
        by_name["/".join(parts[-length:])] = source_paths[file]
    return by_name


def machine() -> str:
    """Describe the processor and the versions of the installed runtimes.

    Raises MissingExtra if LiteRT or ONNX Runtime is not installed.
    """
    try:
        runtimes = f"LiteRT {version('ai-edge-litert')}, ONNX Runtime {version('onnxruntime')}"
    except ImportError as error:
        raise MissingExtra(error.name or "a runtime") from None
    return f"{processor()}, 1 thread each, {runtimes}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(benchmark())
