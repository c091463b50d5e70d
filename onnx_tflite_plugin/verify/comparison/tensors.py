"""TFLite tensors that values of an ONNX model hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Model, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import pair_values
from onnx_tflite_plugin.verify.runtimes.dequantized import is_float, is_quantized
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import GraphProto


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


def held_values(entry: Entry, session: OnnxRuntime) -> dict[int, list[TensorValue]]:
    """Return the ONNX values that hold what a TFLite tensor holds, by tensor: quantized values, or floats in both models."""
    tensors = entry.subgraph.tensors
    held: dict[int, list[TensorValue]] = {}
    for value in session.tensor_values:
        inside = value.subgraph == entry.subgraph.index and 0 <= value.tensor < len(tensors)
        if inside and (value.form == "stored" or tensors[value.tensor].quantization is None):
            held.setdefault(value.tensor, []).append(value)
    return held


def is_dequantized(model: Model, entry: Entry, session: OnnxRuntime) -> bool:
    """True if the ONNX model has floats where the TFLite model has quantized integers, in its bodies as well."""
    graph, tensors = session.proto.graph, entry.subgraph.tensors
    inner = [subgraph for subgraph in model.subgraphs if subgraph.index != entry.subgraph.index]
    computed = (t for subgraph in inner for op in subgraph.operators for t in op.outputs if t is not None)
    if any(is_quantized(tensor) for tensor in computed) and not _quantizes(graph):
        return True
    floats = {info.name for info in (*graph.input, *graph.value_info, *graph.output) if is_float(info)}
    values = (value for values in held_values(entry, session).values() for value in values)
    return any(one.form == "stored" and one.name in floats and is_quantized(tensors[one.tensor]) for one in values)


def output_values(entry: Entry, session: OnnxRuntime) -> dict[str, str]:
    """Return the ONNX value of each output by the output's name, if it holds the output's tensor."""
    held = {(value.name, index) for index, values in held_values(entry, session).items() for value in values}
    infos = pair_values("output", entry.output_names, session.outputs)
    named = zip(entry.output_names, entry.outputs, infos, strict=True)
    return {name: info.name for name, tensor, info in named if (info.name, tensor.index) in held}


def _quantizes(graph: GraphProto) -> bool:
    """True if a node rounds to quantized integers, in bodies as well."""
    return any(
        node.op_type == "QuantizeLinear"
        or node.op_type.startswith("QLinear")
        or any(_quantizes(attribute.g) for attribute in node.attribute if attribute.HasField("g"))
        for node in graph.node
    )
