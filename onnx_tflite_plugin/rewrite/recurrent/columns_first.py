"""An unrolled recurrent layer takes a row at each time step and splits it into its gates. The gates of all rows split into rows
are the same numbers, by a node for each gate instead of one for each step.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, integer, only_user, rewrite_nodes, sizes


def run(model: ir.Model) -> int:
    """Exchange Splits along axis 0 with those of each of their parts; returns how many."""
    return rewrite_nodes(model, "Split", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    columns = [only_user(part, "Split") for part in node.outputs]
    splits = [split for split in columns if split is not None]
    row = sizes(node.outputs[0])
    if integer(node, "axis", 0) or len(splits) < len(columns) or not row:
        return False
    count, axis = len(splits[0].outputs), integer(splits[0], "axis", 0) % len(row)
    if not axis or count >= len(splits) or any(_content(split) != _content(splits[0]) for split in splits):
        return False
    with editor.replacing(node):
        whole = [node.inputs[0], *splits[0].inputs[1:]]
        for k, gate in enumerate(editor.emitter.emit("Split", whole, {"axis": axis}, outputs=count)):
            rows = editor.emitter.emit("Split", [gate, *node.inputs[1:]], {"axis": 0}, outputs=len(splits))
            for split, made in zip(splits, rows, strict=True):
                editor.replace_value(split.outputs[k], made)
    return True


def _content(split: ir.Node) -> tuple[object, ...]:
    """What is equal of Splits that make the same parts of the same shape: of one alone, where it computes their lengths."""
    lengths = constant(split.inputs[1]) if len(split.inputs) > 1 else None
    return integer(split, "axis", 0), split if lengths is None else lengths.tobytes()
