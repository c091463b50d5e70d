"""Transposes of the ONNX model, with the shapes of their operands."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.page.groups import all_graphs, nodes_with_container

if TYPE_CHECKING:
    import onnx

_DERIVED_PREFIX = "unk__"
"""Prefix of names that ONNX's shape inference gives to dynamic dimensions."""
_MAX_COPIED_BYTES = 1 << 12  # size of a constant above which shape inference does not need its values


def transpose_rows(onnx: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    """Yield a row for each Transpose, also in inner graphs, with its operators.

    ``shape``: the shape of the operand; None if ONNX's shape inference does not derive it. ``elements``: the number of
    elements; None if the shape is dynamic or None.
    """
    transposes = [
        (node, container) for node, container in nodes_with_container(onnx.graph) if node.op_type == "Transpose"
    ]
    shapes = _shapes(onnx) if transposes else {}
    for node, container in transposes:
        shape = shapes.get(node.input[0])
        is_static = shape is not None and all(isinstance(size, int) for size in shape)
        yield {
            "tensor": node.input[0],
            "perm": ", ".join(str(axis) for a in node.attribute if a.name == "perm" for axis in a.ints),
            "shape": shape,
            "elements": prod(shape) if shape is not None and is_static else None,
            "operators": list(top_level_operators(props(node.metadata_props))),
            "inside": container,
        }


def stored_shape(info: onnx.ValueInfoProto) -> list[int | str | None]:
    """Return the sizes of a value; for dynamic dimensions, their names or None."""
    dims = info.type.tensor_type.shape.dim
    names = ("" if dim.dim_param.startswith(_DERIVED_PREFIX) else dim.dim_param for dim in dims)
    return [dim.dim_value if dim.HasField("dim_value") else name or None for dim, name in zip(dims, names, strict=True)]


def _shapes(model: onnx.ModelProto) -> dict[str, list[int | str | None]]:
    """Return the known shapes of all values, stored in the model or derived by ONNX."""
    shapes: dict[str, list[int | str | None]] = {}
    for graph in all_graphs(_infer_shapes(model).graph):
        for info in (*graph.value_info, *graph.input, *graph.output):
            if info.type.tensor_type.HasField("shape"):
                shapes[info.name] = stored_shape(info)
        shapes |= {tensor.name: [*tensor.dims] for tensor in graph.initializer}
    return shapes


def _infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with derived shapes, and without the values of large constants.

    Return the model unchanged if shape inference fails, for example because ONNX does not know an operator.
    """
    import onnx

    graph = model.graph
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    copy.graph.name = graph.name
    for name in ("node", "input", "output", "value_info"):
        getattr(copy.graph, name).extend(getattr(graph, name))
    for tensor in graph.initializer:
        if tensor.ByteSize() <= _MAX_COPIED_BYTES:
            copy.graph.initializer.append(tensor)
        else:
            copy.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    try:
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return model
