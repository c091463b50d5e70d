"""Remove Reshapes, which cost a kernel call each.

A Reshape copies no elements, but in small networks the overhead of the call matters. Before a Reshape to a constant shape, any
other Reshape is useless. Before an operator that broadcasts, a Reshape that drops leading axes of size 1 is useless. If tensors are
unsqueezed and concatenated, one Reshape after the Concat replaces the Unsqueeze of each tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import BROADCASTING
from onnx_tflite_plugin.rewrite.editor import Editor, clear_metadata, copy_tensor_metadata
from onnx_tflite_plugin.rewrite.matching import Affine, constant, integer, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_RESHAPE_OPERATORS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


class Match(NamedTuple):
    """The last Reshape of a chain, and the ``value`` before the chain.

    ``is_useless``: the value already has the shape of the result.
    """

    reshape: ir.Node
    value: ir.Value
    is_useless: bool


def check(reshape: ir.Node) -> Match:
    """Return the match if a tensor is reshaped several times in succession."""
    value = reshape.inputs[0]
    while (earlier := producer(value, *_RESHAPE_OPERATORS)) is not None:
        value = earlier.inputs[0]
    require(value is not reshape.inputs[0])
    target = require_match(constant(reshape.inputs[1]), "the shape is not constant")
    require(target.all(), "the target shape contains 0, which copies an input dimension")
    is_useless = _has_shape(sizes(value), target) and not reshape.outputs[0].is_graph_output()
    return Match(reshape, require_match(value), is_useless)


def rewrite(_: Editor, match: Match) -> None:
    """Remove all Reshapes of a chain except the last one.

    The last one is removed too if it is useless. The metadata of values within the chain is copied to the remaining
    values.
    """
    target, reshaped = constant(match.reshape.inputs[1]), match.reshape.inputs[0]
    while reshaped is not None and reshaped is not match.value:
        copy_tensor_metadata(match.value, sizes(match.value), reshaped)
        if target is not None:
            copy_tensor_metadata(match.reshape.outputs[0], target.tolist(), reshaped)
        producer_node = reshaped.producer()
        reshaped = None if producer_node is None else producer_node.inputs[0]
    if not match.is_useless:
        match.reshape.replace_input_with(0, match.value)
        return
    for use in match.reshape.outputs[0].uses():
        use.node.replace_input_with(use.idx, match.value)


merge_reshapes = RewriteRule(nodes("Reshape"), check, rewrite)


def _has_shape(shape: Sequence[int | None] | None, target: Array) -> bool:
    """True if a shape matches the target, in which -1 matches any size."""
    return (
        shape is not None
        and len(shape) == len(target)
        and all(size == target_size or target_size == -1 for size, target_size in zip(shape, target, strict=True))
    )


# --- axes of size 1 ---------------------------------------------------------------------------


class UnitAxes(NamedTuple):
    """The operand and the result of a Reshape that drops leading axes of size 1."""

    value: ir.Value
    result: ir.Value


def check_unit_axes(reshape: ir.Node) -> UnitAxes:
    """Return the match if a Reshape drops leading axes that all readers broadcast."""
    value, result = require_match(reshape.inputs[0]), reshape.outputs[0]
    before, after = require_match(sizes(value)), require_match(sizes(result))
    dropped_count = len(before) - len(after)
    require(dropped_count > 0 and before == [1] * dropped_count + after)
    require(value.shape and None not in before, "a size is dynamic")
    require(result.uses() and not result.is_graph_output(), "the result is unused or a graph output")
    require(
        all(_is_unaffected(user, len(before)) for user, _ in result.uses()),
        "the result of an operator that reads the tensor would have more axes",
    )
    return UnitAxes(value, result)


def rewrite_unit_axes(_: Editor, match: UnitAxes) -> None:
    """Replace the result of the Reshape with its operand."""
    for user, slot in match.result.uses():
        user.replace_input_with(slot, match.value)
        if user.op_type == "DequantizeLinear":
            user.outputs[0].shape = match.value.shape
            clear_metadata(user.outputs[0])


drop_unit_axes = RewriteRule(nodes("Reshape"), check_unit_axes, rewrite_unit_axes)


def _is_unaffected(node: ir.Node, rank: int) -> bool:
    """True if the node's result keeps its rank when an operand gets ``rank`` axes.

    For a DequantizeLinear, this must hold for the results of all readers.
    """
    if node.domain == "" and node.op_type == "DequantizeLinear":
        parameters = Affine.of(node)
        users = [user for user, _ in node.outputs[0].uses()]
        is_scalar = parameters is not None and parameters.per_tensor and not parameters.scale.ndim
        return (
            is_scalar
            and not node.outputs[0].is_graph_output()
            and all(_has_broadcast_rank(user, rank) for user in users)
        )
    return _has_broadcast_rank(node, rank)


def _has_broadcast_rank(node: ir.Node, rank: int) -> bool:
    """True if a node broadcasts, and one of its operands has at least this rank."""
    ranks = [len(shape) for value in node.inputs if (shape := sizes(value)) is not None]
    return node.domain == "" and node.op_type in BROADCASTING - {"PRelu"} and max(ranks, default=0) >= rank


# --- stacks -----------------------------------------------------------------------------------

_MIN_PARTS = 3


class Stack(NamedTuple):
    """A Concat of parts of shape ``shape``, each unsqueezed at ``axis``."""

    concat: ir.Node
    parts: Sequence[ir.Value]
    axis: int
    shape: Sequence[int]


def check_stack(concat: ir.Node) -> Stack:
    """Return the match if enough static tensors are unsqueezed for this Concat only."""
    axis = integer(concat, "axis", 0)
    require(len(concat.inputs) >= _MIN_PARTS, f"the Concat has fewer than {_MIN_PARTS} operands")
    parts = [require_match(_match_unsqueeze(value, axis)) for value in concat.inputs]
    shape = require_match(sizes(parts[0]), "the rank of the operands is unknown")
    require(shape and None not in shape, "a size is dynamic")
    require(0 <= axis < len(shape), "the new axis is the last axis")
    return Stack(concat, parts, axis, [size or 0 for size in shape])


def rewrite_stack(editor: Editor, stack: Stack) -> None:
    """Emit a Concat along an existing axis of the parts, and one Reshape."""
    concat, parts, axis, shape = stack
    with editor.replacing(concat):
        concatenated = editor.emit("Concat", *parts, axis=axis)
        stacked = editor.emit("Reshape", concatenated, np.asarray([*shape[:axis], len(parts), *shape[axis:]], np.int64))
    editor.replace_value(concat.outputs[0], stacked)


reshape_after_concat = RewriteRule(nodes("Concat"), check_stack, rewrite_stack)


def _match_unsqueeze(value: ir.Value | None, axis: int) -> ir.Value | None:
    """Return the operand of an Unsqueeze at ``axis`` that only a Concat reads."""
    unsqueeze = producer(value, "Unsqueeze")
    if value is None or unsqueeze is None or only_user(value, "Concat") is None:
        return None
    axes = constant(unsqueeze.inputs[1]) if len(unsqueeze.inputs) > 1 else None
    return unsqueeze.inputs[0] if axes is not None and axes.tolist() == [axis] else None
