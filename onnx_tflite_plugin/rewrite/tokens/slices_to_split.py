"""Merge adjacent Slices that cover a tensor into one Split.

The parts may be the queries, keys and values of an attention layer, or the halves that a rotary embedding exchanges. In small networks,
most of a node's time is the overhead of the kernel call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, first_node, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule


class SlicedPart(NamedTuple):
    """A Slice of ``tensor`` from ``begin`` to ``end`` along one axis of size ``size``."""

    node: ir.Node
    tensor: ir.Value
    axis: int
    begin: int
    end: int
    size: int

    @classmethod
    def of(cls, node: ir.Node) -> SlicedPart | None:
        """Return the part of a Slice.

        Return ``None`` unless the Slice has constant bounds, a step of 1 and one axis of static size.
        """
        tensor, *bounds = node.inputs
        arrays, shape = [constant(value) for value in bounds], sizes(tensor)
        if tensor is None or shape is None or len(arrays) < 3 or any(a is None or a.size != 1 for a in arrays):
            return None
        begin, end, axis, *step = [int(array.item()) for array in arrays if array is not None]
        size = shape[axis]
        if size is None or step not in ([], [1]):
            return None
        begin, end, _ = slice(begin, end).indices(size)
        return cls(node, tensor, axis % len(shape), begin, end, size)


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[Sequence[SlicedPart]]:
    """Return the Slices of each tensor along each axis, in groups of two or more."""
    parts: dict[tuple[ir.Value, int], list[SlicedPart]] = defaultdict(list)
    for node in nodes_of(model.graph, "Slice"):
        if part := SlicedPart.of(node):
            parts[part.tensor, part.axis].append(part)
    return [slices for slices in parts.values() if len(slices) > 1]


def check(slices: Sequence[SlicedPart]) -> Sequence[SlicedPart] | Decline:
    """Return the Slices in the order of their parts, if these cover the tensor.

    Declines if parts overlap or leave a gap.
    """
    ordered = sorted(slices, key=lambda part: part.begin)
    ends = [0, *(part.end for part in ordered)]
    if ends[:-1] != [part.begin for part in ordered] or ends[-1] != ordered[0].size:
        return Decline("the slices overlap, or leave out elements")
    return ordered


def rewrite(editor: Editor, slices: Sequence[SlicedPart]) -> None:
    """Emit a Split before the first Slice, and replace all Slices with its results."""
    lengths = [part.end - part.begin for part in slices]
    with editor.replacing(first_node(part.node for part in slices)):
        parts = editor.emitter.emit("Split", [slices[0].tensor, lengths], {"axis": slices[0].axis}, outputs=len(slices))
    for part, value in zip(slices, parts, strict=True):
        editor.replace_value(part.node.outputs[0], value)


slices_to_split = RewriteRule(pattern, check, rewrite)
