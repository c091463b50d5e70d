"""Look up quantized values channels last between 8-bit convolutions.

ONNX Runtime computes 8-bit convolutions channels last, and inserts Transposes around them. It moves these Transposes through
elementwise operators, but not through a lookup, which is a GatherElements between Reshapes. The rule emits inverse Transposes
before and after a lookup. ONNX Runtime cancels its own Transposes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import CHANNELS_FIRST, CHANNELS_LAST, constant, only_user, producer
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match

_ELEMENTWISE = frozenset({"Add", "Cast", "Clip", "Mul", "QuantizeLinear", "DequantizeLinear", "Relu", "Sub"})
"""Operators through which ONNX Runtime moves Transposes."""
_LOOKUP = frozenset({"Cast", "GatherElements", "Reshape", "Transpose"})
"""Operators of a lookup, also after this rewrite."""


class Match(NamedTuple):
    """A lookup with the Reshapes before and after it, and the shape of the image."""

    flatten: ir.Node
    restore: ir.Node
    shape: list[int]


def check(lookup: ir.Node) -> Match:
    """Return the match if the lookup is between 8-bit convolutions of an image."""
    flatten = require_match(producer(lookup.inputs[1], "Reshape"))
    restore = require_match(only_user(lookup.outputs[0], "Reshape"))
    shape = constant(restore.inputs[1])
    require(only_user(flatten.outputs[0], "GatherElements") is lookup, "the values have other users")
    require(shape is not None and shape.shape == (4,))
    assert shape is not None
    require(shape[1] > 1 and (shape[2:] != 1).any())
    require(_reaches_convolution(flatten.inputs[0], _upstream), "no 8-bit convolution computes the image")
    require(_reaches_convolution(restore.outputs[0], _downstream), "no 8-bit convolution reads the image")
    return Match(flatten, restore, [int(size) for size in shape])


def rewrite(editor: Editor, match: Match) -> None:
    """Emit a Transpose to channels last before the lookup, and its inverse after it."""
    flatten, restore, (batch, channels, *size) = match
    with editor.replacing(flatten):
        flatten.replace_input_with(0, editor.emit("Transpose", flatten.inputs[0], perm=CHANNELS_LAST))
    result = restore.outputs[0]
    with editor.replacing(restore):
        image = editor.emit("Reshape", restore.inputs[0], np.asarray([batch, *size, channels]))
        channels_first = editor.emit("Transpose", image, perm=CHANNELS_FIRST)
    editor.replace_value(result, channels_first)


lookup_channels_last = RewriteRule(nodes("GatherElements"), check, rewrite)


def _upstream(value: ir.Value) -> Iterable[tuple[ir.Node, ir.Value | None]]:
    """Return pairs of a value's producer and each of its operands."""
    node = value.producer()
    return [] if node is None else [(node, operand) for operand in node.inputs or [None]]


def _downstream(value: ir.Value) -> Iterable[tuple[ir.Node, ir.Value | None]]:
    """Return pairs of a user and each of its results, for all users of a value.

    A convolution is included only if the value is its image.
    """
    return [
        (use.node, result)
        for use in value.uses()
        if use.node.op_type != "Conv" or use.idx == 0
        for result in use.node.outputs
    ]


def _reaches_convolution(
    value: ir.Value | None, neighbors: Callable[[ir.Value], Iterable[tuple[ir.Node, ir.Value | None]]]
) -> bool:
    """True if elementwise nodes and lookups connect a value to an 8-bit convolution.

    ``neighbors``: the direction of the search, ``_upstream`` or ``_downstream``.
    """
    pending, visited = [value], set[ir.Value]()
    while pending:
        value = pending.pop()
        if value is None or value in visited or value.const_value is not None:
            continue
        visited.add(value)
        for node, neighbor in neighbors(value):
            if node.op_type == "Conv" and all(producer(operand, "DequantizeLinear") for operand in node.inputs[:2]):
                return True
            if node.domain == "" and node.op_type in _ELEMENTWISE | _LOOKUP:
                pending.append(neighbor)
    return False
