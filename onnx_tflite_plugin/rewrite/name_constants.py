"""Names of constants after their use, for models that people read: ``conv1/weight/scale`` instead of ``op0/constant#3``."""

from __future__ import annotations

import re
from collections import Counter

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
_OPERATION = re.compile(
    r"(.*[/;])?(Conv[123]D(_transpose)?|depthwise|MatMul|BiasAdd|FusedBatchNorm(V\d)?)\d*(#\d+)?$", re.DOTALL
)
"""Names of operations of TensorFlow, which TFLite's converter gives weights and biases too."""
_NUMBERED = re.compile(r"op\d+/DequantizeLinear(#\d+)?:out$")
"""Names that this converter gives dequantized constants."""
_REPEATED = re.compile(r"(.+)#\d+$", re.DOTALL)
_ROLES = {"W": "weight", "R": "recurrence", "A": "operand", "B": "operand", "C": "operand"}
"""Roles by formal names of operands that say little."""
_OWN_ROLES = {
    **{(operator, "B"): "bias" for operator in ("Conv", "ConvTranspose", "LSTM", "GRU", "RNN")},
    **{(operator, "B"): "weight" for operator in ("Gemm", "MatMul", "MatMulInteger")},
    ("Gemm", "C"): "bias",
    **{(operator, formal): role for operator, role in (("Add", "addend"), ("Mul", "factor")) for formal in "AB"},
    ("Sub", "B"): "subtrahend",
    ("Div", "B"): "divisor",
    ("Max", "data_0"): "min",
    ("Min", "data_0"): "max",
}
"""Roles by operator and formal name, where they differ."""
_PARAMETERS = {1: "scale", 2: "zero_point"}
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear")


MOST_NUMBERS = 64
"""Maximum elements of a constant that is copied for each name that its uses suggest."""


class NameConstants(InPlacePass):
    """Rename constants that are only numbered; others keep the names of their tensors in the file.

    Initial values of states keep theirs, too: they are inputs of the model. Small constants that several operands share are
    copied. A constant with the name of an operation or of another value gets its role as suffix: ``conv/Conv2D/weight``.
    A dequantized constant is ``conv/Conv2D/weight:float``. A suffix ``#1`` is dropped if no other value has the name.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        modified = _add_roles(graph)
        names = UniqueNames()
        uses: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
        for node in graph.all_nodes():
            for result in node.outputs:
                names.claim(result.name or "")
            for slot, value in enumerate(node.inputs):
                if value is None or not value.name:
                    continue
                if _is_constant(value, graph) and (_GENERATED.match(value.name) or _is_parameter(node, slot)):
                    uses.setdefault(value, []).append((node, slot))
                else:
                    names.claim(value.name)
        modified |= _drop_suffixes(graph, names)
        parameters: dict[str, ir.Value] = {}
        for value, places in uses.items():
            del graph.initializers[value.name or ""]
            copies: dict[str, ir.Value] = {}
            for node, slot in places if _is_small(value) or _is_parameter(*places[0]) else places[:1]:
                name = _name(node, slot, graph.opset_imports[""])
                if name in parameters and _are_equal(parameters[name], value):
                    copies[name] = parameters[name]
                elif name not in copies:
                    parameters[name] = copies[name] = copied = _copy(value) if copies else value
                    copied.name = names.unique(name)
                    graph.register_initializer(copied)
                node.replace_input_with(slot, copies[name])
        modified |= _name_dequantized(graph, names)
        return PassResult(model, bool(uses) or modified)


def _is_constant(value: ir.Value, graph: ir.Graph) -> bool:
    return graph.initializers.get(value.name or "") is value and not value.is_graph_input()


def _is_parameter(node: ir.Node, slot: int) -> bool:
    """True for a scale or zero point."""
    return node.op_type in _QUANTIZING and slot in _PARAMETERS


def _add_roles(graph: ir.Graph) -> bool:
    """Add the role to names of constants that an operation or another value has, too; return True if there were any."""
    names = UniqueNames()
    used = [*graph.initializers, *(value.name or "" for node in graph.all_nodes() for value in node.outputs)]
    for name in used:
        names.claim(name)
    repeated = {name for name, count in Counter(map(_without_number, used)).items() if count > 1}
    changed = False
    for name, value in [*graph.initializers.items()]:
        use = next(iter(value.uses()), None)
        if use is None or value.is_graph_input() or value.is_graph_output() or _GENERATED.match(name):
            continue
        base = _without_number(name)
        if base not in repeated and not _OPERATION.match(name):
            continue
        del graph.initializers[name]
        role = _role_of_use(use.node, use.idx, graph.opset_imports[""])
        value.name = names.unique(f"{base}/{role}")
        graph.register_initializer(value)
        changed = True
    return changed


def _without_number(name: str) -> str:
    """Return a name without the suffix ``#n``."""
    match = _REPEATED.match(name)
    return match[1] if match else name


def _drop_suffixes(graph: ir.Graph, names: UniqueNames) -> bool:
    """Drop ``#n`` of the names of values that are unique without it; return True if there were any."""
    changed = False
    for name, value in [*graph.initializers.items()]:
        base = _REPEATED.match(name)
        if base and not value.is_graph_input() and not _GENERATED.match(name) and names.unique(base[1]) == base[1]:
            del graph.initializers[name]
            value.name = base[1]
            graph.register_initializer(value)
            changed = True
    for value in [value for node in graph.all_nodes() for value in node.outputs]:
        base = _REPEATED.match(value.name or "")
        if base and not value.is_graph_output() and names.unique(base[1]) == base[1]:
            value.name = base[1]
            changed = True
    return changed


def _name_dequantized(graph: ir.Graph, names: UniqueNames) -> bool:
    """Name dequantized constants after the constants; return True if there were any."""
    changed = False
    for node in graph.all_nodes():
        stored, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        numbered = node.op_type == "DequantizeLinear" and _NUMBERED.match(result.name or "")
        if numbered and stored is not None and _is_constant(stored, graph) and not result.is_graph_output():
            result.name = names.unique(f"{stored.name}:float")
            changed = True
    return changed


def _copy(value: ir.Value) -> ir.Value:
    return ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)


def _are_equal(constant: ir.Value, other: ir.Value) -> bool:
    """Return True if two small constants have the same dtype, shape and elements."""
    first, second = constant.const_value, other.const_value
    if first is None or second is None or not _is_small(constant) or not _is_small(other):
        return False
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def _is_small(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size <= MOST_NUMBERS


def _name(node: ir.Node, slot: int, opset: int) -> str:
    """Return the name of a constant operand: after the tensor that it quantizes, or its role in the operator."""
    tensor = None
    if _is_parameter(node, slot):
        tensor = node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]
    if tensor is not None and tensor.name and not _GENERATED.match(tensor.name):
        return f"{tensor.name}/{_PARAMETERS[slot]}"
    operator = shorten_name(source_name(node.metadata_props)) or node.op_type.lower()
    return f"{operator}/{_role_of_use(node, slot, opset)}"


def _role_of_use(node: ir.Node, slot: int, opset: int) -> str:
    """Return the role of a constant operand, also of one that is dequantized first."""
    user = next(iter(node.outputs[0].uses()), None) if node.op_type == "DequantizeLinear" and slot == 0 else None
    return _role(node, slot, opset) if user is None else _role(user.node, user.idx, opset)


def _role(node: ir.Node, slot: int, opset: int) -> str:
    """Return the formal name of an operand; the last one of a variadic operator repeats."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None or not schema.inputs:
        return f"operand{slot}"
    formal = schema.inputs[min(slot, len(schema.inputs) - 1)].name
    return _OWN_ROLES.get((node.op_type, formal)) or _ROLES.get(formal, formal.lower())
