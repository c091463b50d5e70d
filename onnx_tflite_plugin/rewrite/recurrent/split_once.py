"""The gates of an unrolled recurrent layer are parts of one tensor, of which most go through the same operators. Before it is split
they go through them at once, and in small networks each node costs a call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, integer, only_user, rewrite_nodes, sizes

_EACH = frozenset({"Cast", "DequantizeLinear", "Mul", "QuantizeLinear", "Relu", "Sigmoid", "Tanh"})
"""Element by element on the first operand, where the others are single numbers."""
_LARGEST = 1024  # elements, of which a node takes as long as of one
_CUT = 2  # nodes, which take as long as a Slice of what goes another way


def run(model: ir.Model) -> int:
    """Move nodes in front of Splits; returns of how many."""
    return rewrite_nodes(model, "Split", _replace)


@dataclass(frozen=True)
class Way:
    """What a part goes through, node by node."""

    part: ir.Value
    nodes: Sequence[ir.Node]

    @classmethod
    def of(cls, part: ir.Value) -> Way:
        nodes: list[ir.Node] = []
        value = part
        while (node := only_user(value, *_EACH)) is not None and _single(node):
            nodes.append(node)
            value = node.outputs[0]
        return cls(part, nodes)

    def shared(self, other: Way) -> int:
        """How many nodes from the first on are the same."""
        same = [_content(a) == _content(b) for a, b in zip(self.nodes, other.nodes, strict=False)]
        return (*same, False).index(False)


def _single(node: ir.Node) -> bool:
    """Whether all operands but the first are single constants."""
    arrays = [constant(value) for value in node.inputs[1:]]
    return all(array is not None and array.ndim == 0 for array in arrays)


def _content(node: ir.Node) -> tuple[object, ...]:
    arrays = [constant(value) for value in node.inputs[1:]]
    operands = tuple((array.dtype.name, array.tobytes()) for array in arrays if array is not None)
    return node.op_type, integer(node, "to", 0), node.outputs[0].dtype, operands


def _replace(editor: Editor, node: ir.Node) -> bool:
    whole, shape, lengths, axis = node.inputs[0], sizes(node.inputs[0]), _lengths(node), integer(node, "axis", 0)
    if whole is None or not lengths or not shape or None in shape or math.prod(size or 0 for size in shape) > _LARGEST:
        return False
    ways = [Way.of(part) for part in node.outputs]
    first = max(ways, key=lambda way: sum(_time(way.nodes[: way.shared(other)]) for other in ways if other is not way))
    depth = max((first.shared(way) for way in ways if way is not first), default=0)
    alike = [way for way in ways if first.shared(way) >= depth]
    others = [way for way in ways if first.shared(way) < depth and way.part.uses()]
    if _time(first.nodes[:depth]) * (len(alike) - 1) <= _CUT * len(others):
        return False
    with editor.replacing(node):
        value = whole
        for step in first.nodes[:depth]:
            value = editor.clone_on(step, value)
            value.shape = whole.shape
        parts = editor.emitter.emit("Split", [value, *node.inputs[1:]], {"axis": axis}, outputs=len(ways))
        cut = [editor.emit("Slice", whole, *_bounds(lengths, ways.index(way), axis)) for way in others]
    for way, part in zip(ways, parts, strict=True):
        if way in alike:
            editor.replace_value(way.nodes[depth - 1].outputs[0], part)
    for way, part in zip(others, cut, strict=True):
        editor.replace_value(way.part, part)
    return True


def _time(nodes: Sequence[ir.Node]) -> int:
    """How many nodes they are in ONNX Runtime, which has one kernel for 8 bits with what dequantizes and quantizes them."""
    return sum(node.op_type not in ("DequantizeLinear", "QuantizeLinear") or not _of_8_bits(node) for node in nodes)


def _of_8_bits(node: ir.Node) -> bool:
    eight = (ir.DataType.INT8, ir.DataType.UINT8)
    return any(value is not None and value.dtype in eight for value in (*node.inputs[:1], *node.outputs))


def _lengths(node: ir.Node) -> list[int]:
    """How long each part is along the axis; nothing where one is not known."""
    axis, shapes = integer(node, "axis", 0), [sizes(part) for part in node.outputs]
    lengths = [shape[axis] if shape else None for shape in shapes]
    return [] if None in lengths else [length or 0 for length in lengths]


def _bounds(lengths: Sequence[int], k: int, axis: int) -> Sequence[Sequence[int]]:
    """Where a part begins and ends."""
    return [sum(lengths[:k])], [sum(lengths[: k + 1])], [axis]
