"""Successive submodels that are compared together, so that memory is bounded: both models in the form in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Operator
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from onnx_tflite_plugin.verify.submodels.cut import CutModel
from onnx_tflite_plugin.verify.submodels.cut_litert import CutLiteRT
from onnx_tflite_plugin.verify.submodels.points import CutPoints, Submodel


@dataclass(frozen=True)
class Segment:
    """Submodels between cut tensors. ``whole``: all of the model, with its states."""

    points: CutPoints
    writer: SubmodelWriter
    submodels: Sequence[Submodel]
    whole: bool

    @cached_property
    def cut(self) -> CutModel:
        """Return the ONNX model of these submodels."""
        return CutModel(self.points, self._values)

    @cached_property
    def saturating_cut(self) -> CutModel | None:
        """Return the same with the weights of other processors, if it has any that are exact on this one."""
        if not self.cut.selects or not multiplies_exactly():
            return None
        return CutModel(self.points, self._values, elsewhere=True)

    @property
    def _values(self) -> list[TensorValue] | None:
        return None if self.whole else [one.value for one in self.submodels]

    @cached_property
    def operators(self) -> list[Operator]:
        """Return the TFLite operators of these submodels, in execution order."""
        if self.whole:
            return [*self.points.entry.subgraph.operators]
        return [*dict(sorted((op.index, op) for one in self.submodels for op in one.operators)).values()]

    @cached_property
    def results(self) -> list[int]:
        """Return the tensors that are compared."""
        return sorted({one.tensor.index for one in self.submodels})

    @cached_property
    def operands(self) -> frozenset[int]:
        """Return the cut tensors that either model reads."""
        if self.whole:
            return frozenset(self.points.cut)
        return frozenset(self._read & self.points.cut)

    @cached_property
    def entering(self) -> list[int]:
        """Return the operands that are computed before."""
        return sorted(self.operands - {*self.results})

    @cached_property
    def inputs(self) -> list[int]:
        """Return the inputs of the model that either model reads."""
        entered = [tensor.index for tensor in self.points.entry.inputs]
        if self.whole:
            return entered
        return [index for index in entered if index in self._read]

    @cached_property
    def _read(self) -> set[int]:
        return {index for one in self.submodels for index in one.leaves | one.onnx_leaves}

    def litert(
        self, kernels: str = "builtin", results: Sequence[int] | None = None, *, floats: bool = False
    ) -> CutLiteRT:
        """Return LiteRT on all operators, each of which reads given operands. Raises LiteRTError or InvalidModel."""
        results = self.results if results is None else results
        return CutLiteRT(self.writer, self.operators, self.inputs, self.operands, results, kernels, floats=floats)

    def successive(self) -> CutLiteRT:
        """Return LiteRT on the operators as they follow each other, from the operands that are computed before."""
        return CutLiteRT(self.writer, self.operators, self.inputs, self.entering, self.results)
