"""The original model in LiteRT, with one of its kernel sets."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from onnx_tflite_plugin.codes import CUSTOM
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.packages import optional, quiet
from onnx_tflite_plugin.verify.runtimes.part import cut_file

KERNEL_SETS: Mapping[str, str] = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
_WIDENED = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8}  # LiteRT's Python API unpacks these


# subgraph.cc: OpPrepare, and of what only TensorFlow has kernels; the reference kernels do not name that.
_UNRESOLVED = re.compile(r"unresolved custom op: (\S+)|TensorFlow op.*Node number \d+ \((\w+)\)", re.DOTALL)


class LiteRTError(VerificationError):
    """LiteRT cannot run the original."""


class Endless(LiteRTError):
    """LiteRT does not come to an end."""


class NoKernel(LiteRTError):
    """LiteRT has no kernel of an operator, in whichever subgraph. ``code``: the operator's."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"LiteRT has no kernel of {code}")


def unresolved(text: str) -> str:
    """The operator that LiteRT says it has no kernel of; empty where it says something else."""
    match = _UNRESOLVED.search(text)
    return "" if match is None else CUSTOM + (match[1] or match[2]).rstrip(".")


class LiteRT:
    """One ``interpreter``, by default with one thread; variables and resources live as long as it does.

    ``preserve`` keeps every tensor for ``tensors()``; XNNPACK's kernels fill none of those inside it, so it is refused
    with "xnnpack". ``patience``: seconds of processor time after which a run is given up.
    """

    def __init__(
        self,
        model: bytes | Path,
        kernels: str = "xnnpack",
        *,
        signature: str | None = None,
        preserve: bool = False,
        known: Model | None = None,
        threads: int = 1,
        patience: float | None = None,
    ) -> None:
        if kernels not in KERNEL_SETS:
            raise ValueError(f"no kernel set {kernels!r}; there are {', '.join(KERNEL_SETS)}")
        if preserve and kernels == "xnnpack":
            raise ValueError(
                "XNNPACK does not keep intermediate tensors: preserve them with builtin or reference kernels"
            )
        package = optional("ai_edge_litert.interpreter")
        data = model if isinstance(model, bytes) else model.read_bytes()
        self.kernels = kernels
        described = known or structure.read(data)
        self.entry = structure.entry(described, signature)
        self._patience = patience
        graph = self.entry.subgraph
        if not set(self.entry.outputs) <= set(graph.outputs):
            if kernels == "xnnpack":  # keeps only what the subgraph returns
                ends = ([tensor.index for tensor in side] for side in (self.entry.inputs, self.entry.outputs))
                data, signature = cut_file(data, graph, *ends), None
            else:
                preserve = True  # else LiteRT reuses their memory before they are read
        with self._running("load the model"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.interpreter = package.Interpreter(
                model_content=data,
                num_threads=threads,
                experimental_op_resolver_type=package.OpResolverType[KERNEL_SETS[kernels]],
                experimental_preserve_all_tensors=preserve,
            )
            runs = signature is not None and graph.index != 0  # the interpreter itself runs the main one
            self._runner = self.interpreter.get_signature_runner(signature) if runs else None
        self._shapes: tuple[tuple[int, ...], ...] | None = None

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Invoke once, with inputs by name or in the model's order; returns the outputs in its order."""
        arrays = [_taken(array) for array in self._ordered(inputs)]
        with self._running("run the model"):
            if self._runner is not None:
                named = dict(zip(self.entry.input_names, arrays, strict=True))
                outputs = self._ended(partial(self._runner, **named))
                return [np.asarray(outputs[name]) for name in self.entry.output_names]
            self._allocate(arrays)
            for tensor, array in zip(self.entry.inputs, arrays, strict=True):
                self.interpreter.set_tensor(tensor.index, array)
            self._ended(self.interpreter.invoke)
            return [np.asarray(self.interpreter.get_tensor(tensor.index)) for tensor in self.entry.outputs]

    def _ended(self, call: Callable[[], Any]) -> Any:
        """What LiteRT returns. Raises Endless where it has run for too long, which nothing can stop before the process ends."""
        if self._patience is None:
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
            thread.join(min(1, self._patience))
            if thread.is_alive() and time.process_time() - start > self._patience:
                raise Endless(f"LiteRT has run for {self._patience:.0f} s on these inputs: it may never end")
        if errors:
            raise errors[0]
        return results[0]

    def tensors(self) -> dict[int, Array]:
        """Every readable tensor of the entry's subgraph by index, as the last run left it."""
        graph = self.entry.subgraph
        kept = {}
        with quiet():
            for tensor in graph.tensors:
                if tensor.dtype in HANDLES:  # LiteRT takes what they hold for addresses of Python objects, and crashes
                    continue
                try:
                    kept[tensor.index] = np.asarray(self.interpreter.get_tensor(tensor.index, graph.index))
                except (ValueError, RuntimeError):  # tensors that were never allocated
                    continue
        return kept

    def _allocate(self, arrays: Sequence[Array]) -> None:
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._shapes:
            return
        current = self._shapes or tuple(tensor.shape for tensor in self.entry.inputs)
        for tensor, shape, now in zip(self.entry.inputs, shapes, current, strict=True):
            if shape != now:
                self.interpreter.resize_tensor_input(tensor.index, shape)
        self.interpreter.allocate_tensors()
        self._shapes = shapes

    def _ordered(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        names = self.entry.input_names
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise LiteRTError(f"the model's inputs are {', '.join(names)}; given {', '.join(inputs) or 'none'}")
            inputs = [inputs[name] for name in names]
        if len(inputs) != len(names):
            raise LiteRTError(f"the model has {len(names)} inputs; given {len(inputs)}")
        return [
            np.asarray(array, _WIDENED.get(tensor.dtype))
            for array, tensor in zip(inputs, self.entry.inputs, strict=True)
        ]

    def _running(self, what: str) -> _Running:
        return _Running(f"LiteRT ({self.kernels} kernels) cannot {what}")


class _Running:
    """Silences LiteRT and turns what it raises into a LiteRTError."""

    def __init__(self, failure: str) -> None:
        self._failure = failure
        self._quiet = quiet()

    def __enter__(self) -> None:
        self._quiet.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._quiet.__exit__(None, None, None)
        if isinstance(error, RuntimeError) and (code := unresolved(str(error))):
            raise NoKernel(code) from error
        if isinstance(error, ValueError | RuntimeError | TypeError | OSError | IndexError | OverflowError):
            raise LiteRTError(f"{self._failure}: {' '.join(str(error).split())}") from error


def started(
    model: bytes,
    inputs: Sequence[Array],
    *,
    signature: str | None = None,
    known: Model | None = None,
    threads: int = 1,
) -> LiteRT:
    """LiteRT after a first run, with the kernels that it takes by default where they run the model.

    Raises LiteRTError where neither those nor the builtin ones do.
    """
    failures = []
    for kernels in ("xnnpack", "builtin"):
        try:
            session = LiteRT(model, kernels, signature=signature, known=known, threads=threads)
            session.run(inputs)
            return session
        except LiteRTError as error:
            failures.append(error)
    raise failures[0]


def _taken(array: Array) -> Array:
    """A text alone as bytes: of an object LiteRT takes the address. An empty one it takes for a zero byte."""
    if array.shape or array.dtype != object:
        return array
    text = array.item()
    return np.asarray(text.encode() if isinstance(text, str) else text)
