"""ONNX shape inference for chosen sizes of graph inputs; skips large constants."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.source.model import Dims

LARGE_CONSTANT = 1024  # maximum elements of a constant that may hold sizes
MAX_TRACKED = 1 << 16  # maximum elements of a vector whose values inference tracks, at about 50 bytes and 1 µs each
ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
FLOAT_TYPES = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return the model with large constants as graph inputs.

    Intermediate shapes are left out. Inference tracks the values of integer and float vectors through arithmetic, which
    takes about 50 bytes per element. Floats are never sizes, so float arithmetic is replaced by Max, which has the same
    shape and is not tracked.
    """
    graph = model.graph
    proto = onnx.ModelProto(ir_version=model.ir_version)
    proto.opset_import.extend(onnx.helper.make_opsetid(*item) for item in graph.opset_imports.items())
    proto.graph.input.extend(map(ir.serde.serialize_value, graph.inputs))
    proto.graph.output.extend(map(ir.serde.serialize_value, graph.outputs))
    for value in graph.initializers.values():
        if value.const_value is not None and value.const_value.size <= LARGE_CONSTANT:
            proto.graph.initializer.append(ir.serde.serialize_tensor(value.const_value))
        elif not value.is_graph_input():
            proto.graph.input.append(ir.serde.serialize_value(value))
    proto.graph.node.extend(map(_serialize_node, graph))
    float_names = {value.name for node in graph.all_nodes() for value in node.outputs if value.dtype in FLOAT_TYPES}
    _replace_float_arithmetic(proto.graph, float_names)
    _replace_splits(proto.graph, float_names)
    return proto


def _serialize_node(node: ir.Node) -> onnx.NodeProto:
    """Return a node without its name and metadata, which are most of its bytes."""
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend(value.name or "" if value else "" for value in node.inputs)
    proto.output.extend(value.name or "" for value in node.outputs)
    proto.attribute.extend(map(ir.serde.serialize_attribute, node.attributes.values()))
    return proto


def _replace_float_arithmetic(graph: onnx.GraphProto, float_names: Collection[str | None]) -> None:
    """Replace arithmetic on the float values in a graph and its inner graphs with Max."""
    for node in graph.node:
        if node.op_type in ARITHMETIC and not node.domain and any(name in float_names for name in node.output):
            node.op_type = "Max"
        for attribute in node.attribute:
            _replace_float_arithmetic(attribute.g, float_names)


def _replace_splits(graph: onnx.GraphProto, float_names: Collection[str | None]) -> None:
    """Replace each Split of integers along axis 0 with Slices.

    Inference tracks values through Slice, but not through Split. Models that cut a signal into frames split its shape.
    Without the tracked values, the batch of the frames would have no name.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        sizes = constants.get(node.input[1]) if node.op_type == "Split" and len(node.input) > 1 else None
        if sizes is None or axis or node.domain or any(name in float_names for name in node.output):
            nodes.append(node)
            continue
        ends = np.cumsum(onnx.numpy_helper.to_array(sizes))
        for output, start, end in zip(node.output, (0, *ends[:-1]), ends, strict=True):
            bounds = [f"{output}:start", f"{output}:end"]
            for name, bound in zip(bounds, (start, end), strict=True):
                graph.initializer.append(onnx.numpy_helper.from_array(np.array([bound], np.int64), name))
            nodes.append(onnx.helper.make_node("Slice", [node.input[0], *bounds], [output]))
    del graph.node[:]
    graph.node.extend(nodes)


_UNEQUAL = re.compile(r"Can't merge shape info\..*Inferred=(\d+) Declared=(\d+) Dimension=(\d+)")
"""ONNX's message about operands that need equal sizes, as in a concatenation."""


def infer(proto: onnx.ModelProto, sizes: Mapping[tuple[str, int], int] | None = None) -> list[Dims | None]:
    """Return the shapes of the graph's outputs.

    ``sizes``: (graph input, axis) -> size. Raises Refusal if the sizes contradict an operator, or if a size
    is negative because a window is larger than its image.
    """
    input_sizes = sizes or {}
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if (info.name, axis) in input_sizes:
                dim.dim_value = input_sizes[info.name, axis]
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    try:
        inferred = [_shape(info) for info in _infer_graph(model).output]
    except onnx.shape_inference.InferenceError as error:
        raise Refusal(_error_text(error)) from error
    if negative := [dims for dims in inferred if any(size is not None and size < 0 for size in dims or ())]:
        raise Refusal(f"the result would have the negative shape {list(negative[0] or ())}")
    return inferred


def _infer_graph(model: onnx.ModelProto) -> onnx.GraphProto:
    """Return the graph with inferred shapes.

    With a large input, values of vectors are tracked only if shapes depend on them and no vector is too long.
    """
    largest = max((math.prod(size or 1 for size in _shape(info) or ()) for info in model.graph.input), default=0)
    if largest > MAX_TRACKED:
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
        shapes = [_shape(info) for info in (*graph.input, *graph.value_info, *graph.output)]
        vectors = [sizes[0] or 0 for sizes in shapes if sizes is not None and len(sizes) == 1]
        if not any(sizes is None or None in sizes for sizes in shapes) or max(vectors, default=0) > MAX_TRACKED:
            return graph
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph


def _error_text(error: Exception) -> str:
    """Return the first message of an inference error, without path and later errors."""
    text = " ".join(str(error).split()).rpartition("ShapeInferenceError] ")[2].partition(" (op_type:")[0]
    unequal = _UNEQUAL.search(text)
    if unequal is None:
        return text
    inferred, declared, axis = unequal.groups()
    return f"sizes {inferred} and {declared} along axis {axis} must be equal"


def _shape(info: onnx.ValueInfoProto) -> Dims | None:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
