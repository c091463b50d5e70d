"""A Reshape to a shape that does not depend on its operand's undoes whatever reshaped that before; each node costs a call, which
small networks notice.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, producer, rewrite_nodes, sizes
from onnx_tflite_plugin.source.model import Array

_RESHAPING = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


def run(model: ir.Model) -> int:
    """Let each Reshape read what stands before those in front of it, if it is still needed; returns how many were changed."""
    return rewrite_nodes(model, "Reshape", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    target, value = constant(node.inputs[1]), node.inputs[0]
    if target is None or not target.all():  # 0 is the operand's own size
        return False
    while (before := producer(value, *_RESHAPING)) is not None:
        value = before.inputs[0]
    if value is node.inputs[0]:
        return False
    if value is not None and _alike(sizes(value), target) and not node.outputs[0].is_graph_output():
        for use in node.outputs[0].uses():
            use.node.replace_input_with(use.idx, value)
        return True
    node.replace_input_with(0, value)
    return True


def _alike(shape: Sequence[int | None] | None, target: Array) -> bool:
    """Whether a value has the shape that is asked for; -1 is what is left."""
    return (
        shape is not None
        and len(shape) == len(target)
        and all(s == t or t == -1 for s, t in zip(shape, target, strict=True))
    )
