"""Runs of both models on the same inputs, and comparison of the outputs.

``verify`` does this with a user's model, ``conformance`` with the model of a case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import MismatchedModels, VerificationError
from onnx_tflite_plugin.graph.decoder import NEXT
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source.model import Array, Model, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.rounding import inherited_step
from onnx_tflite_plugin.verify.criteria import ONE_STEP, STEPPED, Tolerance
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored, is_float, is_integer, onnx_operand
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError, NoKernel, RunTimeout
from onnx_tflite_plugin.verify.runtimes.structure import Entry, producers
from onnx_tflite_plugin.verify.runtimes.substitution import PartitionedLiteRT, Substitutes

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Run = Sequence[Array]
"""Input or output arrays of one invocation, in the order of the TFLite model."""

TIME_LIMIT = 20.0  # seconds of processor time that a run with loops may take
_MAX_SLOWDOWN = 200  # factor by which a kernel set may be slower than the one before it
_INTEGER_DTYPES = {2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64"}  # by onnx.TensorProto.DataType
KERNELS = ("xnnpack", "builtin", "reference")


def time_limit_after(seconds: float) -> float:
    """Return the time limit of a run with the next kernel set, in seconds.

    ``seconds``: the time of a run with the first kernel set.
    """
    return max(TIME_LIMIT, _MAX_SLOWDOWN * seconds)


class Session(Protocol):
    """Protocol of a session of the ONNX model. ``OnnxRuntime`` implements it."""

    @property
    def inputs(self) -> Sequence[ValueInfoProto]: ...

    @property
    def outputs(self) -> Sequence[ValueInfoProto]: ...

    @property
    def tensor_values(self) -> Sequence[TensorValue]: ...

    def run(self, inputs: Mapping[str, Array], /) -> Sequence[Array]: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """Runs of one entry of a TFLite model, and their comparison with ONNX Runtime.

    ``entry``: the main graph or a signature. ``progress`` is called when a run begins. ``substitutes``: replacements of
    operators that LiteRT has no kernel for.
    """

    data: bytes
    model: Model
    entry: Entry
    tolerance: Tolerance
    signature: str | None = None
    progress: Progress = lambda stage: None
    substitutes: Substitutes = field(default_factory=Substitutes)

    def litert_session(
        self, kernels: str, *, preserve: bool = False, time_limit: float | None = None
    ) -> LiteRT | PartitionedLiteRT:
        """Return a session of the original model with one of LiteRT's kernel sets.

        ``preserve``: keep all intermediate tensors. ``time_limit``: seconds per run; models with loops have one by
        default. Raises LiteRTError if the model does not load.
        """
        entries = {self.model.main.index, *(signature.subgraph for signature in self.model.signatures)}
        if time_limit is None and any(graph.index not in entries for graph in self.model.subgraphs):
            time_limit = TIME_LIMIT
        if self.substitutes.pack_kernels or self.substitutes.from_onnx:
            return PartitionedLiteRT(self.data, kernels, self.entry, self.substitutes, preserve=preserve)
        return LiteRT(
            self.data, kernels, signature=self.signature, preserve=preserve, known=self.model, time_limit=time_limit
        )

    def litert_outputs(
        self, kernels: str, runs: Sequence[Run], *, resets_states: bool = False, time_limit: float | None = None
    ) -> list[Run]:
        """Return the outputs of each run with one of LiteRT's kernel sets.

        ``resets_states``: each run has its own interpreter, so that states are reset. Raises LiteRTError if LiteRT
        refuses the model or its inputs.
        """
        return self._time_runs(kernels, runs, resets_states=resets_states, time_limit=time_limit)[0]

    def _time_runs(
        self, kernels: str, runs: Sequence[Run], *, resets_states: bool, time_limit: float | None
    ) -> tuple[list[Run], float]:
        """Return the outputs of each run, and the seconds that all runs took."""
        outputs: list[Run] = []
        seconds = 0.0
        session = None
        for arrays in self._report_runs(runs, f"LiteRT ({kernels})"):
            if session is None or resets_states:
                session = self.litert_session(kernels, time_limit=time_limit)
            start = time.perf_counter()
            outputs.append(session.run(arrays))
            seconds += time.perf_counter() - start
        return outputs, seconds

    def reference_outputs(
        self, runs: Sequence[Run], *, resets_states: bool = False, first_only: bool = False
    ) -> dict[str, list[Run]]:
        """Return kernel set -> outputs of each run.

        Reference kernels, about 50x slower, run only if no other kernel set runs the model. A set that takes far longer
        than XNNPACK is left out: for a network of 0.1 s per run, another set took over 10 minutes. ``first_only``: use
        only the first set that runs. Raises LiteRTError, with the message of each set, if no set runs.
        """
        expected: dict[str, list[Run]] = {}
        failures: dict[str, str] = {}
        time_limit = None
        for kernels in KERNELS:
            if expected and (first_only or kernels == "reference"):
                break
            try:
                expected[kernels], seconds = self._time_runs(
                    kernels, runs, resets_states=resets_states, time_limit=time_limit
                )
                time_limit = time_limit_after(seconds / max(len(runs), 1))
            except NoKernel:
                raise
            except RunTimeout:
                if not expected:
                    raise
            except LiteRTError as error:
                failures[kernels] = str(error)
        if not expected:
            raise LiteRTError(_merge_failures(failures))
        return expected

    def preparation_failure(self) -> str:
        """Return LiteRT's reason if no kernel set can prepare the file; empty if one can.

        The inputs are not set, so the failure does not depend on them.
        """
        failures: dict[str, str] = {}
        for kernels in KERNELS:
            try:
                self.litert_session(kernels).allocate()
                return ""
            except LiteRTError as error:
                failures[kernels] = str(error)
        return _merge_failures(failures).removeprefix("LiteRT cannot load the model: ")

    def onnx_outputs(self, session: Session, runs: Sequence[Run]) -> list[list[Array]]:
        """Return each run's ONNX outputs in order, layout and dtypes of the TFLite model."""
        interface = MatchedInterface(self.entry, session)
        return [interface.run(session, arrays) for arrays in self._report_runs(runs, "ONNX Runtime")]

    def _report_runs(self, runs: Sequence[Run], runtime: str) -> Iterator[Run]:
        for k, arrays in enumerate(runs, 1):
            self.progress(f"{runtime}, run {k} of {len(runs)}")
            yield arrays

    def smallest_error(
        self, tensor: Tensor, producers: Mapping[int, Operator], tolerance: Tolerance | None = None
    ) -> float:
        """Return the error of a float tensor due to quantized tensors upstream of it."""
        return inherited_step(
            tensor, producers, tolerance or self.tolerance, {graph_input.index for graph_input in self.entry.inputs}
        )

    def compare_outputs(self, actual: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> tuple[Comparison, ...]:
        """Return one comparison per output, over all runs.

        Outputs that the ONNX model itself computed in place of LiteRT are left out.
        """
        producer_by_tensor = producers(self.entry.subgraph)
        return tuple(
            compare(
                name,
                [arrays[k] for arrays in actual],
                {kernels: [arrays[k] for arrays in runs] for kernels, runs in expected.items()},
                self.tolerance,
                floor=self.smallest_error(tensor, producer_by_tensor),
                step=self.smallest_error(tensor, producer_by_tensor, ONE_STEP),
                zero_point=_zero_point(tensor),
            )
            for k, (tensor, name) in enumerate(zip(self.entry.outputs, self.entry.output_names, strict=True))
            if tensor.index not in self.substitutes.tensors
        )


def mismatched_models(fact: str) -> MismatchedModels:
    """Return the error for a difference that a conversion never causes."""
    return MismatchedModels(f"{fact}; the ONNX model was probably converted from another file")


def _dtype_mismatch(info: ValueInfoProto, tensor: Tensor, dtype: str) -> MismatchedModels:
    return mismatched_models(f"{info.name!r} is {tensor.dtype} in the TFLite model, but {dtype} in the ONNX model")


def _zero_point(tensor: Tensor) -> int:
    """Return the zero point of a tensor that has one; otherwise 0."""
    quantization = tensor.quantization
    return quantization.zero_point[0] if isinstance(quantization, Quantization) and quantization.zero_point else 0


def _merge_failures(failures: Mapping[str, str]) -> str:
    """Return the message of each kernel set, or one message if all messages are equal."""
    reasons = {text.replace(f"LiteRT ({kernels} kernels)", "LiteRT", 1) for kernels, text in failures.items()}
    return "\n".join(reasons if len(reasons) == 1 else dict.fromkeys(failures.values()))


class MatchedInterface:
    """Inputs and outputs of an ONNX model, in the order of the TFLite model.

    Raises MismatchedModels if the two models differ in the number, dtype or rank of inputs and outputs.
    """

    def __init__(self, entry: Entry, session: Session) -> None:
        self.entry = entry
        self.values = {value.name: value for value in session.tensor_values}
        self.inputs = match_values("input", entry.input_names, session.inputs)
        self.outputs = match_values("output", entry.output_names, session.outputs)
        for info, tensor in zip((*self.inputs, *self.outputs), (*entry.inputs, *entry.outputs), strict=True):
            may_be_integer = tensor in entry.outputs and tensor.quantization is not None  # LiteRT may compute integers
            if tensor.dtype.startswith("float") and is_integer(info) and not may_be_integer:
                dtype = _INTEGER_DTYPES[info.type.tensor_type.elem_type]
                raise _dtype_mismatch(info, tensor, dtype)
        for info, tensor in zip(self.inputs, entry.inputs, strict=True):
            self._check_integers(info, tensor)
            self._check_rank(info, tensor)
        self._output_names = [info.name for info in session.outputs]

    def _check_integers(self, info: ValueInfoProto, tensor: Tensor) -> None:
        """Raise MismatchedModels if no conversion of this model has this integer dtype."""
        value, dtype = self.values.get(info.name), _INTEGER_DTYPES.get(info.type.tensor_type.elem_type)
        if dtype is None or tensor.dtype not in _INTEGER_DTYPES.values() or (value is not None and value.shift):
            return
        if dtype != tensor.dtype:
            raise _dtype_mismatch(info, tensor, dtype)

    def _check_rank(self, info: ValueInfoProto, tensor: Tensor) -> None:
        """Raise MismatchedModels if no conversion of this model has this input rank."""
        value = self.values.get(info.name)
        if not tensor.shape:  # old converters stored [] for any shape; LiteRT accepts any rank for such an input
            return
        if not info.type.tensor_type.HasField("shape") or tensor.dtype.startswith("complex"):
            return
        rank = len(info.type.tensor_type.shape.dim)
        expected_rank = len(tensor.dims) if value is None or value.order is None else len(value.order)
        if rank != expected_rank or (value is not None and any(axis >= len(tensor.dims) for axis in value.order or ())):
            raise mismatched_models(
                f"{info.name!r} has {rank} axes in the ONNX model, but {tensor.name!r} has {len(tensor.dims)} in the TFLite model"
            )

    def feeds(self, arrays: Run) -> dict[str, Array]:
        """Return the ONNX model's feeds by name for inputs in the TFLite model's order."""
        feeds = {}
        for array, info, tensor in zip(arrays, self.inputs, self.entry.inputs, strict=True):
            feed = onnx_operand(tensor, array, is_float=is_float(info))
            value = self.values.get(info.name)
            feeds[info.name] = feed if value is None else value.apply(feed)
        return feeds

    def run(self, session: Session, arrays: Run) -> list[Array]:
        """Run the model once, and return outputs in the TFLite order, layout and dtypes."""
        outputs = dict(zip(self._output_names, session.run(self.feeds(arrays)), strict=True))
        results = []
        for info, tensor in zip(self.outputs, self.entry.outputs, strict=True):
            array, value = outputs[info.name], self.values.get(info.name)
            _check_sizes(info, array, tensor)
            restored = None if value is None else value.restore(array, dtype_to_restore(tensor, array))
            results.append(as_stored(tensor, array if restored is None else restored))
        return results


def _check_sizes(info: ValueInfoProto, array: Array, tensor: Tensor) -> None:
    """Raise VerificationError if an output does not have the declared shape.

    ONNX Runtime only warns about such shapes. A shape that is copied from the TFLite file is not checked, because it
    may be wrong: for example if a runtime operand determines the shape.
    """
    declared_type = info.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else "?" for dim in declared_type.shape.dim]
    fits = len(sizes) == array.ndim and all(size in ("?", n) for size, n in zip(sizes, array.shape, strict=True))
    is_copied_from_file = len(sizes) == tensor.rank and {"?", *tensor.shape}.issuperset(sizes)
    if declared_type.HasField("shape") and not fits and not is_copied_from_file:
        declared_shape = ", ".join(map(str, sizes))
        raise VerificationError(
            f"output {info.name!r} has shape {list(array.shape)}, but the ONNX model declares [{declared_shape}]"
        )


def match_values(side: str, names: Sequence[str], infos: Sequence[ValueInfoProto]) -> list[ValueInfoProto]:
    """Return the ONNX model's inputs or outputs in the TFLite model's order.

    Values are matched by name if all names agree. KV caches among the outputs are matched by the names of their inputs.
    Otherwise values are matched by position. ``side``: "input" or "output". Raises MismatchedModels if their number
    differs, and VerificationError if outputs have another order.
    """
    if len(names) != len(infos):
        onnx_names = ", ".join(info.name for info in infos)
        raise mismatched_models(
            f"the TFLite model has {plural(len(names), side)} ({', '.join(names)}), "
            f"but the ONNX model has {len(infos)} ({onnx_names})"
        )
    by_name = {info.name: info for info in infos}
    if set(by_name) != set(names):
        caches = {info.name.removesuffix(NEXT): info for info in infos}
        return [caches[name] for name in names] if set(caches) == set(names) else list(infos)
    if side == "output" and [*by_name] != [*names]:
        raise VerificationError(
            f"the outputs of the ONNX model have the order {', '.join(by_name)} instead of {', '.join(names)}"
        )
    return [by_name[name] for name in names]


def dtype_to_restore(tensor: Tensor, array: Array) -> np.dtype[np.generic]:
    """Return the dtype of a restored value.

    It is the tensor's dtype for small integers, otherwise the array's.
    """
    return np.dtype(tensor.dtype) if tensor.dtype in STEPPED else array.dtype
