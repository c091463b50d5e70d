"""Name constants after their use, for models that people read: ``conv1/weight/scale``, not ``op0/constant#3``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.api.roles import ROLE
from onnx_tflite_plugin.graph.names import UniqueNames, common_scopes, first_operation, with_suffix, without_number
from onnx_tflite_plugin.lowering.emitter import ROLES
from onnx_tflite_plugin.lowering.schemas import schema_of
from onnx_tflite_plugin.rewrite.name_values import operator_name, quantized_name

_GENERATED = re.compile(
    r"(.*/)?(constant|Const(_\d+)?|arith\.constant\d*|tfl\.pseudo_q?const\d*|cst(_\d+)?|unknown(_\d+)?)(#\d+)*$",
    re.DOTALL,
)
"""Generated names, which only number constants: those of this converter, TensorFlow and MLIR."""
_OPERATION = re.compile(
    r"(.*[/;])?(Conv[123]D(_transpose)?|depthwise|MatMul|BiasAdd|FusedBatchNorm(V\d)?)\d*(#\d+)?$", re.DOTALL
)
"""Names of TensorFlow operations, which TFLite's converter also gives to their weights and biases."""
_VARIABLE = re.compile(r"/ReadVariableOp(_\d+)?(/resource)?$")
"""Suffix that TensorFlow appends to the names of operations that read a variable."""
_STATED = {"weight": re.compile("weight|kernel|filter|embed", re.I), "bias": re.compile("bias(?!add)|beta", re.I)}
"""Names of scopes that state a role."""
_NUMBERED = re.compile(r"op\d+/DequantizeLinear(#\d+)?:out$")
"""Names that this converter gives to dequantized constants."""
_ROLES = {"W": "weight", "R": "recurrence", "A": "operand", "B": "operand", "C": "operand"}
"""Roles of operands by their formal names, where these are single letters."""
_ROLES_BY_OPERATOR = {
    **{(operator, "B"): "bias" for operator in ("Conv", "ConvTranspose", "LSTM", "GRU", "RNN")},
    **{(operator, "B"): "weight" for operator in ("Gemm", "MatMul", "MatMulInteger")},
    ("Gemm", "C"): "bias",
    **{(operator, formal): role for operator, role in (("Add", "addend"), ("Mul", "factor")) for formal in "AB"},
    ("Sub", "A"): "minuend",
    ("Sub", "B"): "subtrahend",
    ("Div", "A"): "dividend",
    ("Div", "B"): "divisor",
    ("MatMul", "A"): "matrix",
    ("Concat", "inputs"): "values",
    ("Max", "data_0"): "min",
    ("Min", "data_0"): "max",
}
"""Roles by operator and formal name; they win over ``_ROLES``."""
_PARAMETERS = {1: "scale", 2: "zero_point"}
_QUANTIZE_OPERATORS = ("DequantizeLinear", "QuantizeLinear")


MAX_COPIED_ELEMENTS = 64
"""Maximum elements of a constant that gets one copy for each name that its uses suggest."""


class NameConstants(InPlacePass):
    """Rename constants with generated names; others keep the names of their tensors in the file.

    Initial values of states, which are inputs of the model, keep their names. Small constants that several operands share
    are copied. A larger constant that several operators share is named after their common scopes: ``encoder/scale``.
    Different constants with one role in an operator are named after the results of their nodes:
    ``attention/Slice#1/starts``. A constant with the name of an operation or of another value gets its role as suffix:
    ``conv/Conv2D/weight``. A dequantized constant is ``conv/Conv2D/weight:float``. A suffix ``#1`` is dropped if no other
    value has the name.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph, opset = model.graph, model.graph.opset_imports[""]
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
        for value, node_slots in uses.items():
            del graph.initializers[value.name or ""]
            copies: dict[str, ir.Value] = {}
            shared_name = None if _is_small(value) or _is_parameter(*node_slots[0]) else _shared_name(node_slots, opset)
            for node, slot in node_slots:
                name = shared_name or _constant_name(node, slot, opset)
                if name in parameters and _are_equal(parameters[name], value):
                    copies[name] = parameters[name]
                elif name not in copies:
                    by_result = names.is_used(name) and not _is_parameter(node, slot)
                    parameters[name] = copies[name] = copy = _copy(value) if copies else value
                    copy.name = names.unique(_name_by_result(node, slot, opset) if by_result else name)
                    graph.register_initializer(copy)
                node.replace_input_with(slot, copies[name])
        modified |= _name_dequantized(graph, names)
        return PassResult(model, bool(uses) or modified)


def _is_constant(value: ir.Value, graph: ir.Graph) -> bool:
    return graph.initializers.get(value.name or "") is value and not value.is_graph_input()


def _is_parameter(node: ir.Node, slot: int) -> bool:
    """True for a scale or zero point."""
    return node.op_type in _QUANTIZE_OPERATORS and slot in _PARAMETERS


def _add_roles(graph: ir.Graph) -> bool:
    """Append the role to constants with the name of an operation or another value.

    Return True if a name changed.
    """
    names = UniqueNames()
    used = [*graph.initializers, *(value.name or "" for node in graph.all_nodes() for value in node.outputs)]
    for name in used:
        names.claim(name)
    repeated = {name for name, count in Counter(map(without_number, used)).items() if count > 1}
    changed = False
    for name, value in [*graph.initializers.items()]:
        uses = [(use.node, use.idx) for use in value.uses()]
        if not uses or value.is_graph_input() or value.is_graph_output() or _GENERATED.match(name):
            continue
        base = _VARIABLE.sub("", first_operation(without_number(name)))
        role = _role_of_use(*uses[0], graph.opset_imports[""])
        if without_number(name) in repeated and (shared := _shared_name(uses, graph.opset_imports[""])):
            base = shared
        elif without_number(name) in repeated or _OPERATION.match(name) or _hides_role(name, base, role):
            base = with_suffix(base, f"/{role}")
        elif base == without_number(name):
            continue
        del graph.initializers[name]
        value.name = names.unique(base)
        graph.register_initializer(value)
        changed = True
    return changed


def _hides_role(name: str, base: str, role: str) -> bool:
    """True for the name of an operation, with scopes, that does not state that the constant is its weight or bias."""
    return role in _STATED and ("/" in name or ";" in name) and not _STATED[role].search(base)


def _drop_suffixes(graph: ir.Graph, names: UniqueNames) -> bool:
    """Drop the suffix ``#n`` of names that are unique without it.

    Return True if a name changed.
    """
    changed = False
    for name, value in [*graph.initializers.items()]:
        base = without_number(name)
        is_kept = base == name or value.is_graph_input() or _GENERATED.match(name)
        if not is_kept and names.unique(base) == base:
            del graph.initializers[name]
            value.name = base
            graph.register_initializer(value)
            changed = True
    for value in [value for node in graph.all_nodes() for value in node.outputs]:
        base = without_number(value.name or "")
        if base != value.name and not value.is_graph_output() and names.unique(base) == base:
            value.name = base
            changed = True
    return changed


def _name_dequantized(graph: ir.Graph, names: UniqueNames) -> bool:
    """Name dequantized constants after the constants; return True if a name changed."""
    changed = False
    for node in graph.all_nodes():
        stored, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        numbered = node.op_type == "DequantizeLinear" and _NUMBERED.match(result.name or "")
        if numbered and stored is not None and _is_constant(stored, graph) and not result.is_graph_output():
            result.name = names.unique(with_suffix(stored.name or "", ":float"))
            changed = True
    return changed


def _copy(value: ir.Value) -> ir.Value:
    return ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)


def _are_equal(first: ir.Value, second: ir.Value) -> bool:
    """True if two small constants have the same dtype, shape and elements."""
    first_tensor, second_tensor = first.const_value, second.const_value
    if first_tensor is None or second_tensor is None or not _is_small(first) or not _is_small(second):
        return False
    return (
        first_tensor.dtype == second_tensor.dtype
        and first_tensor.shape == second_tensor.shape
        and first_tensor.tobytes() == second_tensor.tobytes()
    )


def _is_small(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size <= MAX_COPIED_ELEMENTS


def _constant_name(node: ir.Node, slot: int, opset: int) -> str:
    """Return the name of a constant operand, from the tensor that it quantizes or its role in the operator."""
    tensor = None
    if _is_parameter(node, slot):
        tensor = node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]
    if tensor is not None and tensor.name and (tensor.is_graph_input() or not _GENERATED.match(tensor.name)):
        return with_suffix(quantized_name(tensor), f"/{_PARAMETERS[slot]}")
    return with_suffix(operator_name(node), f"/{_role_of_use(node, slot, opset)}")


def _shared_name(node_slots: Sequence[tuple[ir.Node, int]], opset: int) -> str | None:
    """Return a name that none of several users of a constant owns: their common scopes and the role; None for one user."""
    operators = [*dict.fromkeys(operator_name(node) for node, _ in node_slots)]
    if len(operators) == 1:
        return None
    roles = dict.fromkeys(_role_of_use(node, slot, opset) for node, slot in node_slots)
    return "/".join([*(common_scopes(operators) or ["shared"]), "_and_".join(roles)])


def _name_by_result(node: ir.Node, slot: int, opset: int) -> str:
    """Return the name of a constant operand, from the result of its node and its role; with the node's type if it is the last
    of its operator, whose name the result has.
    """
    result = node.outputs[0].name or ""
    step = f"/{node.op_type}" if result == operator_name(node) else ""
    return with_suffix(result, f"{step}/{_role_of_use(node, slot, opset)}")


def _role_of_use(node: ir.Node, slot: int, opset: int) -> str:
    """Return the role of a constant operand.

    A dequantized constant has the role of the result.
    """
    user = next(iter(node.outputs[0].uses()), None) if node.op_type == "DequantizeLinear" and slot == 0 else None
    return _role(node, slot, opset) if user is None else _role(user.node, user.idx, opset)


def _role(node: ir.Node, slot: int, opset: int) -> str:
    """Return the role of an operand: the one that its handler gives, or its formal name in the schema.

    The last formal operand of a variadic operator repeats.
    """
    operand = node.inputs[slot]
    role = node.meta.get(ROLES, {}).get(slot) or (None if operand is None else operand.meta.get(ROLE))
    if role:
        return str(role)
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None or not schema.inputs:
        return f"operand{slot}"
    formal = schema.inputs[min(slot, len(schema.inputs) - 1)].name
    return _ROLES_BY_OPERATOR.get((node.op_type, formal)) or _ROLES.get(formal, formal.lower())
