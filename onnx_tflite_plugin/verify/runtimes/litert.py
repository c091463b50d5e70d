"""Sessions of a TFLite model in LiteRT, in this process or in a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.child import ChildInterpreter, LiteRTCrash
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.interpreter import (
    KERNEL_SETS,
    InterpreterConfig,
    LiteRTError,
    LocalInterpreter,
    NoKernel,
    RunTimeout,
    find_unresolved_operator,
    refuses_dtype,
)
from onnx_tflite_plugin.verify.runtimes.packages import import_optional

__all__ = [
    "KERNEL_SETS",
    "LiteRT",
    "LiteRTCrash",
    "LiteRTError",
    "NoKernel",
    "RunTimeout",
    "find_unresolved_operator",
    "refuses_dtype",
    "start_litert",
]

_WIDENED = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8}  # LiteRT's Python API unpacks these


class Backend(Protocol):
    """An interpreter in this process or a child. Each method raises LiteRTError."""

    def run(self, arrays: Sequence[Array]) -> list[Array]: ...

    def allocate(self) -> None: ...

    def shapes(self, arrays: Sequence[Array]) -> dict[int, tuple[int, ...]]: ...

    def tensors(self) -> dict[int, Array]: ...


class LiteRT:
    """Session of a TFLite model in LiteRT, with its variables and resources.

    By default it uses one thread.

    Args:
        model: content or path of the TFLite file.
        kernels: a key of KERNEL_SETS.
        signature: key of the signature to run; None for the main subgraph.
        preserve: keep every tensor for ``tensors()``. Not possible with "xnnpack", which does not fill intermediate tensors.
        known: the structure of the model, if it has been read already.
        threads: number of threads.
        time_limit: seconds of processor time per run, after which RunTimeout is raised.
        isolated: run LiteRT in a child process, and raise LiteRTCrash if the child crashes. Reference kernels crash if an
            assertion fails (softmax of 1,000 equal integers), and all kernels may crash on sizes that they do not check.
            Measurements require False.
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
        time_limit: float | None = None,
        isolated: bool = True,
    ) -> None:
        if kernels not in KERNEL_SETS:
            raise ValueError(f"unknown kernel set {kernels!r}; choose one of {', '.join(KERNEL_SETS)}")
        if preserve and kernels == "xnnpack":
            raise ValueError(
                "XNNPACK does not keep intermediate tensors: preserve them with builtin or reference kernels"
            )
        import_optional("ai_edge_litert.interpreter")
        data = model if isinstance(model, bytes) else model.read_bytes()
        self.kernels = kernels
        self.entry = structure.entry(known or structure.read(data), signature)
        graph = self.entry.subgraph
        if not set(self.entry.outputs) <= set(graph.outputs):
            if kernels == "xnnpack":  # keeps only the outputs of the subgraph
                boundary = ([tensor.index for tensor in side] for side in (self.entry.inputs, self.entry.outputs))
                data, signature = cut_file(data, graph, *boundary), None
            else:
                preserve = True  # otherwise LiteRT reuses the memory of intermediate outputs
        config = InterpreterConfig(
            kernels,
            graph.index,
            inputs=tuple(tensor.index for tensor in self.entry.inputs),
            outputs=tuple(tensor.index for tensor in self.entry.outputs),
            input_names=self.entry.input_names,
            output_names=self.entry.output_names,
            shapes=tuple(tensor.shape for tensor in self.entry.inputs),
            # LiteRT treats the content of handles as addresses of Python objects, and crashes
            readable=tuple(t.index for t in graph.tensors if t.dtype not in HANDLES and not t.is_constant),
            signature=signature if graph.index != 0 else None,  # the interpreter itself runs the main subgraph
            preserve=preserve,
            threads=threads,
            time_limit=time_limit,
        )
        self.backend: Backend = ChildInterpreter(data, config) if isolated else LocalInterpreter(data, config)

    @property
    def interpreter(self) -> Any:
        """Return LiteRT's own interpreter.

        Raises AttributeError if it is in another process.
        """
        if not isinstance(self.backend, LocalInterpreter):
            raise AttributeError("LiteRT runs in another process, so its interpreter is not available here")
        return self.backend.interpreter

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """Run once, and return the outputs in the model's order.

        ``inputs``: input name -> array, or a list of arrays in the model's order.
        """
        return self.backend.run(self._order_inputs(inputs))

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Return a function that sets these inputs, runs once and gets the outputs.

        The function is for measurements: it does not check the inputs, which takes as long as a small model. Requires
        ``isolated=False``, and a previous run on inputs of these shapes.
        """
        if not isinstance(self.backend, LocalInterpreter):
            raise AttributeError("LiteRT runs in another process, so its runs cannot be measured here")
        return self.backend.prepare(self._order_inputs(arrays))

    def allocate(self) -> None:
        """Allocate all tensors at the stored sizes.

        Raises NoKernel for an operator without a kernel.
        """
        self.backend.allocate()

    def shapes(self, inputs: Sequence[Array]) -> dict[int, tuple[int, ...]]:
        """Return tensor index -> shape after a run on these inputs."""
        return self.backend.shapes(self._order_inputs(inputs))

    def tensors(self) -> dict[int, Array]:
        """Return tensor index -> readable computed tensor of the entry's subgraph."""
        return self.backend.tensors()

    def _order_inputs(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        names = self.entry.input_names
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise LiteRTError(
                    f"the model's inputs are {', '.join(names)}, but the given inputs are {', '.join(inputs) or 'none'}"
                )
            inputs = [inputs[name] for name in names]
        if len(inputs) != len(names):
            raise LiteRTError(f"the model has {len(names)} inputs, but {len(inputs)} are given")
        return [
            _encode_text(np.asarray(array, _WIDENED.get(tensor.dtype)))
            for array, tensor in zip(inputs, self.entry.inputs, strict=True)
        ]


def start_litert(
    model: bytes,
    inputs: Sequence[Array],
    *,
    signature: str | None = None,
    known: Model | None = None,
    threads: int = 1,
) -> LiteRT:
    """Return a session in this process after its first run, for measurements.

    The session uses LiteRT's default kernels (XNNPACK) if they run the model, else builtin kernels. Raises LiteRTError if
    neither set runs the model.
    """
    failures = []
    for kernels in ("xnnpack", "builtin"):
        try:
            session = LiteRT(model, kernels, signature=signature, known=known, threads=threads, isolated=False)
            session.run(inputs)
            return session
        except LiteRTError as error:
            failures.append(error)
    raise failures[0]


def _encode_text(array: Array) -> Array:
    """Return a scalar text as bytes, because LiteRT would read the address of a str."""
    if array.shape or array.dtype != object:
        return array
    text = array.item()
    return np.asarray(text.encode() if isinstance(text, str) else text)
