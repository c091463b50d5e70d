"""Give values and nodes names that people can read.

Examples are ``edges:unquantized`` instead of ``op1/Conv:out``, and ``input:NCHW`` instead of ``input:0,3,1,2``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.api.roles import ROLE
from onnx_tflite_plugin.graph.names import UniqueNames, first_operation, shorten_name, with_suffix, without_number
from onnx_tflite_plugin.graph.node_metadata import source_name, source_operators
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.lowering.conversions import DEQUANTIZES
from onnx_tflite_plugin.lowering.schemas import schema_of
from onnx_tflite_plugin.lowering.values import TENSOR_NAME, VARIANT

OPERATOR, PARAMETERS_OF = "onnx_tflite_plugin.operator", "onnx_tflite_plugin.parameters_of"
"""Keys in ``meta``, which is not stored in files: the operator of a node, and the value that names scale and zero point."""
_CHANNELS_FIRST_LAYOUTS = {(0, 3, 1, 2): "NCHW", (0, 4, 1, 2, 3): "NCDHW"}
_CHANNELS_LAST_LAYOUTS = {(0, 2, 3, 1): "NHWC", (0, 2, 3, 4, 1): "NDHWC"}
_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
MOVES = _RESHAPES | {"Transpose"}
_MOVED_SUFFIXES = frozenset(
    {
        f":{text}"
        for text in ("reshaped", "transposed", *_CHANNELS_FIRST_LAYOUTS.values(), *_CHANNELS_LAST_LAYOUTS.values())
    }
    | {":before_activation", ":before_max", ":before_min", *(f":before_{kind.lower()}" for kind in MOVES)}
)
"""Suffixes of values that share scale and zero point with the value without suffix."""
_ACTIVATIONS = frozenset({"Clip", "Elu", "Gelu", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid", "Sign", "Tanh"})


_Origin = tuple[str, tuple[tuple[int, int], ...]]
"""Name and TFLite operators of a node. Several operators may have the same name."""


class NameValues(InPlacePass):
    """Rename computed values, and number nodes in their order.

    Graph inputs and outputs keep their names. If another value holds the TFLite tensor of the graph input ``x``, it is
    named after ``x``: ``x:float``, not ``serving_default_x:0:float``. A value that holds no TFLite tensor is named after the next
    tensor that is computed from it, or after the tensor that it reshapes or transposes. Otherwise its name consists of its
    operator, and the role that the handler states or the name of its node.
    """

    def __init__(self, outer_scopes: str = "") -> None:
        """Store the scopes that are removed from all names (see :func:`shared_scopes`)."""
        self._outer_scopes = outer_scopes

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        fixed_values = {*graph.inputs, *graph.outputs}
        tensor_names = _name_tensors(graph, fixed_values)
        _name_operators(graph, tensor_names, self._outer_scopes)
        _number_nodes(graph)
        names = UniqueNames()
        for name in (*(value.name for value in fixed_values), *graph.initializers, *_inner_input_names(graph)):
            names.claim(name or "")
        computed = {value.name for value in fixed_values}
        stems = {value: stem for value, (stem, _) in tensor_names.items()}
        for node in graph.all_nodes():
            for result in node.outputs:
                if result in fixed_values or not result.name or _is_dequantized_constant(node):
                    continue
                stem, suffix = tensor_names.get(result) or _describe_intermediate(
                    node, result, tensor_names, stems, graph.opset_imports
                )
                name = with_suffix(stem, suffix)
                if not suffix and name in computed:  # several operators have the name of one module
                    name = with_suffix(stem, f"/{node.op_type}")
                computed.add(name)
                result.name = names.unique(name)
                if not suffix.startswith("/"):
                    stems[result] = stem
                if suffix in _MOVED_SUFFIXES:
                    original = node.inputs[0] if node.op_type in MOVES else None
                    result.meta[PARAMETERS_OF] = stem if original is None else original
        return PassResult(model, True)


def quantized_name(value: ir.Value) -> str:
    """Return the name that scale and zero point of a quantized value are named after.

    All layouts of a tensor have the same scale and zero point, and so the same name.
    """
    original = value.meta.get(PARAMETERS_OF)
    return quantized_name(original) if isinstance(original, ir.Value) else str(original or value.name or "")


def operator_name(node: ir.Node) -> str:
    """Return the name of the TFLite operator of a node: the name of its first result."""
    return str(node.meta.get(OPERATOR) or shorten_name(source_name(node.metadata_props)) or node.op_type.lower())


def _origin(node: ir.Node) -> _Origin:
    return source_name(node.metadata_props), source_operators(node.metadata_props)


def _name_tensors(graph: ir.Graph, fixed_values: set[ir.Value]) -> dict[ir.Value, tuple[str, str]]:
    """Return stem and suffix of the name of each value that holds a TFLite tensor.

    ``fixed_values``: graph inputs and outputs, which keep their names.
    """
    interface: dict[tuple[int, int], ir.Value] = {}
    for value in (*graph.inputs, *graph.outputs):
        tensor = read_tensor("", value.metadata_props)
        if tensor is not None:
            interface.setdefault((tensor.subgraph, tensor.tensor), value)
    tensor_names = {value: (value.name or "", "") for value in fixed_values}
    for node in graph.all_nodes():
        for value in node.outputs:
            tensor, name = read_tensor("", value.metadata_props), value.meta.get(TENSOR_NAME)
            if value in fixed_values or name is None:
                continue
            graph_value = None if tensor is None else interface.get((tensor.subgraph, tensor.tensor))
            stem = shorten_name(first_operation(str(name) if graph_value is None else graph_value.name or ""))
            tensor_names[value] = stem, _suffix(value, node, str(value.meta.get(VARIANT, "")), graph_value)
    return tensor_names


def _suffix(value: ir.Value, node: ir.Node, variant: str, graph_value: ir.Value | None) -> str:
    """Return the suffix that distinguishes the values of one tensor.

    ``graph_value``: the graph input or output of the same tensor, if any.
    """
    if variant == "float":
        return ":float"
    has_other_dtype = variant == "file" if graph_value is None else value.dtype != graph_value.dtype
    if has_other_dtype:
        return "" if value.dtype is None else f":{value.dtype.name.lower()}"
    return f":{_layout(value, node) or _movement(node)}" if variant or graph_value is not None else ""


def _layout(value: ir.Value, node: ir.Node) -> str | None:
    """Return the letters of an image's layout, such as NCHW, or None."""
    tensor = read_tensor("", value.metadata_props)
    order = None if tensor is None else tensor.order
    if order is not None and order in _CHANNELS_FIRST_LAYOUTS:
        return _CHANNELS_FIRST_LAYOUTS[order]
    perm = tuple(node.attributes["perm"].as_ints()) if node.op_type == "Transpose" and "perm" in node.attributes else ()
    return _CHANNELS_LAST_LAYOUTS.get(perm)


def _movement(node: ir.Node) -> str:
    return "reshaped" if node.op_type in _RESHAPES else "transposed"


def _name_operators(graph: ir.Graph, tensor_names: dict[ir.Value, tuple[str, str]], outer_scopes: str) -> None:
    """Store the name of the TFLite operator in each node.

    The name is the stem of the first tensor that has the operator's name in the TFLite file.
    """
    stems: dict[_Origin, str] = {}
    for node in graph.all_nodes():
        for value in node.outputs:
            name, stem_and_suffix = source_name(node.metadata_props), tensor_names.get(value)
            if stem_and_suffix is not None and shorten_name(name, outer_scopes=outer_scopes) in (
                value.meta.get(TENSOR_NAME),
                value.name,
            ):
                stems.setdefault(_origin(node), stem_and_suffix[0])
    for node in graph.all_nodes():
        name = source_name(node.metadata_props)
        if name:
            node.meta[OPERATOR] = stems.get(_origin(node)) or shorten_name(name, outer_scopes=outer_scopes)


def quantized_operand(node: ir.Node) -> ir.Value | None:
    """Return the quantized value that a node helps to dequantize, else None."""
    if not dequantizes(node):
        return None
    value = node.inputs[0]
    producer = None if value is None else value.producer()
    return value if producer is None or not dequantizes(producer) else quantized_operand(producer)


def dequantizes(node: ir.Node) -> bool:
    """True for a DequantizeLinear, or for the Cast, Sub or Mul that replaces one."""
    return node.op_type == "DequantizeLinear" or DEQUANTIZES in node.outputs[0].meta


def dequantized_suffix(node: ir.Node) -> str:
    """Return the suffix of the result of a node that dequantizes."""
    user = next((use.node for use in node.outputs[0].uses()), None)
    is_step = node.op_type in ("Cast", "Sub") and user is not None and dequantizes(user)
    return f":before_{user.op_type.lower()}" if is_step and user is not None else ":float"


def _is_dequantized_constant(node: ir.Node) -> bool:
    """True for a node that dequantizes a constant; NameConstants names its result."""
    source = quantized_operand(node)
    return source is not None and source.const_value is not None


def _describe_intermediate(
    node: ir.Node,
    value: ir.Value,
    tensor_names: dict[ir.Value, tuple[str, str]],
    stems: dict[ir.Value, str],
    opsets: Mapping[str, int],
) -> tuple[str, str]:
    """Return the stem and the suffix of the name of a value that holds no tensor.

    ``stems``: the stems of values that are computed before it. ``opsets``: the model's opsets, which inner graphs do not
    store.
    """
    if role := value.meta.get(ROLE):
        return operator_name(node), f"/{role}"
    source = node.inputs[0] if node.inputs else None
    stem = None if source is None else stems.get(source)
    if dequantizes(node) and stem is not None:
        return stem, _describe_requantization(node, stem, tensor_names) or (
            ":steps" if _has_unit_scale(node) else dequantized_suffix(node)
        )
    if node.op_type in MOVES and source in tensor_names:
        return tensor_names[source][0], f":{_movement(node)}"
    name_before_tensor = _name_before(node, value, tensor_names)
    if name_before_tensor is not None:
        return name_before_tensor
    if node.op_type in MOVES and stem is not None:
        return stem, f":{_movement(node)}"
    node_name = (node.name or node.op_type).rpartition("/")[2]
    return operator_name(node), f"/{node_name}{_describe_output(node, value, opsets)}"


def _describe_requantization(node: ir.Node, stem: str, tensor_names: dict[ir.Value, tuple[str, str]]) -> str:
    """Return a suffix such as ``:int8_to_uint8``, else "".

    A tensor is dequantized by ``node``, and then quantized to a different dtype.
    """
    users, old_value = [use.node for use in node.outputs[0].uses()], quantized_operand(node)
    if len(users) != 1 or users[0].op_type != "QuantizeLinear" or old_value is None:
        return ""
    new_value = users[0].outputs[0]
    dtypes = [value.dtype.name.lower() for value in (old_value, new_value) if value.dtype is not None]
    is_same_tensor = new_value in tensor_names and tensor_names[new_value][0] == stem and len({*dtypes}) == 2
    return f":{'_to_'.join(dtypes)}" if is_same_tensor else ""


def _has_unit_scale(node: ir.Node) -> bool:
    """True if a handler converts quantized values to float without their scale."""
    scale = node.inputs[1].const_value if node.op_type == "DequantizeLinear" and node.inputs[1] is not None else None
    return scale is not None and scale.size == 1 and scale.numpy().item() == 1


def _describe_output(node: ir.Node, value: ir.Value, opsets: Mapping[str, int]) -> str:
    """Return the suffix of one of several results.

    The suffix is the name of the result in ONNX's schema, or ``output2`` if the operator has a list of results.
    """
    if len(node.outputs) == 1:
        return ""
    index = node.outputs.index(value)
    schema = schema_of(node.op_type, opsets.get(node.domain, 1), node.domain)
    schema_outputs = schema.outputs if schema is not None else ()
    is_list = len(schema_outputs) < len(node.outputs) or len(schema_outputs) == 1
    return f"/output{index}" if is_list else f"/{schema_outputs[index].name.lower()}"


def _name_before(
    node: ir.Node, value: ir.Value, tensor_names: dict[ir.Value, tuple[str, str]]
) -> tuple[str, str] | None:
    """Return stem and suffix of a value whose only user computes a TFLite tensor.

    The stem is the tensor's. The suffix depends on the user: ``:unquantized`` before a QuantizeLinear. Between value and
    tensor, there may be several activations, reshapes or QuantizeLinear nodes. Return None if the tensor belongs to another
    TFLite operator.
    """
    users = [*value.uses()]
    if len(users) != 1 or not users[0].node.outputs or users[0].node.graph is not node.graph:
        return None
    user = users[0].node
    if _origin(user) != _origin(node):
        return None
    operands = [operand for operand in user.inputs if operand is not None and operand.const_value is None]
    if operands != [value]:
        return None
    result = user.outputs[0]
    if result in tensor_names:
        return tensor_names[result][0], _suffix_before(user)
    is_step = user.op_type in _ACTIVATIONS | MOVES | {"Max", "Min", "QuantizeLinear"}
    name_of_result = _name_before(user, result, tensor_names) if is_step else None
    return None if name_of_result is None else (name_of_result[0], _suffix_before(user))


def _suffix_before(user: ir.Node) -> str:
    if user.op_type == "QuantizeLinear":
        return ":unquantized"
    return ":before_activation" if user.op_type in _ACTIVATIONS else f":before_{user.op_type.lower()}"


def _inner_input_names(graph: ir.Graph) -> Iterator[str]:
    """Yield the names of the inputs of inner graphs."""
    for node in graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from (value.name or "" for value in attribute.as_graph().inputs)


def _number_nodes(graph: ir.Graph) -> None:
    """Number nodes with the same name in their order in the graph."""
    names = UniqueNames()
    for node in graph.all_nodes():
        if node.name:
            node.name = names.unique(without_number(node.name))
