"""Helpers under their former names, for rules that are not ported yet."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.editor import *  # noqa: F403
from onnx_tflite_plugin.rewrite.editor import (
    Editor,
    clear_metadata as forget,
    remove_unused_outputs as drop_idle_results,
)  # noqa: F401
from onnx_tflite_plugin.rewrite.matching import *  # noqa: F403
from onnx_tflite_plugin.rewrite.matching import QuantizedConv, first_node as first, nodes_of  # noqa: F401

Editor.tidy = Editor.remove_unused
Editor.stored = Editor.store
Editor.dequantized = Editor.dequantize


def rewrite(model, places, change):
    if not places:
        return 0
    editor = Editor(model)
    changed = sum(change(editor, place) for place in places)
    if changed:
        editor.remove_unused()
    return changed


def rewrite_nodes(model, op_type, change):
    return rewrite(model, nodes_of(model.graph, op_type), change)


def rewrite_units(model, op_type, change):
    units = [unit for node in nodes_of(model.graph, op_type) if (unit := QuantizedConv.of(node))]
    return rewrite(model, units, change)
