"""Segments: consecutive submodels that run and are compared together.

Segments limit the memory that a comparison needs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Operator
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from onnx_tflite_plugin.verify.submodels.cut import CutModel
from onnx_tflite_plugin.verify.submodels.cut_litert import CutLiteRT
from onnx_tflite_plugin.verify.submodels.points import CutPoints, Submodel


@dataclass(frozen=True)
class Segment:
    """Consecutive submodels, with the sessions that run them in both runtimes.

    ``whole_model``: the segment is the whole model, with its states. ``substituted``: indices of operators that LiteRT
    cannot run. Submodels with such operators are compared, but not run again in LiteRT.
    """

    points: CutPoints
    writer: SubmodelWriter
    submodels: Sequence[Submodel]
    whole_model: bool
    substituted: Collection[int] = ()

    @cached_property
    def cut(self) -> CutModel:
        """Return the cut ONNX model of these submodels."""
        return CutModel(self.points, self._values)

    @cached_property
    def saturating_cut(self) -> CutModel | None:
        """Return the cut ONNX model with its weights for saturating processors.

        Such a processor saturates the sum of two 8-bit products. Return None if the model has no such weights, or if
        this processor saturates.
        """
        if not self.cut.selects_weights or not multiplies_exactly():
            return None
        return CutModel(self.points, self._values, saturating=True)

    @property
    def _values(self) -> list[TensorValue] | None:
        return None if self.whole_model else [submodel.value for submodel in self.submodels]

    @cached_property
    def operators(self) -> list[Operator]:
        """Return the TFLite operators that LiteRT runs, in execution order."""
        if self.whole_model and not self.substituted:
            return [*self.points.entry.subgraph.operators]
        operators = (op for submodel in self.litert_submodels for op in submodel.operators)
        return [*dict(sorted((op.index, op) for op in operators)).values()]

    @cached_property
    def litert_submodels(self) -> list[Submodel]:
        """Return the submodels that LiteRT can run."""
        return [s for s in self.submodels if not any(op.index in self.substituted for op in s.operators)]

    @cached_property
    def results(self) -> list[int]:
        """Return the indices of the tensors that are compared."""
        return sorted({submodel.tensor.index for submodel in self.submodels})

    @cached_property
    def operands(self) -> frozenset[int]:
        """Return the indices of the cut tensors that either model reads."""
        if self.whole_model:
            return frozenset(self.points.cut_tensors)
        return frozenset(self._leaves & self.points.cut_tensors)

    @cached_property
    def earlier_operands(self) -> list[int]:
        """Return the operands that earlier segments compute."""
        return sorted(self.operands - {*self.results})

    @cached_property
    def inputs(self) -> list[int]:
        """Return the indices of the graph inputs that either model reads."""
        graph_inputs = [tensor.index for tensor in self.points.entry.inputs]
        if self.whole_model:
            return graph_inputs
        return [index for index in graph_inputs if index in self._leaves]

    @cached_property
    def _leaves(self) -> set[int]:
        """Return the indices of the cut tensors and graph inputs that either model reads."""
        return {index for submodel in self.submodels for index in submodel.leaves | submodel.onnx_leaves}

    def litert(
        self,
        kernels: str = "builtin",
        results: Sequence[int] | None = None,
        *,
        floats: bool = False,
        extra_operands: Collection[int] = (),
    ) -> CutLiteRT:
        """Return a LiteRT session in which every operator reads the caller's operands.

        Tensors are indices. ``results``: tensors to return, by default the results of ``litert_submodels``. ``floats``:
        dequantize weights of dynamic-range operators. ``extra_operands``: further tensors that the caller passes. Raises
        LiteRTError or InvalidModel.
        """
        if results is None:
            results = sorted({submodel.tensor.index for submodel in self.litert_submodels})
        operands = self.operands | ({*extra_operands} - {*self.inputs})
        return CutLiteRT(self.writer, self.operators, self.inputs, operands, results, kernels, floats=floats)

    def sequential_litert(self, *, returns_inner_tensors: bool = False) -> CutLiteRT:
        """Return a LiteRT session that reads only tensors which earlier segments compute.

        ``returns_inner_tensors``: the session also returns the quantized tensors inside submodels.
        """
        tensors = {*self.results}
        if returns_inner_tensors:
            tensors |= {tensor.index for submodel in self.submodels for tensor in submodel.inner_tensors}
        return CutLiteRT(self.writer, self.operators, self.inputs, self.earlier_operands, sorted(tensors))
