"""What is added to a float product of matrices becomes the operand that it adds itself. Unrolled recurrent layers add the products
with the input and with the last output, and a bias, in nodes of their own, and in small networks each node costs a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, forget, only_user, producer, rewrite_nodes, sizes


def run(model: ir.Model) -> int:
    """Leave out each Add that a product can make; returns how many."""
    depths: dict[ir.Node | None, int] = {}
    for node in model.graph:
        depths[node] = 1 + max(
            (depths.get(value.producer(), 0) for value in node.inputs if value is not None), default=0
        )
    return rewrite_nodes(model, "Add", partial(_replace, depths=depths))


def _replace(editor: Editor, node: ir.Node, depths: Mapping[ir.Node | None, int]) -> bool:
    return _as_bias(editor, node) or _as_summand(editor, node, depths)


def _as_bias(editor: Editor, node: ir.Node) -> bool:
    """A constant goes to the first of products that are added up, which need not wait for it."""
    for value, added in _operands(node):
        if constant(added) is None or not _fits(added, value, node):
            continue
        chain = [*_chain(value)]
        if chain and len(chain[-1].inputs) == 2:
            chain[-1].resize_inputs(3)
            chain[-1].replace_input_with(2, added)
            for gemm in chain:
                forget(gemm.outputs[0])
            editor.replace_value(node.outputs[0], value)
            return True
    return False


def _as_summand(editor: Editor, node: ir.Node, depths: Mapping[ir.Node | None, int]) -> bool:
    """Of two products that with more nodes in front of it adds the other: products with the input wait for nothing."""
    places = []
    for value, added in _operands(node):
        before = producer(value, "Reshape") if only_user(value, "Add") else None
        rows = value if before is None else before.inputs[0]
        if rows is None or not only_user(rows, "Add", "Reshape") or not _fits(added, rows, node):
            continue
        gemm = _plain(rows)
        if gemm is not None and len(gemm.inputs) == 2:
            places.append((depths.get(gemm, 0), gemm, added))
    if not places:
        return False
    _, gemm, added = max(places, key=lambda place: place[0])
    with editor.replacing(node):
        summed = editor.emit("Gemm", *gemm.inputs, added, like=gemm)
    editor.replace_value(node.outputs[0], summed)
    for unused in (node, gemm):  # until it is dropped it would count as a user of what it read
        unused.resize_inputs(0)
    return True


def _operands(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Either operand beside the other."""
    left, right = node.inputs
    if left is not None and right is not None:
        yield from ((left, right), (right, left))


def _chain(value: ir.Value) -> Iterator[ir.Node]:
    """The product that makes a value, and those whose sum it adds, each used by nothing else."""
    while only_user(value, "Add", "Gemm") and (gemm := _plain(value)) is not None:
        yield gemm
        if len(gemm.inputs) < 3 or gemm.inputs[2] is None:
            return
        value = gemm.inputs[2]


def _plain(value: ir.Value) -> ir.Node | None:
    """The float product that makes a value, where nothing dequantizes its rows: ONNX Runtime may multiply integers there."""
    gemm = producer(value, "Gemm")
    if gemm is None or value.dtype != ir.DataType.FLOAT or producer(gemm.inputs[0], "DequantizeLinear"):
        return None
    return None if gemm.attributes.keys() & {"alpha", "beta"} else gemm


def _fits(added: ir.Value, rows: ir.Value, node: ir.Node) -> bool:
    """Whether a product has the shape of the sum whatever is open, so that what it adds is repeated along it alone."""
    shape, other = sizes(rows), sizes(added)
    if shape is None or other is None or len(shape) != 2 or shape != sizes(node.outputs[0]):
        return False
    return None not in shape or other[:-1] in ([], [1])
