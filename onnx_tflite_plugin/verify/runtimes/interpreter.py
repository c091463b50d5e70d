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

# subgraph.cc: OpPrepare, and of what only TensorFlow has kernels; the reference kernels do not name that.
_UNRESOLVED = re.compile(r"unresolved custom op: (\S+)|TensorFlow op.*Node number \d+ \((\w+)\)", re.DOTALL)


class LiteRTError(VerificationError):
    """LiteRT cannot run the original."""


class RunTimeout(LiteRTError):
    """LiteRT does not come to an end."""


class NoKernel(LiteRTError):
    """LiteRT has no kernel for an operator, in whichever subgraph. ``code``: the operator's."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"LiteRT has no kernel for {code}")


def find_unresolved_operator(text: str) -> str:
    """Return the operator that LiteRT's message says it has no kernel of; empty for another message."""
    match = _UNRESOLVED.search(text)
    return "" if match is None else CUSTOM + (match[1] or match[2]).rstrip(".")


@dataclass(frozen=True)
class Plan:
    """All that an interpreter needs to know of a model, as plain numbers and names that can be sent to another process.

    ``inputs`` and ``outputs``: tensors of ``subgraph`` by index. ``shapes``: the stored ones of the inputs. ``readable``:
    tensors that may be read after a run. ``signature``: the one that runs, where the main subgraph does not.
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
    """One interpreter; variables and resources live as long as it does. ``silent``: what LiteRT logs is not shown."""

    def __init__(self, data: bytes, plan: Plan, *, silent: bool = True) -> None:
        self.plan = plan
        self._quiet = silence_stderr if silent else contextlib.nullcontext
        package = import_optional("ai_edge_litert.interpreter")
        with self._errors("load the model"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.interpreter = package.Interpreter(
                model_content=data,
                num_threads=plan.threads,
                experimental_op_resolver_type=package.OpResolverType[KERNEL_SETS[plan.kernels]],
                experimental_preserve_all_tensors=plan.preserve,
            )
            signature = plan.signature
            self._runner = None if signature is None else self.interpreter.get_signature_runner(signature)
        self._shapes: tuple[tuple[int, ...], ...] | None = None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Invoke once, with inputs in the plan's order; return the outputs in its order."""
        with self._errors("run the model"):
            if self._runner is not None:
                named = dict(zip(self.plan.input_names, arrays, strict=True))
                outputs = self._call_in_time(partial(self._runner, **named))
                return [np.asarray(outputs[name]) for name in self.plan.output_names]
            self._allocate(arrays)
            for index, array in zip(self.plan.inputs, arrays, strict=True):
                self.interpreter.set_tensor(index, array)
            self._call_in_time(self.interpreter.invoke)
            return [np.asarray(self.interpreter.get_tensor(index)) for index in self.plan.outputs]

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Return a function that sets these inputs, invokes and gets the outputs, without checks; they ran before."""
        interpreter, outputs = self.interpreter, self.plan.outputs
        if self._runner is not None:
            return partial(self._runner, **dict(zip(self.plan.input_names, arrays, strict=True)))
        given = [*zip(self.plan.inputs, arrays, strict=True)]

        def invoke() -> Any:
            for index, array in given:
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in outputs]

        return invoke

    def allocate(self) -> None:
        """Allocate all tensors at the stored sizes. Raises NoKernel for an operator without kernel."""
        with self._errors("load the model"):
            self.interpreter.allocate_tensors()

    def shapes(self, arrays: Sequence[Array]) -> dict[int, tuple[int, ...]]:
        """Return the shapes of the subgraph's tensors after a run on these inputs."""
        self.run(arrays)
        details = self.interpreter.get_tensor_details(self.plan.subgraph)
        return {int(one["index"]): tuple(int(size) for size in one["shape"]) for one in details}

    def tensors(self) -> dict[int, Array]:
        """Return every readable tensor by index, as the last run left it."""
        kept = {}
        with self._quiet():
            for index in self.plan.readable:
                try:
                    kept[index] = np.asarray(self.interpreter.get_tensor(index, self.plan.subgraph))
                except (ValueError, RuntimeError):  # tensors that were never allocated
                    continue
        return kept

    def _allocate(self, arrays: Sequence[Array]) -> None:
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._shapes:
            return
        for index, shape, now in zip(self.plan.inputs, shapes, self._shapes or self.plan.shapes, strict=True):
            if shape != now:
                self.interpreter.resize_tensor_input(index, shape)
        self.interpreter.allocate_tensors()
        self._shapes = shapes

    def _call_in_time(self, call: Callable[[], Any]) -> Any:
        """Return the results of LiteRT. Raises RunTimeout if it runs for too long; nothing can stop it before the process ends."""
        time_limit = self.plan.time_limit
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
                raise RunTimeout(f"LiteRT has run for {time_limit:.0f} s on these inputs: it may never end")
        if errors:
            raise errors[0]
        return results[0]

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Convert exceptions of LiteRT into LiteRTError."""
        try:
            with self._quiet():
                yield
        except RuntimeError as error:
            if code := find_unresolved_operator(str(error)):
                raise NoKernel(code) from error
            raise self._failure(what, error) from error
        except (ValueError, TypeError, OSError, IndexError, OverflowError) as error:
            raise self._failure(what, error) from error

    def _failure(self, what: str, error: Exception) -> LiteRTError:
        return LiteRTError(f"LiteRT ({self.plan.kernels} kernels) cannot {what}: {' '.join(str(error).split())}")
