"""Whose fault a failure is: LiteRT, where it is installed, is asked in a process of its own, which a broken file may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from onnx_tflite_plugin.errors import CONTRADICTION, Blamed, Contradiction, ConversionError, InvalidModel, Problem
from onnx_tflite_plugin.source import Section, read, read_bytes
from onnx_tflite_plugin.source.model import Model, agree
from onnx_tflite_plugin.verify.runtimes.litert import unresolved

PATIENCE = 120  # seconds that a busy machine may take for it
LARGEST = 1 << 28  # bytes of a file that is tried; larger ones are not fuzzed but made
_PROGRAM = Path(__file__).with_name("probe.py")
UNKNOWN = "unresolved"  # operators that LiteRT does not know may be a pack's
_HINT = "convert the original model again"

Probed = Mapping[str, Any]
"""What :func:`probe.probe` returns; empty where LiteRT cannot be asked."""


def diagnosed(error: ConversionError, source: str | Path | bytes | Section) -> ConversionError:
    """The error, or InvalidModel where it blames the converter for a file that LiteRT refuses, or whose shapes it corrects."""
    blamed = [problem for problem in error.problems if isinstance(problem, Blamed) and problem.ours]
    if not blamed:
        return error
    told = asked(source)
    if told.get("refused"):
        return InvalidModel(
            "LiteRT does not run the file either:", [Problem(blamed[0].where, str(told["refused"]), _HINT)]
        )
    return contradicted(read(source), told) or error


def contradicted(model: Model, told: Probed) -> InvalidModel | None:
    """What stored shapes contradict the shapes that LiteRT computes; ``None`` where none does."""
    shapes: Mapping[str, Sequence[int]] = told.get("shapes", {})
    problems = [
        Contradiction(
            f"subgraphs[{tensor.subgraph}].tensors[{tensor.index}].shape",
            f"tensor {tensor} is of shape {list(tensor.dims)}, LiteRT computes {list(shapes[str(tensor.index)])}",
            _HINT,
        )
        for tensor in model.subgraphs[0].tensors
        if str(tensor.index) in shapes and tensor.dims and not agree(shapes[str(tensor.index)], tensor.dims)
    ]
    return InvalidModel(CONTRADICTION, problems) if problems else None


def asked(source: str | Path | bytes | Section) -> Probed:
    """What LiteRT makes of a file with inputs of zeros; nothing where it cannot be asked, or knows not all operators."""
    if find_spec("ai_edge_litert") is None:
        return {}
    if isinstance(source, str | Path):
        return _run(Path(source)) if Path(source).is_file() and Path(source).stat().st_size <= LARGEST else {}
    if (source.size if isinstance(source, Section) else len(source)) > LARGEST:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(read_bytes(source))
        return _run(path)


def _run(path: Path) -> Probed:
    command = [sys.executable, os.fspath(_PROGRAM), os.fspath(path)]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if ran.returncode < 0 and -ran.returncode not in (signal.SIGXCPU, signal.SIGKILL):  # of which we are the cause
        return {"refused": f"it dies of signal {-ran.returncode}"}
    try:
        told: Probed = json.loads(ran.stdout)
    except ValueError:
        return {}
    refused = str(told.get("refused", ""))
    return {} if UNKNOWN in refused or unresolved(refused) else told
