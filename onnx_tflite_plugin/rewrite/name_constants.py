"""Names of constants after their use, for models that people read: ``conv1/weight/scale`` instead of ``op0/constant#3``."""

from __future__ import annotations

import re

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.graph.metadata import source_name
from onnx_tflite_plugin.graph.names import UniqueNames, shorten_name
from onnx_tflite_plugin.lowering.schemas import schema_of

_GENERATED = re.compile(
    r"(.*/)?(constant|Const(_\d+)?|arith\.constant\d*|tfl\.pseudo_q?const\d*|cst(_\d+)?|unknown(_\d+)?)(#\d+)*$",
    re.DOTALL,
)
"""Names that only number constants: this converter's, TensorFlow's and MLIR's."""
_REPEATED = re.compile(r"(.+)#\d+$", re.DOTALL)
_ROLES = {"W": "weight", "R": "recurrence", "A": "operand", "B": "operand", "C": "operand"}
"""Roles by formal names of operands that say little."""
_OWN_ROLES = {
    **{(operator, "B"): "bias" for operator in ("Conv", "ConvTranspose", "LSTM", "GRU", "RNN")},
    **{(operator, "B"): "weight" for operator in ("Gemm", "MatMul", "MatMulInteger")},
    ("Gemm", "C"): "bias",
}
"""Roles by operator and formal name, where they differ."""
_PARAMETERS = {1: "scale", 2: "zero_point"}
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear")


MOST_NUMBERS = 64
"""Maximum elements of a constant that is copied for each name that its uses suggest."""


class NameConstants(InPlacePass):
    """Rename constants that are only numbered; others keep the names of their tensors in the file.

    Initial values of states keep theirs, too: they are inputs of the model. Small constants that several operands share are
    copied. A suffix ``#1`` is dropped if no other value has the name.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        names = UniqueNames()
        uses: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
        for node in graph.all_nodes():
            for result in node.outputs:
                names.claim(result.name or "")
            for slot, value in enumerate(node.inputs):
                if value is None or not value.name:
                    continue
                constant = graph.initializers.get(value.name) is value and not value.is_graph_input()
                if constant and _GENERATED.match(value.name):
                    uses.setdefault(value, []).append((node, slot))
                else:
                    names.claim(value.name)
        repeated = _drop_suffixes(graph, names)
        for value, places in uses.items():
            del graph.initializers[value.name or ""]
            copies: dict[str, ir.Value] = {}
            for node, slot in places if _is_small(value) else places[:1]:
                name = _name(node, slot, graph.opset_imports[""])
                if name not in copies:
                    copies[name] = copied = _copy(value) if copies else value
                    copied.name = names.unique(name)
                    graph.register_initializer(copied)
                node.replace_input_with(slot, copies[name])
        return PassResult(model, bool(uses) or repeated)


def _drop_suffixes(graph: ir.Graph, names: UniqueNames) -> bool:
    """Drop ``#n`` of the names of constants that are unique without it; return True if there were any."""
    changed = False
    for name, value in [*graph.initializers.items()]:
        base = _REPEATED.match(name)
        if base and not value.is_graph_input() and not _GENERATED.match(name) and names.unique(base[1]) == base[1]:
            del graph.initializers[name]
            value.name = base[1]
            graph.register_initializer(value)
            changed = True
    return changed


def _copy(value: ir.Value) -> ir.Value:
    return ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)


def _is_small(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size <= MOST_NUMBERS


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
    return _OWN_ROLES.get((node.op_type, formal)) or _ROLES.get(formal, formal.lower())
