"""Notes on operators that are lowered to many nodes, for models that people read."""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.graph.node_metadata import innermost_operators
from onnx_tflite_plugin.lowering.emitter import NOTE
from onnx_tflite_plugin.rewrite.name_values import operator_name


def write_notes(model: ir.Model) -> tuple[str, ...]:
    """Store each handler's note as the ``doc_string`` of its operator's first node.

    Return a line per note for the report: its first sentence, and the name of the node with the complete note.
    """
    nodes_by_note: dict[tuple[str, str], list[ir.Node]] = {}
    for node in model.graph.all_nodes():
        if note := node.meta.get(NOTE):
            nodes_by_note.setdefault((operator_name(node), str(note)), []).append(node)
    report_lines = []
    for (operator, note), nodes in nodes_by_note.items():
        count, reason = plural(len(nodes), "node"), note.partition(". ")[0]
        label = f"op {', '.join(map(str, innermost_operators(nodes[0].metadata_props)))} {operator!r}"
        nodes[0].doc_string = f"{operator} becomes {count}. {note}"
        report_lines.append(f"{label} becomes {count}: {reason}. The description of node {nodes[0].name!r} says more")
    return tuple(report_lines)
