"""Where a converted model parts from LiteRT: the first tensor, in execution order, outside its tolerance."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Model, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run, Trial, paired, restored_dtype
from onnx_tflite_plugin.verify.runtimes.around import Around
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored
from onnx_tflite_plugin.verify.runtimes.litert import Crashed, LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.part import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import producers

if TYPE_CHECKING:
    from onnx import ModelProto

_SLOW = 1.0  # seconds a run: beyond it the reference kernels, some 50 times slower, are not asked


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first tensor, in execution order, that is outside its tolerance: where to look."""

    tensor: Tensor
    operator: Operator
    value: str
    comparison: Comparison

    @property
    def text(self) -> str:
        where = f"operator {self.operator.index} {self.operator.code}"
        value = "" if self.value == self.tensor.name else f" (ONNX value {self.value!r})"
        return f"tensor {self.tensor} of {where}{value}: {self.comparison.text}"


class Search:
    """Looks for the divergence of one ONNX model. ``fresh``: it carries no states, so LiteRT forgets its own every run."""

    def __init__(self, trial: Trial, onnx: ModelProto | bytes | Path, session: OnnxRuntime, *, fresh: bool) -> None:
        self.trial, self.onnx, self.session, self.fresh = trial, onnx, session, fresh
        self.producers = producers(trial.entry.subgraph)
        self.values: dict[int, list[TensorValue]] = {}
        for value in session.tensor_values:
            if self._comparable(value):
                self.values.setdefault(value.tensor, []).append(value)

    def divergence(
        self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]
    ) -> tuple[Divergence | None, tuple[str, ...]]:
        """The first tensor outside its tolerance, in the first run that has one; what is to say where there is none.

        ``expected``: the outputs of each run by each set of kernels.
        """
        if not self.values:
            return None, ("the ONNX model does not say which tensors its values hold: no tensor to point at",)
        try:
            divergence, compared = self._first(runs)
            return divergence, () if divergence is not None else (self._unexplained(runs, expected, compared),)
        except (LiteRTError, OrtError) as error:
            return None, (f"the first tensor outside its tolerance cannot be found: {error}",)

    def _unexplained(self, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]], compared: int) -> str:
        """What may be the reason where no single tensor is: shown by running without it."""
        plain = self.trial.actual(OnnxRuntime(self.onnx, optimizes=False), runs)
        if all(comparison.ok for comparison in self.trial.compared(plain, expected)):
            return "without its graph optimizations ONNX Runtime agrees: one of its fusions makes the difference"
        if not compared:
            return "no tensor in between could be compared: is the ONNX model a conversion of this file?"
        return f"the {compared} tensors in between that could be compared agree; the outputs do not"

    def output_values(self) -> dict[str, str]:
        """Return the ONNX value of each output by the output's name, where it says that it holds the output's tensor."""
        entry, values = self.trial.entry, {value.name: value for values in self.values.values() for value in values}
        infos = paired("output", entry.output_names, self.session.outputs)
        return {
            name: info.name
            for name, tensor, info in zip(entry.output_names, entry.outputs, infos, strict=True)
            if info.name in values and values[info.name].tensor == tensor.index
        }

    def stored(self, tensor: Tensor) -> str:
        """The first value that holds a tensor as the file stores it; empty where none does."""
        return next((value.name for value in self.values.get(tensor.index, ()) if value.form == "stored"), "")

    def part(self, inputs: Sequence[Tensor], output: Tensor, value: str) -> tuple[bytes, ModelProto] | None:
        """Both models from ``inputs`` to ``output``, which ``value`` holds; ``None`` where the ONNX model has no such part."""
        part = extract_submodel(self.session.proto, [self.stored(tensor) for tensor in inputs], [value])
        whole = None if part is None else self.session.loaded(part)
        if whole is None:
            return None
        try:
            indices = [tensor.index for tensor in inputs]
            return cut_file(self.trial.data, self.trial.entry.subgraph, indices, [output.index]), whole
        except InvalidModel:  # of more than 2 GB
            return None

    def _comparable(self, value: TensorValue) -> bool:
        """Whether a value holds what LiteRT's tensor holds: the stored integers, or floats on both sides."""
        graph = self.trial.entry.subgraph
        if value.subgraph != graph.index or not 0 <= value.tensor < len(graph.tensors):
            return False
        return value.form == "stored" or graph.tensors[value.tensor].quantization is None

    def _first(self, runs: Sequence[Run]) -> tuple[Divergence | None, int]:
        """The first tensor outside its tolerance, and how many were compared."""
        compared = 0
        for comparison, value in self.comparisons(runs):
            compared += 1
            if not comparison.ok:
                tensor = self.trial.entry.subgraph.tensors[value.tensor]
                return Divergence(tensor, self.producers[tensor.index], value.name, comparison), compared
        return None, compared

    def comparisons(self, runs: Sequence[Run]) -> Iterator[tuple[Comparison, TensorValue]]:
        """Every tensor that both runtimes keep, run by run in execution order.

        Raises LiteRTError or OrtError where a model that keeps them does not run.
        """
        kept = [value.name for values in self.values.values() for value in values]
        session = OnnxRuntime(self.onnx, keep=kept)
        pairs = Pairs(self.trial.entry, session)
        originals = preserving(self.trial)
        for arrays in runs:
            if self.fresh:
                originals = preserving(self.trial)
            pairs.run(session, arrays)
            expected = {}
            for original in list(originals):
                start = time.perf_counter()
                try:
                    original.run(arrays)
                    expected[original.kernels] = original.tensors()
                except Crashed:
                    if len(originals) == 1:
                        raise
                    originals.remove(original)
                    continue
                if time.perf_counter() - start > _SLOW:
                    originals = originals[:1]
                    break
            yield from self._compared(session.values(), expected)

    def _compared(
        self, arrays: Mapping[str, Array], expected: Mapping[str, Mapping[int, Array]]
    ) -> Iterator[tuple[Comparison, TensorValue]]:
        """The comparisons of what both runtimes kept, in execution order. ``arrays`` are by value, ``expected`` by tensor."""
        tolerance = self.trial.tolerance
        for operator in self.trial.entry.subgraph.operators:
            for tensor in operator.outputs:
                if tensor is None:
                    continue
                originals = {name: [kept[tensor.index]] for name, kept in expected.items() if tensor.index in kept}
                for value in self.values.get(tensor.index, ()):
                    if not originals or value.name not in arrays:
                        continue
                    array = arrays[value.name]
                    restored = value.restore(array, restored_dtype(tensor, array))
                    if restored is not None:
                        restored = as_stored(tensor, restored)
                    if restored is None or restored.ndim != next(iter(originals.values()))[0].ndim:
                        continue
                    step = self.trial.step(tensor, self.producers)
                    yield compare(str(tensor), [restored], originals, tolerance, step=step), value


def preserving(trial: Trial, most: int = 2) -> list[LiteRT | Around]:
    """Interpreters that keep every tensor: builtin and reference kernels, or the first ``most`` of them that load.

    Raises LiteRTError where neither does.
    """
    sessions: list[LiteRT | Around] = []
    failures = []
    for kernels in ("builtin", "reference"):
        if len(sessions) == most:
            break
        try:
            sessions.append(trial.session(kernels, preserve=True))
        except LiteRTError as error:
            failures.append(error)
    if not sessions:
        raise failures[0]
    return sessions


def stateful(model: Model) -> bool:
    """Whether LiteRT remembers anything of it from run to run."""
    return any(
        tensor.is_variable or tensor.dtype == "resource" for graph in model.subgraphs for tensor in graph.tensors
    )
