"""Unroll loops with a small constant trip count.

Each iteration enters a subgraph, which costs time, and some runtimes do not optimize subgraphs. Since unrolling repeats the nodes
for each iteration, it is done only under ``--unroll``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, ints, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule

_SIZE_PRESERVING = ("Add", "Cast", "Ceil", "Clip", "Floor", "Mul", "Round", "Sub")
"""Operators between a Reshape and a Scan that keep the size of the first axis."""


def pattern(model: ir.Model, options: RewriteOptions) -> Iterator[tuple[ir.Node, int]]:
    """Yield each loop of at most ``options.unroll`` iterations, with its trip count.

    A loop inside a loop is yielded after the outer loop has been unrolled.
    """
    while True:
        nodes = model.graph.all_nodes()
        loop = next(((node, trips) for node in nodes if (trips := _trip_count(node, options.unroll))), None)
        if loop is None:
            return
        yield loop


def check(place: tuple[ir.Node, int]) -> tuple[ir.Node, int]:
    """Return the loop and its trip count, which the pattern has checked."""
    return place


def rewrite(editor: Editor, match: tuple[ir.Node, int]) -> None:
    """Emit the body once for each iteration."""
    _unroll(editor, *match)


unroll_loops = RewriteRule(pattern, check, rewrite)


def _trip_count(node: ir.Node, maximum: int) -> int:
    """Return a loop's trip count, or 0 if it is unknown or above ``maximum``.

    Return 0 for nodes other than loops.
    """
    if node.domain or node.op_type not in ("Loop", "Scan") or _body(node).initializers:
        return 0
    trips = _loop_trip_count(node) if node.op_type == "Loop" else _scan_trip_count(node)
    return trips if 0 < trips <= maximum else 0


def _loop_trip_count(node: ir.Node) -> int:
    """Return the trip count of a Loop, or 0 if it is unknown or conditional."""
    limit, start = constant(node.inputs[0]), constant(node.inputs[1])
    body = _body(node)
    condition, condition_input = body.outputs[0], body.inputs[1]
    while (identity := producer(condition, "Identity")) is not None and identity.inputs[0] is not None:
        condition = identity.inputs[0]
    constant_condition = constant(condition)
    is_unconditional = (node.inputs[1] is None or (start is not None and bool(start.all()))) and (
        condition is condition_input or (constant_condition is not None and bool(constant_condition.all()))
    )
    return int(limit.item()) if is_unconditional and limit is not None else 0


def _scan_trip_count(node: ir.Node) -> int:
    """Return the trip count of a Scan, or 0 if it is unknown or a scan axis is not 0."""
    count = integer(node, "num_scan_inputs", 0)
    axes = [*ints(node, "scan_input_axes", []), *ints(node, "scan_output_axes", [])]
    lengths = {_first_size(value) for value in node.inputs[len(node.inputs) - count :]}
    return max(lengths) if len(lengths) == 1 and not any(axes) else 0


def _first_size(value: ir.Value | None) -> int:
    """Return the size of axis 0, or 0 if it is unknown.

    The size is read from the shape, or from an earlier Reshape.
    """
    shape = sizes(value)
    if shape:
        return shape[0] or 0
    reshape = producer(value, "Reshape")
    target = None if reshape is None else constant(reshape.inputs[1])
    if target is not None:
        return max(int(target[0]), 0)
    node = producer(value, *_SIZE_PRESERVING)
    return 0 if node is None else _first_size(node.inputs[0])


def _body(node: ir.Node) -> ir.Graph:
    return node.attributes["body"].as_graph()


def _unroll(editor: Editor, node: ir.Node, trips: int) -> None:
    """Emit the body for each iteration, and stack the scan outputs.

    ``values``: the loop-carried values. ``sequences``: the scan inputs, of which each iteration reads one element.
    """
    body, is_loop = _body(node), node.op_type == "Loop"
    scan_count = 0 if is_loop else integer(node, "num_scan_inputs", 0)
    inputs = [value for value in node.inputs[2 if is_loop else 0 :] if value is not None]
    values, sequences = inputs[: len(inputs) - scan_count], inputs[len(inputs) - scan_count :]
    scan_outputs: list[list[ir.Value]] = [[] for _ in range(len(node.outputs) - len(values))]
    reversed_inputs = _directions(node, "scan_input_directions", scan_count)
    reversed_outputs = _directions(node, "scan_output_directions", len(scan_outputs))
    for k in range(trips):
        with editor.replacing(node):
            elements = [editor.emit("Gather", sequence, np.array(trips - 1 - k if is_reversed else k), axis=0)
                    for sequence, is_reversed in zip(sequences, reversed_inputs, strict=True)]  # fmt: skip
            counters = (
                [editor.emitter.constant(np.array(k)), editor.emitter.constant(np.array(True))] if is_loop else []
            )
        results = _emit_body(editor, node, body, [*counters, *values, *elements])[1 if is_loop else 0 :]
        values = results[: len(values)]
        for scan_output, result in zip(scan_outputs, results[len(values) :], strict=True):
            scan_output.append(result)
    with editor.replacing(node):
        stacked_outputs = [
            _emit_stack(editor, elements[::-1] if is_reversed else elements)
            for elements, is_reversed in zip(scan_outputs, reversed_outputs, strict=True)
        ]
        final_values = [editor.emit("Identity", value) for value in values]
    for old, new in zip(node.outputs, [*final_values, *stacked_outputs], strict=True):
        editor.replace_value(old, new)
    assert isinstance(node.graph, ir.Graph)
    node.graph.remove(node, safe=True)


def _emit_stack(editor: Editor, elements: Sequence[ir.Value]) -> ir.Value:
    rows = [editor.emit("Unsqueeze", element, np.array([0])) for element in elements]
    return editor.emit("Concat", *rows, axis=0)


def _directions(node: ir.Node, name: str, count: int) -> Sequence[int]:
    return ints(node, name, [0] * count)


def _emit_body(editor: Editor, loop: ir.Node, body: ir.Graph, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Insert a copy of the body's nodes before ``loop``, and return its outputs.

    ``operands``: the values of the body's inputs.
    """
    copy = body.clone(allow_outer_scope_values=True)
    editor.register(operands)
    operand_of_input = dict(zip(copy.inputs, operands, strict=True))
    for value, operand in operand_of_input.items():
        for use in value.uses():
            use.node.replace_input_with(use.idx, operand)
    outputs = [operand_of_input.get(value, value) for value in copy.outputs]
    copy.outputs.clear()
    nodes = list(copy)
    copy.remove(nodes)
    for node in nodes:
        node.name = editor.emitter.names.unique(node.name or "")
        for value in node.outputs:
            value.name = editor.emitter.names.unique(value.name or "")
    assert isinstance(loop.graph, ir.Graph)
    loop.graph.insert_before(loop, nodes)
    return outputs
