"""Values that depend only on constants, evaluated during the conversion."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.budget import spend_budget
from onnx_tflite_plugin.source.model import Array

if TYPE_CHECKING:
    import onnx


class NotConstant(LookupError):
    """A value that depends on a graph input, so it cannot be computed at conversion."""


def evaluate_constant(value: ir.Value, opsets: Mapping[str, int], purpose: str) -> Array:
    """Compute, with the reference evaluator, a value that depends only on constants.

    ``opsets``: opset by domain. ``purpose``: the use of the value, for the message of OverBudget. Raises NotConstant if
    the value depends on a graph input, and OverBudget if its arrays would take too much memory.
    """
    if value.const_value is not None:
        return np.asarray(value.const_value.numpy())
    nodes, constants = producing_nodes(value)
    import onnx

    protos = [ir.to_proto(node) for node in nodes]
    tensors = [ir.to_proto(constant.const_value) for constant in constants.values() if constant.const_value is not None]
    output = onnx.helper.make_empty_tensor_value_info(value.name or "")
    graph = onnx.helper.make_graph(protos, "constant", [], [output], tensors)
    imports = [onnx.helper.make_opsetid(domain, opsets[domain]) for domain in {node.domain for node in nodes}]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    _spend_on_evaluation(onnx.shape_inference.infer_shapes(model, data_prop=True), purpose)
    arrays = {
        name: np.asarray(constant.const_value.numpy())
        for name, constant in constants.items()
        if constant.const_value is not None
    }
    for node, proto in zip(nodes, protos, strict=True):
        # The reference evaluator lacks DequantizeLinear before opset 19; the operator of opset 19 is equivalent.
        opset = max(opsets[node.domain], 19) if node.op_type == "DequantizeLinear" else opsets[node.domain]
        arrays |= _run_node(proto, arrays, opset)
    return arrays[value.name or ""]


def _run_node(node: onnx.NodeProto, arrays: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Return the results of one node by name, computed by the reference evaluator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    operands = {name: arrays[name] for name in node.input if name}
    inputs, outputs = (
        [onnx.helper.make_empty_tensor_value_info(name) for name in names if name] for names in (operands, node.output)
    )
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
    results = ReferenceEvaluator(model).run(None, operands)
    return dict(zip((info.name for info in outputs), map(np.asarray, results), strict=True))


def producing_nodes(value: ir.Value) -> tuple[list[ir.Node], dict[str, ir.Value]]:
    """Return the sorted nodes that compute a value, and their constants.

    Raises NotConstant if the value depends on a graph input.
    """
    nodes: dict[ir.Node, bool] = {}  # True while its operands are pending
    constants: dict[str, ir.Value] = {}
    order: list[ir.Node] = []
    pending = [value]
    while pending:
        needed = pending[-1]
        node = needed.producer()
        if needed.const_value is not None and not needed.is_graph_input():
            constants[needed.name or ""] = needed
            pending.pop()
        elif node is None:
            raise NotConstant(f"{needed.name!r} is a runtime value")
        elif node not in nodes:
            nodes[node] = True
            pending.extend(operand for operand in node.inputs if operand is not None)
        else:
            pending.pop()
            if nodes[node]:
                nodes[node] = False
                order.append(node)
    return order, constants


def _spend_on_evaluation(model: onnx.ModelProto, purpose: str) -> None:
    """Deduct all arrays of known size in an evaluation from the budget."""
    for info in (*model.graph.value_info, *model.graph.output):
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        spend_budget(prod(dims), 8, f"{purpose}, with {info.name!r} of shape {dims},")
