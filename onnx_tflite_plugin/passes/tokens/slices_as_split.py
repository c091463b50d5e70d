"""Slices side by side that together are all of a tensor are one Split: queries, keys and values of one product, and the halves that a
rotation turns. In small networks each node costs a call.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import Editor, constant, first, nodes_of, rewrite, sizes


def run(model: ir.Model) -> int:
    """Replace Slices that lie side by side; returns how many Splits there are for them."""
    among: dict[tuple[ir.Value, int], list[Part]] = defaultdict(list)
    for node in nodes_of(model.graph, "Slice"):
        part = Part.of(node)
        if part is not None:
            among[part.whole, part.axis].append(part)
    return rewrite(model, [parts for parts in among.values() if len(parts) > 1], _replace)


class Part(NamedTuple):
    """What a Slice takes of a value, every element of one axis between two places."""

    node: ir.Node
    whole: ir.Value
    axis: int
    begin: int
    end: int
    size: int

    @classmethod
    def of(cls, node: ir.Node) -> Part | None:
        whole, *bounds = node.inputs
        arrays, shape = [constant(value) for value in bounds], sizes(whole)
        if whole is None or shape is None or len(arrays) < 3 or any(a is None or a.size != 1 for a in arrays):
            return None
        begin, end, axis, *step = [int(array.item()) for array in arrays if array is not None]
        size = shape[axis]
        if size is None or step not in ([], [1]):
            return None
        begin, end, _ = slice(begin, end).indices(size)
        return cls(node, whole, axis % len(shape), begin, end, size)


def _replace(editor: Editor, parts: list[Part]) -> bool:
    parts = sorted(parts, key=lambda part: part.begin)
    ends = [0, *(part.end for part in parts)]
    if ends[:-1] != [part.begin for part in parts] or ends[-1] != parts[0].size:
        return False
    lengths = [part.end - part.begin for part in parts]
    with editor.replacing(first(part.node for part in parts)):
        made = editor.emitter.emit("Split", [parts[0].whole, lengths], {"axis": parts[0].axis}, outputs=len(parts))
    for part, value in zip(parts, made, strict=True):
        editor.replace_value(part.node.outputs[0], value)
    return True
