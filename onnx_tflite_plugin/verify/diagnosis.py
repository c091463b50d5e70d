"""Whose fault a failure is: LiteRT, where it is installed, is asked in a process of its own, which a broken file may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from onnx_tflite_plugin.errors import Blamed, ConversionError, InvalidModel, Problem

SECONDS = 20  # of processor time: a model that takes longer is no broken one
PATIENCE = 120  # seconds that a busy machine may take for it
LARGEST = 1 << 28  # bytes of a file that is tried; larger ones are not fuzzed but made
_REFUSED = 3
_UNKNOWN = b"unresolved"  # operators that LiteRT does not know may be a pack's
_PROGRAM = f"""
import sys, warnings
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:  # no such limits here
    pass
warnings.simplefilter("ignore")
from ai_edge_litert.interpreter import Interpreter, OpResolverType
try:
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    model = Interpreter(sys.argv[1], experimental_op_resolver_type=resolver, num_threads=1)
    model.allocate_tensors()
    model.invoke()
except (ValueError, RuntimeError) as error:
    print(" ".join(str(error).split()))
    sys.exit({_REFUSED})
"""


def diagnosed(error: ConversionError, source: str | Path | bytes) -> ConversionError:
    """The error, or InvalidModel with LiteRT's reason where it blames the converter for a file that LiteRT refuses."""
    if not any(isinstance(problem, Blamed) and problem.ours for problem in error.problems):
        return error
    reason = refusal(source)
    if not reason:
        return error
    where = next(problem.where for problem in error.problems if isinstance(problem, Blamed) and problem.ours)
    return InvalidModel(
        "LiteRT does not run the file either:", [Problem(where, reason, "convert the original model again")]
    )


def refusal(source: str | Path | bytes) -> str:
    """Why LiteRT does not run a file with inputs of zeros; empty where it does, or cannot be asked."""
    if find_spec("ai_edge_litert") is None:
        return ""
    if isinstance(source, str | Path):
        return _asked(Path(source)) if Path(source).is_file() and Path(source).stat().st_size <= LARGEST else ""
    if len(source) > LARGEST:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(source)
        return _asked(path)


def _asked(path: Path) -> str:
    command = [sys.executable, "-c", _PROGRAM, os.fspath(path)]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if _UNKNOWN in ran.stdout:
        return ""
    if ran.returncode == _REFUSED:
        return ran.stdout.decode(errors="replace").strip() or "it gives no reason"
    killed = ran.returncode < 0 and -ran.returncode not in (signal.SIGXCPU, signal.SIGKILL)  # of which we are the cause
    return f"it dies of signal {-ran.returncode}" if killed else ""
