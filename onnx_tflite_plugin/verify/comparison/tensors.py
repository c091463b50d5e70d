"""ONNX values that hold TFLite tensors, and the first tensor that differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import match_values
from onnx_tflite_plugin.verify.runtimes.dequantized import is_float, is_quantized
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, constant_producers

if TYPE_CHECKING:
    from onnx import GraphProto


@dataclass(frozen=True, slots=True)
class Divergence:
    """First tensor of a submodel, in execution order, whose values differ.

    ``others``: codes of the operators that were compared together with ``operator``, because the ONNX model has no value
    for their results. ``weight_variant``: description of the compared weights if this processor would select others;
    otherwise "".
    """

    tensor: Tensor
    operator: Operator
    value: str
    comparison: Comparison
    others: tuple[str, ...] = ()
    weight_variant: str = ""

    @property
    def text(self) -> str:
        where = f"operator {self.operator.index} {self.operator.code}"
        facts = [] if self.value == self.tensor.name else [f"ONNX value {self.value!r}"]
        facts += [f"compared together with {list_first(self.others, 3)}"] if self.others else []
        facts += [self.weight_variant] if self.weight_variant else []
        details = f" ({'; '.join(facts)})" if facts else ""
        return f"tensor {self.tensor} of {where}{details}: {self.comparison.text}"


def values_by_tensor(entry: Entry, session: OnnxRuntime) -> dict[int, list[TensorValue]]:
    """Return TFLite tensor index -> the ONNX values that hold the tensor.

    A value is included only if its representation is that of the tensor: quantized values, or floats of a float tensor.
    """
    tensors = entry.subgraph.tensors
    by_tensor: dict[int, list[TensorValue]] = {}
    for value in session.tensor_values:
        is_in_subgraph = value.subgraph == entry.subgraph.index and 0 <= value.tensor < len(tensors)
        if is_in_subgraph and (value.encoding == "stored" or tensors[value.tensor].quantization is None):
            by_tensor.setdefault(value.tensor, []).append(value)
    return by_tensor


def is_dequantized(model: Model, entry: Entry, session: OnnxRuntime) -> bool:
    """True if the ONNX model and its subgraphs have floats for quantized tensors."""
    graph, tensors = session.proto.graph, entry.subgraph.tensors
    other_subgraphs = [subgraph for subgraph in model.subgraphs if subgraph.index != entry.subgraph.index]
    results = (t for subgraph in other_subgraphs for op in subgraph.operators for t in op.outputs if t is not None)
    if any(is_quantized(tensor) for tensor in results) and not quantizes_values(graph):
        return True
    by_tensor = values_by_tensor(entry, session)
    stored_names = {
        value.name
        for index, values in by_tensor.items()
        for value in values
        if value.encoding == "stored" and is_quantized(tensors[index])
    }
    if not stored_names:
        return _computes_quantized_values(entry.subgraph)
    return any(
        is_float(info) and info.name in stored_names for info in (*graph.input, *graph.value_info, *graph.output)
    )


def _computes_quantized_values(graph: Subgraph) -> bool:
    """True if an operator returns quantized values that are not constant."""
    constants = constant_producers(graph.operators)
    results = (t for op in graph.operators for t in op.outputs if t is not None)
    return any(is_quantized(tensor) and tensor.index not in constants for tensor in results)


def output_values(entry: Entry, session: OnnxRuntime) -> dict[str, str]:
    """Return output name -> name of the ONNX value that represents the output."""
    by_tensor = values_by_tensor(entry, session)
    names_and_tensors = {(value.name, index) for index, values in by_tensor.items() for value in values}
    infos = match_values("output", entry.output_names, session.outputs)
    outputs = zip(entry.output_names, entry.outputs, infos, strict=True)
    return {name: info.name for name, tensor, info in outputs if (info.name, tensor.index) in names_and_tensors}


def quantizes_values(graph: GraphProto) -> bool:
    """True if a node of the graph or of a subgraph rounds to quantized values."""
    return any(
        node.op_type == "QuantizeLinear"
        or node.op_type.startswith("QLinear")
        or any(map(quantizes_values, node_subgraphs(node)))
        for node in graph.node
    )
