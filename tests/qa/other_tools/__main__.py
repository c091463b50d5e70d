"""Process ten converted models with every tool: ``-m tests.qa.other_tools``.

Each tool has an environment under ``.cache``. The models are the examples and those of the wheels that
``tests/conversion/test_real_networks.py`` downloads. ``--models`` names other .tflite files or folders of them. Exits
with 1 if a tool fails or changes results beyond its tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify import generate_inputs
from onnx_tflite_plugin.verify.runtimes import structure
from tests.qa.other_tools.tools import TOOLS, Tool

ROOT = Path(__file__).parents[3]
WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 900  # seconds for all models of a tool


@dataclass(frozen=True)
class Converted:
    """A converted model: its file, inputs as .npz, and ONNX Runtime's outputs."""

    name: str
    path: Path
    inputs: Path
    feeds: dict[str, Any]
    outputs: list[Any]
    is_float: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, nargs="*", help="files or folders of .tflite files")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in TOOLS])
    arguments = parser.parse_args()
    tools = [tool for tool in TOOLS if not arguments.tool or tool.name in arguments.tool]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(scratch)
        environments = pool.map(_create_environment, {_name(tool): tool for tool in tools}.values())
        files = list(_find_files(arguments.models)) if arguments.models else _default_files(folder)
        models_by_fold = {
            fold: list(_convert_model(files, folder / f"fold-{fold}", fold)) for fold in {tool.fold for tool in tools}
        }
        list(environments)  # raises the errors of installations
        results_by_tool = pool.map(
            lambda tool: _run_tool(tool, [m for m in models_by_fold[tool.fold] if _accepts(tool, m)], folder), tools
        )
        failures = sum(_print_results(tool, results) for tool, results in zip(tools, results_by_tool, strict=True))
    return int(bool(failures))


def _print_results(tool: Tool, results: Sequence[tuple[str, str]]) -> int:
    """Print the results of a tool and return the number of failures."""
    failures = [(name, text) for name, text in results if text]
    print(f"{tool.name}: {len(results) - len(failures)} of {len(results)} models", flush=True)
    for name, text in failures:
        print(f"  {name}: {text}")
    return len(failures)


def _accepts(tool: Tool, model: Converted) -> bool:
    return model.is_float or not tool.floats_only


# --- models and environments ------------------------------------------------------------------


def _find_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def _default_files(folder: Path) -> list[Path]:
    from tools.wheels import FACES, WAKE_WORDS, tflite_files

    wheel_files = sorted(tflite_files(folder, [FACES, WAKE_WORDS]).glob("*/*.tflite"))
    # language_model is left out: the float16 converter gives each of its caches two dtypes, and onnxslim reorders a sum.
    examples = [path for path in sorted((ROOT / "examples").glob("*.tflite")) if path.stem != "language_model"]
    return [*examples, *wheel_files][:10]


def _convert_model(files: Sequence[Path], folder: Path, fold: bool) -> Iterator[Converted]:
    """Convert each model once; refused models are reported and skipped."""
    folder.mkdir()
    for number, file in enumerate(files):
        try:
            conversion = otp.convert(file, weights_dtype="uint8", weights="fold" if fold else "keep")
        except ConversionError as error:
            print(f"{file.name}: refused, {error.message}")
            continue
        path, *_ = conversion.save(folder / f"{number}.onnx")
        entry = structure.entry(structure.read(file.read_bytes()))
        feeds = dict(zip(entry.input_names, generate_inputs(entry)[0], strict=True))
        np.savez(folder / f"{number}.npz", **feeds)
        is_float = not {"QuantizeLinear", "DequantizeLinear"} & conversion.report.nodes.keys()
        yield Converted(file.stem, path, folder / f"{number}.npz", feeds, _run_model(path, feeds), is_float)


def _name(tool: Tool) -> str:
    """Return the name of the tool's environment, shared by equal packages."""
    return "-".join(sorted(package.replace("=", "").replace("<", "") for package in tool.packages))


def _python(tool: Tool) -> Path:
    return ROOT / ".cache" / "other_tools" / _name(tool) / "bin" / "python"


def _create_environment(tool: Tool) -> None:
    folder = ROOT / ".cache" / "other_tools" / _name(tool)
    if not (folder / "done").exists():
        venv.create(folder, clear=True)  # without pip: the current pip installs into it
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            _python(tool),
            "install",
            "-q",
            "--no-compile",
            *tool.packages,
            "numpy",
        ]
        subprocess.run(pip, check=True)
        (folder / "done").touch()


# --- tools ------------------------------------------------------------------------------------


def _run_tool(tool: Tool, models: Sequence[Converted], folder: Path) -> list[tuple[str, str]]:
    """Return the error of each model by name; empty if there is none."""
    out = Path(tempfile.mkdtemp(dir=folder))
    targets = [out / f"{number}.{'npz' if tool.runs else 'onnx'}" for number in range(len(models))]
    problems: list[str] = []
    while len(problems) < len(models):
        jobs = [
            [str(model.path), str(target), str(model.inputs)]
            for model, target in zip(models[len(problems) :], targets[len(problems) :], strict=True)
        ]
        completed = subprocess.run(
            [_python(tool), WORKER, tool.script],
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        problems += [problem for _, problem in map(json.loads, completed.stdout.splitlines())]
        if completed.returncode:
            problems.append(
                f"the tool ended with {completed.returncode}: {(completed.stderr.strip().splitlines() or [''])[-1][:200]}"
            )
    pairs = zip(models, targets, problems, strict=True)
    return [(model.name, problem or _compare(tool, model, target)) for model, target, problem in pairs]


def _compare(tool: Tool, model: Converted, target: Path) -> str:
    try:
        after = list(np.load(target).values()) if tool.runs else _run_model(target, model.feeds)
    except Exception as error:
        return f"the resulting model does not run: {error}"[:200]
    return _describe_difference(model.outputs, after, tool.allowed)


def _run_model(model: Path, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def _describe_difference(before: Sequence[Any], after: Sequence[Any], allowed: float) -> str:
    for old, new in zip(before, after, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"{old.dtype} {list(old.shape)} became {new.dtype} {list(new.shape)}"
        span = float(np.ptp(old.astype(np.float64))) or 1.0
        error = float(np.abs(old.astype(np.float64) - new.astype(np.float64)).max()) if old.size else 0.0
        if not error <= allowed * span:
            return f"an output changed by {error / span:.2g} of its range"
    return ""


if __name__ == "__main__":
    sys.exit(main())
