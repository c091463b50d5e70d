"""Replace an Add after a float Gemm with the bias of the Gemm.

Unrolled recurrent layers multiply the input and the previous output by matrices, and add both products and a bias in separate
nodes. In small networks, most of a node's time is the overhead of the kernel call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor, clear_metadata
from onnx_tflite_plugin.rewrite.matching import constant, nodes_of, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule

Depths = Mapping[ir.Node | None, int]
"""The number of nodes on the longest path to each node."""


class Match(NamedTuple):
    """An Add of ``value`` and ``addend``.

    ``gemms``: the Gemms that compute ``value``; each is the bias of the one before it. ``addend`` becomes the bias of
    ``gemms[-1]``. ``is_constant``: the addend is a constant; otherwise it is computed, for example by another Gemm.
    """

    add: ir.Node
    value: ir.Value
    addend: ir.Value
    gemms: list[ir.Node]
    is_constant: bool


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Node, Depths]]:
    """Return the Add nodes of the main graph, with the depths of all nodes."""
    depths: dict[ir.Node | None, int] = {}
    for node in model.graph:
        producer_depths = (depths.get(value.producer(), 0) for value in node.inputs if value is not None)
        depths[node] = 1 + max(producer_depths, default=0)
    return [(node, depths) for node in nodes_of(model.graph, "Add")]


def check(place: tuple[ir.Node, Depths]) -> Match | Decline:
    """Return the match if an operand is a Gemm without bias, in the sum's shape."""
    add, depths = place
    match = _match_constant_addend(add)
    if match is not None:
        return match
    matches = [*_matches_of_computed_addend(add)]
    if not matches:
        return Decline("no operand is a float matrix product without a bias and with the shape of the sum")
    # The Gemm at the end of the longer path gets the bias, so that a Gemm of the layer's input is computed early.
    return max(matches, key=lambda match: depths.get(match.gemms[0], 0))


def rewrite(editor: Editor, match: Match) -> None:
    """Add the bias operand to a Gemm, and remove the Add."""
    add, gemm = match.add, match.gemms[-1]
    if match.is_constant:
        gemm.resize_inputs(3)
        gemm.replace_input_with(2, match.addend)
        for changed_gemm in match.gemms:
            clear_metadata(changed_gemm.outputs[0])
        editor.replace_value(add.outputs[0], match.value)
        return
    with editor.replacing(add):
        gemm_with_bias = editor.emit("Gemm", *gemm.inputs, match.addend, like=gemm)
    editor.replace_value(add.outputs[0], gemm_with_bias)
    for unused in (add, gemm):  # unused nodes would count as users of their operands until they are removed
        unused.resize_inputs(0)


add_to_gemm = RewriteRule(pattern, check, rewrite)


def _match_constant_addend(add: ir.Node) -> Match | None:
    for value, addend in _operands(add):
        if constant(addend) is not None and _has_shape_of_sum(addend, value, add):
            gemms = [*_gemm_chain(value)]
            if gemms and len(gemms[-1].inputs) == 2:
                return Match(add, value, addend, gemms, is_constant=True)
    return None


def _matches_of_computed_addend(add: ir.Node) -> Iterator[Match]:
    """Yield a match for each operand that is a Gemm without bias, perhaps reshaped."""
    for value, addend in _operands(add):
        reshape = producer(value, "Reshape") if only_user(value, "Add") else None
        rows = value if reshape is None else reshape.inputs[0]
        if rows is None or not only_user(rows, "Add", "Reshape") or not _has_shape_of_sum(addend, rows, add):
            continue
        gemm = _plain_gemm(rows)
        if gemm is not None and len(gemm.inputs) == 2:
            yield Match(add, value, addend, [gemm], is_constant=False)


def _operands(add: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield the two operands of a node in both orders."""
    left, right = add.inputs
    if left is not None and right is not None:
        yield from ((left, right), (right, left))


def _gemm_chain(value: ir.Value) -> Iterator[ir.Node]:
    """Yield the Gemm that computes a value, the Gemm that computes its bias, etc.

    Each result must have only one user.
    """
    while only_user(value, "Add", "Gemm") and (gemm := _plain_gemm(value)) is not None:
        yield gemm
        if len(gemm.inputs) < 3 or gemm.inputs[2] is None:
            return
        value = gemm.inputs[2]


def _plain_gemm(value: ir.Value) -> ir.Node | None:
    """Return the float Gemm that computes a value.

    Return ``None`` for other nodes, and if the first operand is dequantized: ONNX Runtime may then use an integer
    kernel.
    """
    gemm = producer(value, "Gemm")
    if gemm is None or value.dtype != ir.DataType.FLOAT or producer(gemm.inputs[0], "DequantizeLinear"):
        return None
    return None if gemm.attributes.keys() & {"alpha", "beta"} else gemm


def _has_shape_of_sum(addend: ir.Value, rows: ir.Value, add: ir.Node) -> bool:
    """True if ``rows`` has the shape of the sum, so that only ``addend`` is broadcast.

    For dynamic dimensions, this must hold for all sizes.
    """
    shape, addend_shape = sizes(rows), sizes(addend)
    if shape is None or addend_shape is None or len(shape) != 2 or shape != sizes(add.outputs[0]):
        return False
    return None not in shape or addend_shape[:-1] in ([], [1])
