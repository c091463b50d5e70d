"""LiteRT's interpreter in this process, with one of its kernel sets."""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import numpy as np

from onnx_tflite_plugin.codes import CUSTOM
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.packages import import_optional, silence_stderr

KERNEL_SETS: Mapping[str, str] = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}

_KERNEL_NAMES = {"xnnpack": "XNNPACK"}

# subgraph.cc: the messages of OpPrepare for custom operators, and for operators that only TensorFlow has kernels for. With the
# reference kernels, the message does not name TensorFlow operators.
_UNRESOLVED = re.compile(r"unresolved custom op: (\S+)|TensorFlow op.*Node number \d+ \((\w+)\)", re.DOTALL)

_UNSUPPORTED_DTYPE = re.compile(
    r"\btypes?\b[^.]{0,60}\b(un|not (\w+ )?)supported|\bunsupported (\w+ )?types?\b", re.IGNORECASE
)


class LiteRTError(VerificationError):
    """LiteRT cannot run the TFLite model."""


class RunTimeout(LiteRTError):
    """A run in LiteRT exceeded its time limit, for example in an endless loop."""


class NoKernel(LiteRTError):
    """LiteRT has no kernel for an operator. ``code``: the code of the operator."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"LiteRT has no kernel for {code}")


def describe_kernels(kernel_sets: Sequence[str]) -> str:
    """Return the names of kernel sets as text: ``XNNPACK and builtin kernels``."""
    return f"{' and '.join(_KERNEL_NAMES.get(name, name) for name in kernel_sets)} kernels"


def find_unresolved_operator(text: str) -> str:
    """Return the code of the operator for which LiteRT reports no kernel.

    Return an empty text for other messages.
    """
    match = _UNRESOLVED.search(text)
    return "" if match is None else CUSTOM + (match[1] or match[2]).rstrip(".")


def refuses_dtype(text: str) -> bool:
    """True if the message reports an unsupported dtype.

    A run with other inputs then fails too.
    """
    return _UNSUPPORTED_DTYPE.search(text) is not None


@dataclass(frozen=True)
class InterpreterConfig:
    """Configuration of an interpreter, which can be sent to another process.

    ``inputs`` and ``outputs``: indices of tensors of ``subgraph``. ``shapes``: stored shapes of the inputs. ``readable``:
    tensors that may be read after a run. ``signature``: key of the signature to run; None for the main subgraph.
    ``preserve``: keep intermediate tensors. ``time_limit``: seconds of processor time per run.
    """

    kernels: str
    subgraph: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    readable: tuple[int, ...]
    signature: str | None = None
    preserve: bool = False
    threads: int = 1
    time_limit: float | None = None


class LocalInterpreter:
    """One interpreter in this process, with its variables and resources.

    ``silent``: suppress LiteRT's log.
    """

    def __init__(self, data: bytes, config: InterpreterConfig, *, silent: bool = True) -> None:
        self.config = config
        self._log_filter = silence_stderr if silent else contextlib.nullcontext
        package = import_optional("ai_edge_litert.interpreter")
        with self._convert_errors("load the model"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.interpreter = package.Interpreter(
                model_content=data,
                num_threads=config.threads,
                experimental_op_resolver_type=package.OpResolverType[KERNEL_SETS[config.kernels]],
                experimental_preserve_all_tensors=config.preserve,
            )
            signature = config.signature
            self._runner = None if signature is None else self.interpreter.get_signature_runner(signature)
        self._shapes: tuple[tuple[int, ...], ...] | None = None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run once, with inputs and outputs in the configured order."""
        with self._convert_errors("run the model"):
            if self._runner is not None:
                feeds = dict(zip(self.config.input_names, arrays, strict=True))
                outputs = self._call_with_limit(partial(self._runner, **feeds))
                return [np.asarray(outputs[name]) for name in self.config.output_names]
            self._allocate(arrays)
            for index, array in zip(self.config.inputs, arrays, strict=True):
                self.interpreter.set_tensor(index, array)
            self._call_with_limit(self.interpreter.invoke)
            return [np.asarray(self.interpreter.get_tensor(index)) for index in self.config.outputs]

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Return a function that sets these inputs, runs once, and gets the outputs.

        The function checks nothing. It requires a previous run on inputs of these shapes.
        """
        interpreter, outputs = self.interpreter, self.config.outputs
        if self._runner is not None:
            return partial(self._runner, **dict(zip(self.config.input_names, arrays, strict=True)))
        feeds = [*zip(self.config.inputs, arrays, strict=True)]

        def invoke() -> Any:
            for index, array in feeds:
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in outputs]

        return invoke

    def allocate(self) -> None:
        """Allocate all tensors at the stored sizes.

        Raises NoKernel for an operator without a kernel.
        """
        with self._convert_errors("load the model"):
            self.interpreter.allocate_tensors()

    def shapes(self, arrays: Sequence[Array]) -> dict[int, tuple[int, ...]]:
        """Return the shapes of the subgraph's tensors after a run on these inputs."""
        self.run(arrays)
        details = self.interpreter.get_tensor_details(self.config.subgraph)
        return {int(detail["index"]): tuple(int(size) for size in detail["shape"]) for detail in details}

    def tensors(self) -> dict[int, Array]:
        """Return tensor index -> value after the last run, for readable tensors."""
        tensors = {}
        with self._log_filter():
            for index in self.config.readable:
                try:
                    tensors[index] = np.asarray(self.interpreter.get_tensor(index, self.config.subgraph))
                except (ValueError, RuntimeError):  # tensors that were never allocated
                    continue
        return tensors

    def _allocate(self, arrays: Sequence[Array]) -> None:
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._shapes:
            return
        for index, shape, current_shape in zip(
            self.config.inputs, shapes, self._shapes or self.config.shapes, strict=True
        ):
            if shape != current_shape:
                self.interpreter.resize_tensor_input(index, shape)
        self.interpreter.allocate_tensors()
        self._shapes = shapes

    def _call_with_limit(self, call: Callable[[], Any]) -> Any:
        """Return the results of ``call``. Raises RunTimeout beyond the time limit.

        The call cannot be interrupted: it continues in a daemon thread until the process exits.
        """
        time_limit = self.config.time_limit
        if time_limit is None:
            return call()
        results: list[Any] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                results.append(call())
            except Exception as error:
                errors.append(error)

        thread, start = Thread(target=run, daemon=True), time.process_time()
        thread.start()
        while thread.is_alive():
            thread.join(min(1, time_limit))
            if thread.is_alive() and time.process_time() - start > time_limit:
                raise RunTimeout(f"LiteRT has run for {time_limit:.0f} s on these inputs; the run may never end")
        if errors:
            raise errors[0]
        return results[0]

    @contextlib.contextmanager
    def _convert_errors(self, action: str) -> Iterator[None]:
        """Convert exceptions of LiteRT into LiteRTError.

        ``action``: the action that failed, for the message.
        """
        try:
            with self._log_filter():
                yield
        except RuntimeError as error:
            if code := find_unresolved_operator(str(error)):
                raise NoKernel(code) from error
            raise self._litert_error(action, error) from error
        except (ValueError, TypeError, OSError, IndexError, OverflowError) as error:
            raise self._litert_error(action, error) from error

    def _litert_error(self, action: str, error: Exception) -> LiteRTError:
        return LiteRTError(f"LiteRT ({self.config.kernels} kernels) cannot {action}: {_format_message(str(error))}")


def _format_message(text: str) -> str:
    """Return a message of LiteRT in one line, with a space between sentences."""
    return " ".join(re.sub(r"(?<=[.)])Node number", " Node number", text).split()).removesuffix(".")
