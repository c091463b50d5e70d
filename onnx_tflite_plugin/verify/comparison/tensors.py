"""Tensors that values of an ONNX model hold: their errors along the network, and submodels between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run, Trial, dtype_to_restore, pair_values
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored, is_float, is_quantized
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import producers

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first tensor, in execution order, of a submodel that differs."""

    tensor: Tensor
    operator: Operator
    value: str
    comparison: Comparison

    @property
    def text(self) -> str:
        where = f"operator {self.operator.index} {self.operator.code}"
        value = "" if self.value == self.tensor.name else f" (ONNX value {self.value!r})"
        return f"tensor {self.tensor} of {where}{value}: {self.comparison.text}"


class HeldTensors:
    """Values of one ONNX model by the tensor that they hold. ``fresh``: the model carries no states, so LiteRT resets its own."""

    def __init__(self, trial: Trial, session: OnnxRuntime, *, fresh: bool) -> None:
        self.trial, self.session, self.fresh = trial, session, fresh
        self.producers = producers(trial.entry.subgraph)
        self.values: dict[int, list[TensorValue]] = {}
        for value in session.tensor_values:
            if self._is_comparable(value):
                self.values.setdefault(value.tensor, []).append(value)

    @property
    def is_dequantized(self) -> bool:
        """True if the ONNX model has floats where the TFLite model has quantized integers, in its bodies as well."""
        inner = [graph for graph in self.trial.model.subgraphs if graph.index != self.trial.entry.subgraph.index]
        computed = (t for graph in inner for op in graph.operators for t in op.outputs if t is not None)
        if any(is_quantized(tensor) for tensor in computed) and not _quantizes(self.session.proto.graph):
            return True
        graph, tensors = self.session.proto.graph, self.trial.entry.subgraph.tensors
        floats = {info.name for info in (*graph.input, *graph.value_info, *graph.output) if is_float(info)}
        return any(
            value.name in floats and is_quantized(tensors[index])
            for index, values in self.values.items()
            for value in values
            if value.form == "stored"
        )

    def output_values(self) -> dict[str, str]:
        """Return the ONNX value of each output by the output's name, if it holds the output's tensor."""
        entry, values = self.trial.entry, {value.name: value for values in self.values.values() for value in values}
        infos = pair_values("output", entry.output_names, self.session.outputs)
        return {
            name: info.name
            for name, tensor, info in zip(entry.output_names, entry.outputs, infos, strict=True)
            if info.name in values and values[info.name].tensor == tensor.index
        }

    def submodel(self, inputs: Sequence[Tensor], output: Tensor, value: str) -> tuple[bytes, ModelProto] | None:
        """Return both models from ``inputs`` to ``output``, which ``value`` holds; None if the ONNX model has none such."""
        part = extract_submodel(self.session.proto, [self._stored_value(tensor) for tensor in inputs], [value])
        whole = None if part is None else self.session.load_constants(part)
        if whole is None:
            return None
        try:
            indices = [tensor.index for tensor in inputs]
            return cut_file(self.trial.data, self.trial.entry.subgraph, indices, [output.index]), whole
        except InvalidModel:  # of more than 2 GB
            return None

    def _stored_value(self, tensor: Tensor) -> str:
        """Return the first value that holds a tensor as the file stores it; empty if none does."""
        return next((value.name for value in self.values.get(tensor.index, ()) if value.form == "stored"), "")

    def _is_comparable(self, value: TensorValue) -> bool:
        """True if a value holds what LiteRT's tensor holds: the quantized values, or floats in both models."""
        graph = self.trial.entry.subgraph
        if value.subgraph != graph.index or not 0 <= value.tensor < len(graph.tensors):
            return False
        return value.form == "stored" or graph.tensors[value.tensor].quantization is None

    def errors(self, runs: Sequence[Run]) -> Iterator[tuple[Comparison, TensorValue]]:
        """Yield the end-to-end error of every tensor that both runtimes keep, run by run in execution order.

        Raises LiteRTError or OrtError if a model that keeps them does not run.
        """
        kept = [value.name for values in self.values.values() for value in values]
        session = OnnxRuntime(self.session.proto, keep=kept, folder=self.session.folder)
        pairs = Pairs(self.trial.entry, session)
        original = self.trial.session("builtin", preserve=True)
        for arrays in runs:
            if self.fresh:
                original = self.trial.session("builtin", preserve=True)
            pairs.run(session, arrays)
            original.run(arrays)
            yield from self._comparisons(session.values(), original.tensors())

    def _comparisons(
        self, arrays: Mapping[str, Array], expected: Mapping[int, Array]
    ) -> Iterator[tuple[Comparison, TensorValue]]:
        """Yield the comparisons in execution order. ``arrays`` are by value, ``expected`` by tensor."""
        for operator in self.trial.entry.subgraph.operators:
            for tensor in operator.outputs:
                if tensor is None or tensor.index not in expected:
                    continue
                for value in self.values.get(tensor.index, ()):
                    if value.name not in arrays:
                        continue
                    array = arrays[value.name]
                    restored = value.restore(array, dtype_to_restore(tensor, array))
                    if restored is None or restored.ndim != expected[tensor.index].ndim:
                        continue
                    actual, step = as_stored(tensor, restored), self.trial.step(tensor, self.producers)
                    kernels = {"builtin": [expected[tensor.index]]}
                    yield compare(str(tensor), [actual], kernels, self.trial.tolerance, floor=step), value


def _quantizes(graph: GraphProto) -> bool:
    """True if a node rounds to quantized integers, in bodies as well."""
    return any(
        node.op_type == "QuantizeLinear"
        or node.op_type.startswith("QLinear")
        or any(_quantizes(attribute.g) for attribute in node.attribute if attribute.HasField("g"))
        for node in graph.node
    )
