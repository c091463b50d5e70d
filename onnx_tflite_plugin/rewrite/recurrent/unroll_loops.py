"""Loops with a small constant trip count are unrolled: entering a subgraph costs time, and some runtimes do not optimize subgraphs.

Only under ``--unroll``, since nodes are repeated for each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, ints, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule

_ELEMENTWISE = ("Add", "Cast", "Ceil", "Clip", "Floor", "Mul", "Round", "Sub")
"""Operators with a result of the first operand's rank, such as scanned sequences."""


def pattern(model: ir.Model, options: RewriteOptions) -> Iterator[tuple[ir.Node, int]]:
    """Yield every loop that runs at most ``options.unroll`` times; loops in unrolled bodies follow."""
    while True:
        nodes = model.graph.all_nodes()
        found = next(((node, trips) for node in nodes if (trips := _trips(node, options.unroll))), None)
        if found is None:
            return
        yield found


def check(place: tuple[ir.Node, int]) -> tuple[ir.Node, int]:
    """Return the loop and its trip count: the pattern has checked both."""
    return place


def rewrite(editor: Editor, match: tuple[ir.Node, int]) -> None:
    """Emit the body once for each iteration."""
    _unroll(editor, *match)


unroll_loops = RewriteRule(pattern, check, rewrite)


def _trips(node: ir.Node, most: int) -> int:
    """Return the trip count of a loop; 0 if the node is not a loop, or its trip count is unknown, zero, or more than
    ``most``.
    """
    if node.domain or node.op_type not in ("Loop", "Scan") or _body(node).initializers:
        return 0
    trips = _loop_trip_count(node) if node.op_type == "Loop" else _scan_trip_count(node)
    return trips if 0 < trips <= most else 0


def _loop_trip_count(node: ir.Node) -> int:
    """Return the trip count of a Loop without a condition; 0 if unknown."""
    limit, start = constant(node.inputs[0]), constant(node.inputs[1])
    body = _body(node)
    condition, given = body.outputs[0], body.inputs[1]
    while (same := producer(condition, "Identity")) is not None and same.inputs[0] is not None:
        condition = same.inputs[0]
    always = constant(condition)
    endless = (node.inputs[1] is None or (start is not None and bool(start.all()))) and (
        condition is given or (always is not None and bool(always.all()))
    )
    return int(limit.item()) if endless and limit is not None else 0


def _scan_trip_count(node: ir.Node) -> int:
    """Return the trip count of a Scan along first axes only; 0 if unknown."""
    count = integer(node, "num_scan_inputs", 0)
    axes = [*ints(node, "scan_input_axes", []), *ints(node, "scan_output_axes", [])]
    lengths = {_rows(value) for value in node.inputs[len(node.inputs) - count :]}
    return max(lengths) if len(lengths) == 1 and not any(axes) else 0


def _rows(value: ir.Value | None) -> int:
    """Return the first size of a value, by its shape or by the Reshape that it is computed from; 0 if unknown."""
    shape = sizes(value)
    if shape:
        return shape[0] or 0
    reshape = producer(value, "Reshape")
    target = None if reshape is None else constant(reshape.inputs[1])
    if target is not None:
        return max(int(target[0]), 0)
    same = producer(value, *_ELEMENTWISE)
    return 0 if same is None else _rows(same.inputs[0])


def _body(node: ir.Node) -> ir.Graph:
    return node.attributes["body"].as_graph()


def _unroll(editor: Editor, node: ir.Node, trips: int) -> None:
    """Emit the body for each iteration, and stack its results."""
    body, loop = _body(node), node.op_type == "Loop"
    scanned = 0 if loop else integer(node, "num_scan_inputs", 0)
    inputs = [value for value in node.inputs[2 if loop else 0 :] if value is not None]
    values, sequences = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
    rows: list[list[ir.Value]] = [[] for _ in range(len(node.outputs) - len(values))]
    back_in = _directions(node, "scan_input_directions", scanned)
    back_out = _directions(node, "scan_output_directions", len(rows))
    for k in range(trips):
        with editor.replacing(node):
            seen = [editor.emit("Gather", each, np.array(trips - 1 - k if back else k), axis=0)
                    for each, back in zip(sequences, back_in, strict=True)]  # fmt: skip
            counters = [editor.emitter.constant(np.array(k)), editor.emitter.constant(np.array(True))] if loop else []
        results = _emit_body(editor, node, body, [*counters, *values, *seen])[1 if loop else 0 :]
        values = results[: len(values)]
        for collected, result in zip(rows, results[len(values) :], strict=True):
            collected.append(result)
    with editor.replacing(node):
        stacked = [
            editor.emit(
                "Concat", *(editor.emit("Unsqueeze", row, np.array([0])) for row in each[:: -1 if back else 1]), axis=0
            )
            for each, back in zip(rows, back_out, strict=True)
        ]
        kept = [editor.emit("Identity", value) for value in values]
    for old, new in zip(node.outputs, [*kept, *stacked], strict=True):
        editor.replace_value(old, new)
    assert isinstance(node.graph, ir.Graph)
    node.graph.remove(node, safe=True)


def _directions(node: ir.Node, name: str, count: int) -> Sequence[int]:
    return ints(node, name, [0] * count)


def _emit_body(editor: Editor, place: ir.Node, body: ir.Graph, given: Sequence[ir.Value]) -> list[ir.Value]:
    """Copy the body's nodes before a node, on these inputs; returns the outputs."""
    copy = body.clone(allow_outer_scope_values=True)
    editor.register(given)
    by_input = dict(zip(copy.inputs, given, strict=True))
    for value, operand in by_input.items():
        for use in value.uses():
            use.node.replace_input_with(use.idx, operand)
    outputs = [by_input.get(value, value) for value in copy.outputs]
    copy.outputs.clear()
    nodes = list(copy)
    copy.remove(nodes)
    for node in nodes:
        node.name = editor.emitter.names.unique(node.name or "")
        for value in node.outputs:
            value.name = editor.emitter.names.unique(value.name or "")
    assert isinstance(place.graph, ir.Graph)
    place.graph.insert_before(place, nodes)
    return outputs
