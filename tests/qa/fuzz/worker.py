"""Worker process that converts files and compares them with LiteRT.

It reports its stage to the parent. A request on standard input is the size of a file on a line, then its bytes.
Messages are lines of JSON: the name of each stage when it begins, then the fields of an ``Outcome``. Requests are
served by a fork with limited memory; its parent has imported all modules and run nothing, so that a crashed fork is
replaced in milliseconds. The id of a fork is reported as ``{"serves": id}``, and its end as ``{"ended": status}``.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
from importlib import import_module
from math import prod
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TextIO

import onnx_tflite_plugin
from onnx_tflite_plugin.conversion import Conversion, convert_model
from onnx_tflite_plugin.diagnosis.litert import UNRESOLVED, shape_contradiction
from onnx_tflite_plugin.diagnosis.probe import probe
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, VerificationError
from onnx_tflite_plugin.graph.load_check import CHEAP_BYTES
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.verify import LiteRTError, OnnxRuntime, OrtError, verify
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from tests.qa.fuzz.excuses import excuse
from tests.qa.fuzz.outcome import Kind, Outcome

REPORT = "please report"  # in messages of errors that are attributed to the converter
RANDOM = frozenset({"MULTINOMIAL", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"})  # their results differ in every run
NO_KERNEL = "neither LiteRT nor an installed pack has a kernel"  # in messages about custom operators
FILES_PER_PROCESS = 500  # then the process is replaced, because runtimes leak memory
NO_MORE_REQUESTS, REPLACE = 0, 17  # exit statuses of a serving process
MAX_COMPARED_BYTES = 1 << 24  # limit for the model, and for its inputs and outputs together


HOST = Host(packs="builtin")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("FUZZ_STDERR"):
        os.dup2(nothing, 2)
    _load_all()
    while True:
        child = os.fork()
        if not child:
            _limit(int(sys.argv[1]))
            os._exit(NO_MORE_REQUESTS if serve(answers) else REPLACE)
        _send(answers, {"serves": child})
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == NO_MORE_REQUESTS:
            return
        if code != REPLACE:
            _send(answers, {"ended": code})


def _load_all() -> None:
    """Import all modules of conversion and comparison, once for all forked processes."""
    import_optional("onnxruntime"), import_optional("ai_edge_litert.interpreter")
    HOST.handlers(), HOST.fusions()
    for module in walk_packages(onnx_tflite_plugin.__path__, "onnx_tflite_plugin."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    gc.collect()
    gc.freeze()


def serve(answers: TextIO) -> bool:
    """Serve up to ``FILES_PER_PROCESS`` requests; return True at the end of the input."""
    with os.fdopen(os.dup(0), "rb", buffering=0) as requests:  # unbuffered: unread requests belong to the next process
        for _ in range(FILES_PER_PROCESS):
            size = requests.readline()
            if not size:
                return True
            data = bytearray()
            while len(data) < int(size):
                data += requests.read(int(size) - len(data)) or b""
            outcome = run_file(bytes(data), answers)
            _send(answers, [outcome.kind, outcome.sort, outcome.where, outcome.text, outcome.seconds])
    return False


def run_file(data: bytes, answers: TextIO) -> Outcome:
    """Return the outcome of a file."""
    start = time.perf_counter()

    def outcome(kind: Kind, sort: str = "", where: str = "", text: str = "") -> Outcome:
        return Outcome(kind, sort, where, " ".join(text.split())[:500], round(time.perf_counter() - start, 3))

    _send(answers, "convert")
    try:
        conversion = convert_model(read(data), HOST)
        proto = conversion.proto.SerializeToString()
    except InvalidModel as error:
        return outcome("invalid", "InvalidModel", text=str(error))
    except ConversionError as error:
        if REPORT not in str(error):
            return outcome("refused", type(error).__name__, text=str(error))
        _send(answers, "ask")
        answer = probe(data)
        if "refused" in answer and UNRESOLVED not in answer["refused"]:
            return outcome("invalid", "LiteRT refuses", text=answer["refused"])
        if contradiction := shape_contradiction(read(data), answer):
            return outcome("invalid", "InvalidModel", text=str(contradiction))
        return outcome("bug", type(error).__name__, _innermost_frame(error.__cause__), str(error))
    except MemoryError as error:
        return outcome("bug", "MemoryError", _innermost_frame(error), str(error))
    except Exception as error:
        return outcome("bug", type(error).__name__, _innermost_frame(error), str(error))
    if len(proto) > CHEAP_BYTES:  # the conversion itself loads smaller models
        _send(answers, "load")
        try:
            OnnxRuntime(proto)
        except OrtError as error:
            return outcome("bug", "does not load", text=str(error))
    if any(op.code in RANDOM for graph in conversion.source.subgraphs for op in graph.operators):
        return outcome("uncompared", "random")
    main = conversion.source.main
    if (
        len(proto) > MAX_COMPARED_BYTES
        or not main.operators
        or sum(map(_size, (*main.inputs, *main.outputs))) > MAX_COMPARED_BYTES
    ):
        return outcome("uncompared", "size")
    _send(answers, "compare")
    kind, *details = _compare(data, proto, conversion)
    if kind == "different" and (reason := _excuse(data, proto)):
        return outcome("excused", reason, *details[1:])
    return outcome(kind, *details)


def _size(tensor: Tensor) -> int:
    return prod(tensor.shape) * 8


def _excuse(data: bytes, proto: bytes) -> str:
    try:
        return excuse(data, proto)
    except (LiteRTError, OrtError, VerificationError):
        return ""


def _compare(data: bytes, proto: bytes, conversion: Conversion) -> tuple[Kind, str, str, str]:
    try:
        verification = verify(data, proto)
    except LiteRTError as error:
        return "uncompared", "LiteRT refuses", "", str(error)
    except OrtError as error:
        return "different", "ONNX Runtime does not run it", "", str(error)
    except InvalidModel:  # verify's reader follows offsets that LiteRT ignores
        return "uncompared", "not read", "", ""
    except VerificationError as error:
        kind: Kind = "uncompared" if NO_KERNEL in str(error) else "different"
        return kind, "VerificationError", "", str(error)
    except MemoryError:
        return "uncompared", "memory", "", ""
    except Exception as error:  # raised by a defect of verify itself
        return "bug", f"verify: {type(error).__name__}", _innermost_frame(error), str(error)
    codes = "+".join(sorted({op.code for op in conversion.source.main.operators}))[:80]
    return ("equal", "", "", "") if verification.ok else ("different", "numbers", codes, verification.text)


def _innermost_frame(error: BaseException | None) -> str:
    """Return ``file:line`` of the innermost frame in this project."""
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    project_frames = [
        frame for frame in frames if "onnx_tflite_plugin" in frame.filename or "op_handlers" in frame.filename
    ]
    return (
        f"{Path(project_frames[-1].filename).name}:{project_frames[-1].lineno} {project_frames[-1].name}"
        if project_frames
        else ""
    )


def _limit(extra: int) -> None:
    """Limit the address space to ``extra`` more bytes; disable core files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(answers: TextIO, message: Any) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
