"""Reduce the number of nodes around the Splits of unrolled recurrent layers.

Such layers split small tensors many times. In small networks, most of a node's time is the overhead of the kernel call.

The gates are parts of one tensor, and the same operators follow most of them. ``activations_before_split`` computes these operators
for all parts at once, before the Split.

Each time step splits one row of a tensor into gates. ``columns_before_rows`` first splits the whole tensor into gates, so that one
Split per gate replaces one Split per time step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, only_user, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match

# --- activations ------------------------------------------------------------------------------

_ELEMENTWISE = frozenset({"Cast", "DequantizeLinear", "Mul", "QuantizeLinear", "Relu", "Sigmoid", "Tanh"})
"""Operators that are elementwise in the first operand if all other operands are scalars."""
_MAX_ELEMENTS = 1024  # heuristic: up to this number of elements, nodes take equal time
_SLICE_NODES = 2  # heuristic: the Slice for a part with other operators takes as long as this number of nodes


@dataclass(frozen=True)
class Path:
    """An output of a Split, and the chain of elementwise nodes after it."""

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
        """Return the number of nodes at the beginning that are equal in both paths."""
        keys, other_keys = map(_node_key, self.nodes), map(_node_key, other.nodes)
        return len([*takewhile(bool, map(operator.eq, keys, other_keys))])


class Match(NamedTuple):
    """A Split of a tensor into parts of these ``lengths``, with the path of each part.

    ``common_nodes``: the nodes to compute before the Split, which are the beginning of each of ``common_paths``.
    ``other_paths``: paths that begin differently; their parts are computed by Slices.
    """

    split: ir.Node
    lengths: Sequence[int]
    common_nodes: Sequence[ir.Node]
    paths: Sequence[Path]
    common_paths: Sequence[Path]
    other_paths: Sequence[Path]


def check(split: ir.Node) -> Match:
    """Return the match if the tensor is small and the rewrite saves nodes."""
    shape, lengths = require_match(sizes(split.inputs[0]), "the rank of the tensor is unknown"), _part_lengths(split)
    require(lengths and shape and None not in shape, "a size is dynamic")
    elements = math.prod(size or 0 for size in shape)
    require(elements <= _MAX_ELEMENTS, f"the tensor has more than {_MAX_ELEMENTS} elements")
    paths = [Path.of(part) for part in split.outputs]
    reference = max(paths, key=lambda path: _shared_calls(path, paths))
    common_count = max((reference.count_equal_nodes(path) for path in paths if path is not reference), default=0)
    common_nodes = reference.nodes[:common_count]
    common_paths = [path for path in paths if reference.count_equal_nodes(path) >= common_count]
    other_paths = [path for path in paths if reference.count_equal_nodes(path) < common_count and path.part.uses()]
    saved_calls = _call_count(common_nodes) * (len(common_paths) - 1)
    require(saved_calls > _SLICE_NODES * len(other_paths), "too few outputs of the Split feed the same operators")
    return Match(split, lengths, common_nodes, paths, common_paths, other_paths)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the common operators before a new Split, and Slices for the other parts."""
    split, lengths, common_nodes, paths, common_paths, other_paths = match
    tensor, axis = require_match(split.inputs[0]), integer(split, "axis", 0)
    with editor.replacing(split):
        value = tensor
        for common_node in common_nodes:
            value = editor.clone_on(common_node, value)
            value.shape = tensor.shape
        parts = editor.emitter.emit("Split", [value, *split.inputs[1:]], {"axis": axis}, outputs=len(paths))
        slices = [
            editor.emit("Slice", tensor, *_slice_bounds(lengths, paths.index(path), axis)) for path in other_paths
        ]
    for path, part in zip(paths, parts, strict=True):
        if path in common_paths:
            editor.replace_value(path.nodes[len(common_nodes) - 1].outputs[0], part)
    for path, part in zip(other_paths, slices, strict=True):
        editor.replace_value(path.part, part)


activations_before_split = RewriteRule(nodes("Split"), check, rewrite)


def _shared_calls(path: Path, paths: Sequence[Path]) -> int:
    """Return the number of kernel calls that a path shares with the other paths."""
    return sum(_call_count(path.nodes[: path.count_equal_nodes(other)]) for other in paths if other is not path)


def _has_scalars(node: ir.Node) -> bool:
    """True if all operands but the first are constant scalars."""
    arrays = [constant(value) for value in node.inputs[1:]]
    return all(array is not None and array.ndim == 0 for array in arrays)


def _node_key(node: ir.Node) -> tuple[object, ...]:
    """Return a key that is the same for nodes that compute the same function."""
    arrays = [constant(value) for value in node.inputs[1:]]
    operands = tuple((array.dtype.name, array.tobytes()) for array in arrays if array is not None)
    return node.op_type, integer(node, "to", 0), node.outputs[0].dtype, operands


def _call_count(nodes: Sequence[ir.Node]) -> int:
    """Return the number of kernel calls.

    8-bit QuantizeLinear and DequantizeLinear are fused with the operator between them, and do not count.
    """
    return sum(node.op_type not in ("DequantizeLinear", "QuantizeLinear") or not _is_8_bit(node) for node in nodes)


def _is_8_bit(node: ir.Node) -> bool:
    dtypes = (ir.DataType.INT8, ir.DataType.UINT8)
    return any(value is not None and value.dtype in dtypes for value in (*node.inputs[:1], *node.outputs))


def _part_lengths(node: ir.Node) -> list[int]:
    """Return the lengths of a Split's parts along its axis; empty if one is unknown."""
    axis, shapes = integer(node, "axis", 0), [sizes(part) for part in node.outputs]
    lengths = [shape[axis] if shape else None for shape in shapes]
    return [] if None in lengths else [length or 0 for length in lengths]


def _slice_bounds(lengths: Sequence[int], index: int, axis: int) -> Sequence[Sequence[int]]:
    """Return begin, end and axis of a part, as operands of Slice."""
    return [sum(lengths[:index])], [sum(lengths[: index + 1])], [axis]


# --- rows and columns -------------------------------------------------------------------------


class Grid(NamedTuple):
    """A Split into rows, and the ``splits`` of each row along ``axis`` into columns."""

    row_split: ir.Node
    splits: Sequence[ir.Node]
    axis: int
    columns: int


def check_grid(row_split: ir.Node) -> Grid:
    """Return the match if all rows are split into the same columns, fewer than rows."""
    require(integer(row_split, "axis", 0) == 0)
    splits = [
        require_match(only_user(part, "Split"), "a part of the Split is not split again") for part in row_split.outputs
    ]
    row = require_match(sizes(row_split.outputs[0]) or None, "the rank of the rows is unknown")
    columns, axis = len(splits[0].outputs), integer(splits[0], "axis", 0) % len(row)
    require(axis, "the rows are split along axis 0")
    require(columns < len(splits), "there are at least as many columns as rows")
    require(all(_split_key(split) == _split_key(splits[0]) for split in splits), "the columns differ")
    return Grid(row_split, splits, axis, columns)


def rewrite_grid(editor: Editor, grid: Grid) -> None:
    """Emit a Split into columns, and Splits of each column into rows."""
    row_split, splits, axis, columns = grid
    with editor.replacing(row_split):
        operands = [row_split.inputs[0], *splits[0].inputs[1:]]
        for k, column in enumerate(editor.emitter.emit("Split", operands, {"axis": axis}, outputs=columns)):
            rows = editor.emitter.emit("Split", [column, *row_split.inputs[1:]], {"axis": 0}, outputs=len(splits))
            for split, part in zip(splits, rows, strict=True):
                editor.replace_value(split.outputs[k], part)


columns_before_rows = RewriteRule(nodes("Split"), check_grid, rewrite_grid)


def _split_key(split: ir.Node) -> tuple[object, ...]:
    """Return a key that is the same for equal Splits with constant lengths."""
    lengths = constant(split.inputs[1]) if len(split.inputs) > 1 else None
    return integer(split, "axis", 0), split if lengths is None else lengths.tobytes()
