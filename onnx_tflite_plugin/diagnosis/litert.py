"""Check of a failed file in LiteRT, if it is installed.

LiteRT runs in a separate process, because a broken file may crash it.
"""

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
from onnx_tflite_plugin.source import Member, Section, read, read_bytes, resolve_source
from onnx_tflite_plugin.source.model import Model, agree
from onnx_tflite_plugin.verify.runtimes.litert import find_unresolved_operator

TIMEOUT_SECONDS = 120  # long enough for a busy machine
MAX_FILE_BYTES = 1 << 28  # larger files are real models, not broken ones
_PROGRAM = Path(__file__).with_name("probe.py")
UNRESOLVED = "unresolved"
"""Word in LiteRT's message about an operator that it does not know; a pack may convert the operator."""
_HINT = "convert the original model again"

ProbeResult = Mapping[str, Any]
"""Result of :func:`probe.probe`; empty if the file was not run."""


def check_with_litert(error: ConversionError, source: str | Path | bytes | Section | Member) -> ConversionError:
    """Return InvalidModel if LiteRT shows that the file is the cause, else the error.

    The file is the cause if LiteRT refuses it, or if LiteRT's shapes contradict the stored shapes. An error that is not
    attributed to the converter is returned unchanged.
    """
    converter_problems = [
        problem for problem in error.problems if isinstance(problem, AttributedProblem) and problem.to_converter
    ]
    if not converter_problems:
        return error
    result = probe_file(source)
    if result.get("refused"):
        return InvalidModel(
            "LiteRT does not run the file either:",
            [Problem(converter_problems[0].where, str(result["refused"]), _HINT)],
        )
    return shape_contradiction(read(source), result) or error


def shape_contradiction(model: Model, result: ProbeResult) -> InvalidModel | None:
    """Return an error that lists the stored shapes that contradict LiteRT's shapes.

    Return None if all stored shapes agree with LiteRT's.
    """
    shapes: Mapping[str, Sequence[int]] = result.get("shapes", {})
    problems = [
        Contradiction(
            f"subgraphs[{tensor.subgraph}].tensors[{tensor.index}].shape",
            f"tensor {tensor} has shape {list(tensor.dims)}, but LiteRT computes {list(shapes[str(tensor.index)])}",
            _HINT,
        )
        for tensor in model.subgraphs[0].tensors
        if str(tensor.index) in shapes and tensor.dims and not agree(shapes[str(tensor.index)], tensor.dims)
    ]
    return InvalidModel(CONTRADICTION, problems) if problems else None


def probe_file(source: str | Path | bytes | Section | Member) -> ProbeResult:
    """Return the result of running a file in LiteRT with zeros as inputs.

    The result is empty if LiteRT is not installed or lacks an operator, or if the file is too large.
    """
    if find_spec("ai_edge_litert") is None:
        return {}
    resolved_source = resolve_source(source)
    if isinstance(resolved_source, str | os.PathLike):
        path = Path(resolved_source)
        return _run_probe(path) if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES else {}
    size = resolved_source.size if isinstance(resolved_source, Section) else len(resolved_source)
    if size > MAX_FILE_BYTES:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(read_bytes(resolved_source))
        return _run_probe(path)


def _run_probe(path: Path) -> ProbeResult:
    command = [sys.executable, os.fspath(_PROGRAM), os.fspath(path)]
    try:
        completed = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    # the limits of processor time end the process with SIGXCPU or SIGKILL
    if completed.returncode < 0 and -completed.returncode not in (signal.SIGXCPU, signal.SIGKILL):
        return {"refused": f"LiteRT ended with signal {-completed.returncode}"}
    try:
        result: ProbeResult = json.loads(completed.stdout)
    except ValueError:
        return {}
    reason = str(result.get("refused", ""))
    return {} if UNRESOLVED in reason or find_unresolved_operator(reason) else result
