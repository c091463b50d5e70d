"""Checks of a finished model for operators that the target does not support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.errors import Problem, TargetRefusal
from onnx_tflite_plugin.graph.node_metadata import source_handler, source_name, source_operators
from onnx_tflite_plugin.rewrite.weights.dtypes import ONNX_RUNTIME_DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir

_MAX_ORIGINS = 3  # maximum number of TFLite operators that a warning names
TRANSPOSE = "Transpose"


def check_model(model: ir.Model, target: Target, opset: int) -> None:
    """Raise TargetRefusal for operators that the target does not support.

    This includes operators on int8 tensors that ONNX Runtime fails to load.
    """
    missing = [node for node in model.graph.all_nodes() if not node.domain and _is_missing(node, target)]
    problems = [
        Problem(
            f"node {node.name!r}", f"target {target.name} has no {node.op_type}", target.missing_operators[node.op_type]
        )
        for node in missing
    ]
    problems += [
        Problem(
            f"node {node.name!r}",
            f"target {target.name} has no {node.domain}.{node.op_type}, an operator of ONNX Runtime",
            f"--target onnxruntime, or --block {source_handler(node.metadata_props)[1]}",
        )
        for node in model.graph.all_nodes()
        if node.domain and _is_missing(node, target)
    ]
    if opset >= target.no_int8_moves_opset:
        remedy = f"--opset {target.no_int8_moves_opset - 1}, or --target onnxruntime"
        problems += [
            Problem(f"node {name!r}", f"ONNX Runtime does not load int8 {op_type} at opset {opset}", remedy)
            for name, op_type in _int8_movements(model, target.no_int8_moves)
        ]
    if problems:
        raise TargetRefusal(f"nodes that target {target.name} does not support:", problems)


def unaccelerated_warnings(model: ir.Model, target: Target) -> list[str]:
    """Return at most one warning, on operators that the target's accelerator lacks.

    The warning names the TFLite operators that are lowered to these operators.
    """
    if not target.accelerated_operators:
        return []
    nodes = [
        node for node in model.graph.all_nodes() if node.domain or node.op_type not in target.accelerated_operators
    ]
    if not nodes:
        return []
    op_types = ", ".join(dict.fromkeys(node.op_type for node in nodes))
    origins = dict.fromkeys(
        f"op {index} {source_name(node.metadata_props)!r}"
        for node in nodes
        for subgraph, index in source_operators(node.metadata_props)[:1]
        if subgraph == 0
    )
    origin_list = f" (of {list_first([*origins], _MAX_ORIGINS)})" if origins else ""
    return [
        f"the accelerator has no {op_types}{origin_list}; these nodes and all operators whose shapes depend on their "
        "results run on the CPU; use --outputs to end the model before them"
    ]


def describe_added_operators(before: ir.Model, model: ir.Model, target: Target) -> str:
    """Return a message on a pack's added operators that the target lacks; "" if none."""
    added_operators = sorted(_missing_operators(model, target) - _missing_operators(before, target))
    return f"it added {', '.join(added_operators)}, which target {target.name} does not have" if added_operators else ""


def _missing_operators(model: ir.Model, target: Target) -> set[str]:
    """Return the operators of a model that the target lacks, with their domains."""
    missing = (node for node in model.graph.all_nodes() if _is_missing(node, target))
    return {f"{node.domain}.{node.op_type}".lstrip(".") for node in missing}


def _is_missing(node: ir.Node, target: Target) -> bool:
    """True if the target lacks a node's operator.

    Only operators of the standard domain and of ONNX Runtime's domains are checked. The user provides operators of
    other domains.
    """
    if not node.domain:
        return node.op_type in target.missing_operators
    return node.domain.startswith(ONNX_RUNTIME_DOMAIN) and node.domain not in target.domains


def _int8_movements(model: ir.Model, moves: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """Yield name and operator of int8 nodes that ONNX Runtime fails to load.

    These are nodes of ``moves`` whose operand is dequantized from int8, or whose result is quantized to int8. A
    Transpose fails only next to an operator between DequantizeLinear and QuantizeLinear, because ONNX Runtime first
    moves it across other operators. A MatMul of a dequantized operand fails before an Add.
    """
    for node in model.graph.all_nodes():
        if (
            node.op_type in moves
            and _has_quantized_side(node)
            and (node.op_type != TRANSPOSE or _is_next_to_quantized_node(node))
        ):
            yield node.name, node.op_type
        elif node.op_type == "MatMul" and _feeds_add(node) and any(_is_dequantized(value) for value in node.inputs):
            yield node.name, "MatMul and Add"


def _has_quantized_side(node: ir.Node) -> bool:
    return _is_dequantized(node.inputs[0]) or _is_quantized(node.outputs[0])


def _is_next_to_quantized_node(node: ir.Node) -> bool:
    """True if a node is next to a quantized operator.

    Such an operator is between DequantizeLinear and QuantizeLinear. It reads the node's result or computes its operand.
    """
    producer_node = node.inputs[0].producer() if node.inputs[0] is not None else None
    users = [user for user, _ in node.outputs[0].uses()]
    if _is_dequantized(node.inputs[0]):
        return any(_is_quantized(output) for user in users for output in user.outputs)
    return producer_node is not None and any(_is_dequantized(value) for value in producer_node.inputs)


def _feeds_add(node: ir.Node) -> bool:
    return any(user.op_type == "Add" for user, _ in node.outputs[0].uses())


def _is_dequantized(value: ir.Value | None) -> bool:
    producer_node = value.producer() if value is not None else None
    return (
        producer_node is not None and producer_node.op_type == "DequantizeLinear" and _is_int8(producer_node.inputs[0])
    )


def _is_quantized(value: ir.Value) -> bool:
    return any(user.op_type == "QuantizeLinear" and _is_int8(user.outputs[0]) for user, _ in value.uses())


def _is_int8(value: ir.Value | None) -> bool:
    return (
        value is not None and value.const_value is None and value.type is not None and value.type.dtype.name == "INT8"
    )
