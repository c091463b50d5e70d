"""What unrolled recurrent layers give for each time step is stacked: an Unsqueeze for each, and in small networks each node costs
a call. One behind the other they are the same numbers, which one Reshape gives their axis.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, integer, only_user, producer, rewrite_nodes, sizes

_FEWEST = 3  # parts


def run(model: ir.Model) -> int:
    """Reshape what is stacked; returns how many tensors."""
    return rewrite_nodes(model, "Concat", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    axis, parts = integer(node, "axis", 0), [_below(value, integer(node, "axis", 0)) for value in node.inputs]
    stacked = [part for part in parts if part is not None]
    shape = sizes(stacked[0]) if stacked else None
    if len(stacked) < max(len(parts), _FEWEST) or not shape or None in shape or not 0 <= axis < len(shape):
        return False
    with editor.replacing(node):
        joined = editor.emit("Concat", *stacked, axis=axis)
        whole = editor.emit("Reshape", joined, np.asarray([*shape[:axis], len(parts), *shape[axis:]], np.int64))
    editor.replace_value(node.outputs[0], whole)
    return True


def _below(value: ir.Value | None, axis: int) -> ir.Value | None:
    """What an Unsqueeze gives an axis that only the Concat needs."""
    unsqueeze = producer(value, "Unsqueeze")
    if value is None or unsqueeze is None or only_user(value, "Concat") is None:
        return None
    axes = constant(unsqueeze.inputs[1]) if len(unsqueeze.inputs) > 1 else None
    return unsqueeze.inputs[0] if axes is not None and axes.tolist() == [axis] else None
