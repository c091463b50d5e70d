"""Unrolled recurrent layers split small tensors many times. In small networks, the call dominates the time of a node.

The gates are parts of one tensor, and most go through the same operators. These operators are computed before the
Split, for all parts at once. Each step takes a row and splits it into gates. Instead, the tensor is split into gates
first: one node per gate, not per step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, only_user, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match

# --- activations ------------------------------------------------------------------------------

_ELEMENTWISE = frozenset({"Cast", "DequantizeLinear", "Mul", "QuantizeLinear", "Relu", "Sigmoid", "Tanh"})
"""Element-wise operators on the first operand, if the others are scalars."""
_LARGEST = 1024  # maximum elements for which the time of a node is constant
_CUT = 2  # nodes that take as long as a Slice for a part that goes through others


@dataclass(frozen=True)
class Path:
    """The element-wise nodes that a part goes through, in order."""

    part: ir.Value
    nodes: Sequence[ir.Node]

    @classmethod
    def of(cls, part: ir.Value) -> Path:
        nodes: list[ir.Node] = []
        value = part
        while (node := only_user(value, *_ELEMENTWISE)) is not None and _has_scalars(node):
            nodes.append(node)
            value = node.outputs[0]
        return cls(part, nodes)

    def count_equal_nodes(self, other: Path) -> int:
        """Return the number of equal nodes at the beginning of both."""
        same = [_content(a) == _content(b) for a, b in zip(self.nodes, other.nodes, strict=False)]
        return (*same, False).index(False)


class Match(NamedTuple):
    """A Split; ``steps`` are computed before it for the ``equal`` paths, and ``others`` are cut off by Slices."""

    node: ir.Node
    lengths: Sequence[int]
    steps: Sequence[ir.Node]
    paths: Sequence[Path]
    equal: Sequence[Path]
    others: Sequence[Path]


def check(node: ir.Node) -> Match:
    """Return the match, if fewer nodes are left of a small tensor."""
    shape, lengths = require_match(sizes(node.inputs[0]), "the rank of the tensor is unknown"), _lengths(node)
    require(lengths and shape and None not in shape, "a size is dynamic")
    elements = math.prod(size or 0 for size in shape)
    require(elements <= _LARGEST, f"the tensor has more than {_LARGEST} elements")
    paths = [Path.of(part) for part in node.outputs]
    first = max(
        paths,
        key=lambda path: sum(
            _calls(path.nodes[: path.count_equal_nodes(other)]) for other in paths if other is not path
        ),
    )
    depth = max((first.count_equal_nodes(path) for path in paths if path is not first), default=0)
    equal = [path for path in paths if first.count_equal_nodes(path) >= depth]
    others = [path for path in paths if first.count_equal_nodes(path) < depth and path.part.uses()]
    saved = _calls(first.nodes[:depth]) * (len(equal) - 1)
    require(saved > _CUT * len(others), "too few parts have the same operators")
    return Match(node, lengths, first.nodes[:depth], paths, equal, others)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the operators before a new Split, and Slices for other parts."""
    node, lengths, steps, paths, equal, others = match
    whole, axis = require_match(node.inputs[0]), integer(node, "axis", 0)
    with editor.replacing(node):
        value = whole
        for step in steps:
            value = editor.clone_on(step, value)
            value.shape = whole.shape
        parts = editor.emitter.emit("Split", [value, *node.inputs[1:]], {"axis": axis}, outputs=len(paths))
        cut = [editor.emit("Slice", whole, *_bounds(lengths, paths.index(path), axis)) for path in others]
    for path, part in zip(paths, parts, strict=True):
        if path in equal:
            editor.replace_value(path.nodes[len(steps) - 1].outputs[0], part)
    for path, part in zip(others, cut, strict=True):
        editor.replace_value(path.part, part)


activations_before_split = RewriteRule(nodes("Split"), check, rewrite)


def _has_scalars(node: ir.Node) -> bool:
    """True if all operands but the first are constant scalars."""
    arrays = [constant(value) for value in node.inputs[1:]]
    return all(array is not None and array.ndim == 0 for array in arrays)


def _content(node: ir.Node) -> tuple[object, ...]:
    """Return a key that equal nodes share."""
    arrays = [constant(value) for value in node.inputs[1:]]
    operands = tuple((array.dtype.name, array.tobytes()) for array in arrays if array is not None)
    return node.op_type, integer(node, "to", 0), node.outputs[0].dtype, operands


def _calls(nodes: Sequence[ir.Node]) -> int:
    """Return the number of kernel calls: Q and DQ of 8 bits are fused with the operator between them."""
    return sum(node.op_type not in ("DequantizeLinear", "QuantizeLinear") or not _is_8_bit(node) for node in nodes)


def _is_8_bit(node: ir.Node) -> bool:
    eight = (ir.DataType.INT8, ir.DataType.UINT8)
    return any(value is not None and value.dtype in eight for value in (*node.inputs[:1], *node.outputs))


def _lengths(node: ir.Node) -> list[int]:
    """Return the lengths of the parts along the axis; nothing if one is unknown."""
    axis, shapes = integer(node, "axis", 0), [sizes(part) for part in node.outputs]
    lengths = [shape[axis] if shape else None for shape in shapes]
    return [] if None in lengths else [length or 0 for length in lengths]


def _bounds(lengths: Sequence[int], k: int, axis: int) -> Sequence[Sequence[int]]:
    """Return begin, end and axis of part ``k``, as operands of Slice."""
    return [sum(lengths[:k])], [sum(lengths[: k + 1])], [axis]


# --- rows and columns -------------------------------------------------------------------------


class Grid(NamedTuple):
    """A Split along axis 0, and the Splits of all its parts along ``axis`` into ``columns`` parts."""

    node: ir.Node
    splits: Sequence[ir.Node]
    axis: int
    columns: int


def check_grid(node: ir.Node) -> Grid:
    """Return the match, if all rows are split into the same columns, and there are fewer columns than rows."""
    require(integer(node, "axis", 0) == 0)
    splits = [require_match(only_user(part, "Split"), "a row is not split") for part in node.outputs]
    row = require_match(sizes(node.outputs[0]) or None, "the rank of the rows is unknown")
    columns, axis = len(splits[0].outputs), integer(splits[0], "axis", 0) % len(row)
    require(axis, "the rows are split along axis 0")
    require(columns < len(splits), "there are at least as many columns as rows")
    require(all(_lengths_of(split) == _lengths_of(splits[0]) for split in splits), "the columns differ")
    return Grid(node, splits, axis, columns)


def rewrite_grid(editor: Editor, grid: Grid) -> None:
    """Emit the Split into columns, and one of each column into rows."""
    node, splits, axis, columns = grid
    with editor.replacing(node):
        operands = [node.inputs[0], *splits[0].inputs[1:]]
        for k, column in enumerate(editor.emitter.emit("Split", operands, {"axis": axis}, outputs=columns)):
            rows = editor.emitter.emit("Split", [column, *node.inputs[1:]], {"axis": 0}, outputs=len(splits))
            for split, made in zip(splits, rows, strict=True):
                editor.replace_value(split.outputs[k], made)


columns_before_rows = RewriteRule(nodes("Split"), check_grid, rewrite_grid)


def _lengths_of(split: ir.Node) -> tuple[object, ...]:
    """Return a key that equal Splits share; computed lengths are equal to no others."""
    lengths = constant(split.inputs[1]) if len(split.inputs) > 1 else None
    return integer(split, "axis", 0), split if lengths is None else lengths.tobytes()
