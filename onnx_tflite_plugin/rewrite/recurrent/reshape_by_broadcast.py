"""A vector of one row is made a vector of no rows, and added to a matrix: the sum is the same without the Reshape, whose node costs
a call at each step of an unrolled recurrent layer.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import BROADCASTING
from onnx_tflite_plugin.rewrite.graph import Affine, Editor, forget, rewrite_nodes, sizes


def run(model: ir.Model) -> int:
    """Leave out Reshapes that drop leading axes which all that read them broadcast; returns how many."""
    return rewrite_nodes(model, "Reshape", _replace)


def _replace(_: Editor, node: ir.Node) -> bool:
    given, result = node.inputs[0], node.outputs[0]
    before, after = sizes(given), sizes(result)
    if given is None or before is None or after is None or None in before or not given.shape:
        return False
    dropped = len(before) - len(after)
    if dropped <= 0 or before != [1] * dropped + after or not _broadcast(result, len(before)):
        return False
    for user, slot in result.uses():
        user.replace_input_with(slot, given)
        if user.op_type == "DequantizeLinear":
            user.outputs[0].shape = given.shape
            forget(user.outputs[0])
    return True


def _broadcast(value: ir.Value, rank: int) -> bool:
    """Whether all that reads a value, dequantized or as it is, has a result of at least this rank anyhow."""
    if value.is_graph_output() or not value.uses():
        return False
    return all(_reads(user, rank) for user, _ in value.uses())


def _reads(node: ir.Node, rank: int) -> bool:
    if node.domain == "" and node.op_type == "DequantizeLinear":
        parameters = Affine.of(node)
        users = [user for user, _ in node.outputs[0].uses()]
        scalar = parameters is not None and parameters.per_tensor and not parameters.scale.ndim
        return scalar and not node.outputs[0].is_graph_output() and all(_adds(user, rank) for user in users)
    return _adds(node, rank)


def _adds(node: ir.Node, rank: int) -> bool:
    """Whether another operand has that rank."""
    ranks = [len(shape) for value in node.inputs if (shape := sizes(value)) is not None]
    return node.domain == "" and node.op_type in BROADCASTING - {"PRelu"} and max(ranks, default=0) >= rank
