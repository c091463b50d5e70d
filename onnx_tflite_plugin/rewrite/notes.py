"""Explanations of operators that become many nodes, for models that people read."""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.lowering.emitter import NOTE
from onnx_tflite_plugin.rewrite.name_values import operator_name


def write_notes(model: ir.Model) -> tuple[str, ...]:
    """Store each handler's note as the ``doc_string`` of its operator's first node.

    The result contains lines for the report: the first sentence of each note, and the node that holds the rest.
    """
    nodes_by_note: dict[tuple[str, str], list[ir.Node]] = {}
    for node in model.graph.all_nodes():
        if note := node.meta.get(NOTE):
            nodes_by_note.setdefault((operator_name(node), str(note)), []).append(node)
    notes = []
    for (name, note), nodes in nodes_by_note.items():
        count, reason = plural(len(nodes), "node"), note.partition(". ")[0]
        nodes[0].doc_string = f"{name} becomes {count}. {note}"
        notes.append(f"{name!r} becomes {count}: {reason}. The description of node {nodes[0].name!r} says more")
    return tuple(notes)
