"""Names of constants after their use, for models that people read: ``conv1/weight/scale`` in place of ``op0/constant#3``."""

from __future__ import annotations

import re

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.graph.metadata import source_name
from onnx_tflite_plugin.graph.names import UniqueNames, shorten_name
from onnx_tflite_plugin.lowering.schemas import schema_of

_GENERATED = re.compile(r".*/constant(#\d+)?$", re.DOTALL)
_ROLES = {"W": "weight", "B": "bias", "C": "bias", "R": "recurrence"}
"""Formal names of operands that say little."""
_PARAMETERS = {1: "scale", 2: "zero_point"}
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear")


class NameConstants(InPlacePass):
    """Rename constants whose name only numbers them; those of the file keep the names of their tensors."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        names = UniqueNames()
        for node in graph.all_nodes():
            for value in (*node.inputs, *node.outputs):
                if value is not None and value.name and not _GENERATED.match(value.name):
                    names.claim(value.name)
        renamed = 0
        for node in graph.all_nodes():
            for slot, value in enumerate(node.inputs):
                if value is None or not value.name or not _GENERATED.match(value.name):
                    continue
                if graph.initializers.get(value.name) is value:
                    del graph.initializers[value.name]
                    value.name = names.unique(_name(node, slot, graph.opset_imports[""]))
                    graph.register_initializer(value)
                    renamed += 1
        return PassResult(model, renamed > 0)


def _name(node: ir.Node, slot: int, opset: int) -> str:
    """Return the name of a constant operand: after the tensor that it quantizes, or its role in the operator."""
    quantized = node.op_type in _QUANTIZING and slot in _PARAMETERS
    tensor = (node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]) if quantized else None
    if tensor is not None and tensor.name and not _GENERATED.match(tensor.name):
        return f"{tensor.name}/{_PARAMETERS[slot]}"
    operator = shorten_name(source_name(node.metadata_props)) or node.op_type.lower()
    user = next(iter(node.outputs[0].uses()), None) if node.op_type == "DequantizeLinear" and slot == 0 else None
    role = _role(node, slot, opset) if user is None else _role(user.node, user.idx, opset)
    return f"{operator}/{role}"


def _role(node: ir.Node, slot: int, opset: int) -> str:
    """Return the formal name of an operand; the last one of a variadic operator repeats."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None or not schema.inputs:
        return f"operand{slot}"
    formal = schema.inputs[min(slot, len(schema.inputs) - 1)].name
    return _ROLES.get(formal, formal.lower())
