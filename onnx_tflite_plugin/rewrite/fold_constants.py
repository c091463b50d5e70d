"""Fold conversions of constants, which clutter graphs that people read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.api.budget import spend_budget
from onnx_tflite_plugin.source.model import Array

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class _Conversion(NamedTuple):
    """A conversion of a constant to float32 or to a different shape.

    ``shape``: the target of a Reshape; None for a Cast.
    """

    constant: ir.Value
    shape: tuple[int, ...] | None


class FoldConstants(InPlacePass):
    """Fold Casts of half-precision constants, and Reshapes of constants."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        folded: dict[_Conversion, ir.Value] = {}
        for node in [*graph.all_nodes()]:
            conversion, result = _find_conversion(node, graph), node.outputs[0]
            if conversion is None or result.is_graph_output():
                continue
            if conversion not in folded:
                folded[conversion] = _fold(conversion)
            result.replace_all_uses_with(folded[conversion])
            assert node.graph is not None
            shape = node.inputs[1] if conversion.shape is not None else None
            node.graph.remove(node, safe=True)
            if shape is not None:
                _remove_if_unused(shape)
        for conversion, constant in folded.items():
            _remove_if_unused(conversion.constant)
            if conversion.constant.graph is not None or constant.name in graph.initializers:
                kind = "float32" if conversion.shape is None else f"reshaped{list(conversion.shape)}"
                constant.name = f"{conversion.constant.name}/{kind}"
            graph.register_initializer(constant)
        return PassResult(model, bool(folded))


def _remove_if_unused(constant: ir.Value) -> None:
    graph, name = constant.graph, constant.name or ""
    if graph is not None and name in graph.initializers and not (constant.uses() or constant.is_graph_output()):
        del graph.initializers[name]


def _find_conversion(node: ir.Node, graph: ir.Graph) -> _Conversion | None:
    """Return the conversion of a node whose operand is a constant of the main graph."""
    if node.domain or node.op_type not in ("Cast", "Reshape"):
        return None
    constant = node.inputs[0]
    if constant is None or not constant.is_initializer() or constant.is_graph_input() or constant.graph is not graph:
        return None
    if node.op_type == "Cast":
        is_widened = constant.dtype in _HALF and node.attributes["to"].as_int() == ir.DataType.FLOAT
        return _Conversion(constant, None) if is_widened else None
    shape = node.inputs[1]
    if shape is None or shape.const_value is None or constant.dtype == ir.DataType.STRING:
        return None
    target = tuple(int(size) for size in shape.const_value.numpy())
    return None if 0 in target else _Conversion(constant, target)  # 0 copies a size of the operand


def _fold(conversion: _Conversion) -> ir.Value:
    value = conversion.constant
    assert value.const_value is not None
    array: Array = np.asarray(value.const_value.numpy())
    dtype = value.const_value.dtype
    if conversion.shape is None:
        spend_budget(value.const_value.size, 4, f"constant {value.name!r} as float32")
        array, dtype = array.astype(np.float32), ir.DataType.FLOAT
    else:
        array = array.reshape(conversion.shape)
    tensor = ir.Tensor(array, dtype=dtype, name=value.name)
    return ir.Value(name=value.name, shape=ir.Shape(array.shape), type=ir.TensorType(dtype), const_value=tensor)
