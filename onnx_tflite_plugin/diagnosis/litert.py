"""Check of a failed file in LiteRT, if installed, in a separate process, because a broken file may crash it."""

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

from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    AttributedProblem,
    Contradiction,
    ConversionError,
    InvalidModel,
    Problem,
)
from onnx_tflite_plugin.source import Member, Section, locate_model, read, read_bytes
from onnx_tflite_plugin.source.model import Model, agree
from onnx_tflite_plugin.verify.runtimes.litert import find_unresolved_operator

PATIENCE = 120  # time limit in seconds, long enough for a busy machine
LARGEST = 1 << 28  # largest file in bytes to run; larger files are real models, not fuzzed ones
_PROGRAM = Path(__file__).with_name("probe.py")
UNKNOWN = "unresolved"  # in LiteRT's message; operators that LiteRT does not know may be a pack's
_HINT = "convert the original model again"

Probed = Mapping[str, Any]
"""Result of :func:`probe.probe`; empty if LiteRT cannot run the file."""


def check_with_litert(error: ConversionError, source: str | Path | bytes | Section | Member) -> ConversionError:
    """Return the error, or InvalidModel if LiteRT refuses the file, or computes other shapes than are stored.

    Applies only to errors attributed to the converter.
    """
    attributed = [
        problem for problem in error.problems if isinstance(problem, AttributedProblem) and problem.to_converter
    ]
    if not attributed:
        return error
    probed = probe_file(source)
    if probed.get("refused"):
        return InvalidModel(
            "LiteRT does not run the file either:", [Problem(attributed[0].where, str(probed["refused"]), _HINT)]
        )
    return shape_contradiction(read(source), probed) or error


def shape_contradiction(model: Model, probed: Probed) -> InvalidModel | None:
    """Return an error with stored shapes that differ from the shapes that LiteRT computes.

    ``None`` if none does.
    """
    shapes: Mapping[str, Sequence[int]] = probed.get("shapes", {})
    problems = [
        Contradiction(
            f"subgraphs[{tensor.subgraph}].tensors[{tensor.index}].shape",
            f"tensor {tensor} is of shape {list(tensor.dims)}, but LiteRT computes {list(shapes[str(tensor.index)])}",
            _HINT,
        )
        for tensor in model.subgraphs[0].tensors
        if str(tensor.index) in shapes and tensor.dims and not agree(shapes[str(tensor.index)], tensor.dims)
    ]
    return InvalidModel(CONTRADICTION, problems) if problems else None


def probe_file(source: str | Path | bytes | Section | Member) -> Probed:
    """Return LiteRT's result for a file with inputs of zeros.

    The result is empty if it cannot run or does not know all operators.
    """
    if find_spec("ai_edge_litert") is None:
        return {}
    located = locate_model(source)
    if isinstance(located, str | os.PathLike):
        return _run_probe(Path(located)) if Path(located).is_file() and Path(located).stat().st_size <= LARGEST else {}
    if (located.size if isinstance(located, Section) else len(located)) > LARGEST:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(read_bytes(located))
        return _run_probe(path)


def _run_probe(path: Path) -> Probed:
    command = [sys.executable, os.fspath(_PROGRAM), os.fspath(path)]
    try:
        completed = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    # SIGXCPU and SIGKILL are the signals of the limits of processor time.
    if completed.returncode < 0 and -completed.returncode not in (signal.SIGXCPU, signal.SIGKILL):
        return {"refused": f"LiteRT ended with signal {-completed.returncode}"}
    try:
        probed: Probed = json.loads(completed.stdout)
    except ValueError:
        return {}
    refused = str(probed.get("refused", ""))
    return {} if UNKNOWN in refused or find_unresolved_operator(refused) else probed
