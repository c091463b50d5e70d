"""``python -m tests.qa.other_tools``: ten converted models through every tool, each in its own environment under ``.cache``.

The models are those of the examples and of the wheels that ``tests/conversion/test_real_networks.py`` fetches; ``--models`` takes
files, or folders of .tflite files, instead. Exits with 1 where a tool fails or changes what it must not.
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
from onnx_tflite_plugin.verify import draw
from onnx_tflite_plugin.verify.runtimes import structure
from tests.qa.other_tools.tools import TOOLS, Tool

ROOT = Path(__file__).parents[3]
WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 900  # seconds for all models of a tool


@dataclass(frozen=True)
class Converted:
    """A model converted with some options: its file, inputs as .npz, and the outputs in ONNX Runtime."""

    name: str
    path: Path
    inputs: Path
    feeds: dict[str, Any]
    outputs: list[Any]
    floats: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, nargs="*", help="files or folders of .tflite files")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in TOOLS])
    chosen = parser.parse_args()
    tools = [tool for tool in TOOLS if not chosen.tool or tool.name in chosen.tool]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(scratch)
        pythons = pool.map(_environment, {_name(tool): tool for tool in tools}.values())
        files = list(_files(chosen.models)) if chosen.models else _default(folder)
        forms = {
            fold: list(_convert_model(files, folder / f"fold-{fold}", fold)) for fold in {tool.fold for tool in tools}
        }
        list(pythons)  # raises what an installation raised
        tried = pool.map(
            lambda tool: _run_tool(tool, [one for one in forms[tool.fold] if _accepts(tool, one)], folder), tools
        )
        failures = sum(_print_results(tool, results) for tool, results in zip(tools, tried, strict=True))
    return int(bool(failures))


def _print_results(tool: Tool, results: Sequence[tuple[str, str]]) -> int:
    """Print the results of a tool and return the number of failures."""
    wrong = [(name, text) for name, text in results if text]
    print(f"{tool.name}: {len(results) - len(wrong)} of {len(results)} models", flush=True)
    for name, text in wrong:
        print(f"  {name}: {text}")
    return len(wrong)


def _accepts(tool: Tool, model: Converted) -> bool:
    return model.floats or not tool.floats_only


# --- models and environments ------------------------------------------------------------------


def _files(given: Sequence[Path]) -> Iterator[Path]:
    for path in given:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def _default(folder: Path) -> list[Path]:
    from tools.wheels import FACES, WAKE_WORDS, tflite_files

    found = sorted(tflite_files(folder, [FACES, WAKE_WORDS]).glob("*/*.tflite"))
    # The float16 converter writes caches, which are outputs with readers, in two dtypes; onnxslim changes the order of a sum.
    examples = [path for path in sorted((ROOT / "examples").glob("*.tflite")) if path.stem != "language_model"]
    return [*examples, *found][:10]


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
        feeds = dict(zip(entry.input_names, draw(entry)[0], strict=True))
        np.savez(folder / f"{number}.npz", **feeds)
        floats = not {"QuantizeLinear", "DequantizeLinear"} & conversion.report.nodes.keys()
        yield Converted(file.stem, path, folder / f"{number}.npz", feeds, _ran(path, feeds), floats)


def _name(tool: Tool) -> str:
    """Return the name of the tool's environment; tools with the same packages share one."""
    return "-".join(sorted(package.replace("=", "").replace("<", "") for package in tool.packages))


def _python(tool: Tool) -> Path:
    return ROOT / ".cache" / "other_tools" / _name(tool) / "bin" / "python"


def _environment(tool: Tool) -> None:
    folder = ROOT / ".cache" / "other_tools" / _name(tool)
    if not (folder / "done").exists():
        venv.create(folder, clear=True)  # without pip: this one's installs into it
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


# --- trying -----------------------------------------------------------------------------------


def _run_tool(tool: Tool, models: Sequence[Converted], folder: Path) -> list[tuple[str, str]]:
    """Return the error of each model by name; empty if there is none."""
    out = Path(tempfile.mkdtemp(dir=folder))
    targets = [out / f"{number}.{'npz' if tool.runs else 'onnx'}" for number in range(len(models))]
    problems: list[str] = []
    while len(problems) < len(models):
        left = [
            [str(model.path), str(target), str(model.inputs)]
            for model, target in zip(models[len(problems) :], targets[len(problems) :], strict=True)
        ]
        done = subprocess.run(
            [_python(tool), WORKER, tool.script],
            input=json.dumps(left),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        problems += [problem for _, problem in map(json.loads, done.stdout.splitlines())]
        if done.returncode:
            problems.append(f"it ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:200]}")
    pairs = zip(models, targets, problems, strict=True)
    return [(model.name, problem or _compare(tool, model, target)) for model, target, problem in pairs]


def _compare(tool: Tool, model: Converted, target: Path) -> str:
    try:
        after = list(np.load(target).values()) if tool.runs else _ran(target, model.feeds)
    except Exception as error:
        return f"its result does not run: {error}"[:200]
    return _describe_difference(model.outputs, after, tool.allowed)


def _ran(model: Path, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def _describe_difference(before: Sequence[Any], after: Sequence[Any], allowed: float) -> str:
    for one, other in zip(before, after, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype} {list(one.shape)} became {other.dtype} {list(other.shape)}"
        span = float(np.ptp(one.astype(np.float64))) or 1.0
        distance = float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max()) if one.size else 0.0
        if not distance <= allowed * span:
            return f"an output moved by {distance / span:.2g} of its range"
    return ""


if __name__ == "__main__":
    sys.exit(main())
