"""A model without its large constants, for shape inference at sizes of one's choice."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.source.model import Dims

LARGE = 1024  # elements; no shape is as long
ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
REAL = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """The model with constants of many elements as graph inputs, and without the sizes in between.

    Inference follows what vectors hold through arithmetic, of floats too, and keeps some 50 bytes an element. No size
    is real, so Max, which broadcasts alike and is not followed, stands in for such arithmetic.
    """
    graph = model.graph
    kept = {name: value for name, value in graph.initializers.items() if value.const_value is not None}
    large = {name for name, value in kept.items() if value.const_value is not None and value.const_value.size > LARGE}
    proto = ir.to_proto(_without(model, large))
    del proto.graph.value_info[:]
    return proto


def _without(model: ir.Model, names: set[str]) -> ir.Model:
    copy = model.clone()
    graph = copy.graph
    for node in graph.all_nodes():
        if node.op_type in ARITHMETIC and not node.domain and any(value.dtype in REAL for value in node.outputs):
            node.op_type = "Max"
    for name in names:
        value = graph.initializers.pop(name)
        value.const_value = None
        if value not in graph.inputs:
            graph.inputs.append(value)
    return copy


def infer(proto: onnx.ModelProto, sizes: Mapping[tuple[str, int], int] | None = None) -> list[Dims | None]:
    """The sizes of the graph's outputs; ``sizes``: of graph inputs, by name and axis.

    Raises Refused with what contradicts the operators.
    """
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if (info.name, axis) in (sizes or {}):
                dim.dim_value = (sizes or {})[info.name, axis]
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise Refused(_said(error)) from error
    return [_dims(info) for info in inferred.graph.output]


def _said(error: Exception) -> str:
    """What inference says, without the path to where it says it."""
    return " ".join(str(error).split()).rpartition("ShapeInferenceError] ")[2]


def _dims(info: onnx.ValueInfoProto) -> Dims | None:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
