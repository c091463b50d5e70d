"""Each time step of an unrolled recurrent layer multiplies its own row of the input by the same matrix; one product of all rows
costs one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import Editor, constant, integer, producer, rewrite, sizes

Rows = tuple[ir.Value, Sequence[ir.Node], ir.Node]
"""A tensor (T, B, I), the product of each of its T matrices in their order, and that which stands first."""


def run(model: ir.Model) -> int:
    """Join the products of all matrices of a tensor; returns of how many tensors."""
    return rewrite(model, [*_places(model.graph)], _replace)


def _places(graph: ir.Graph) -> Iterator[Rows]:
    products: dict[tuple[ir.Value, tuple[ir.Value | None, ...], bool], dict[int, ir.Node]] = {}
    order = {node: place for place, node in enumerate(graph)}
    for node in graph:
        if node.domain == "" and node.op_type == "Gemm" and (row := _row(node)):
            source, index = row
            key = source, tuple(node.inputs[1:]), bool(integer(node, "transB", 0))
            products.setdefault(key, {})[index] = node
    for (source, *_), by_index in products.items():
        shape = sizes(source)
        if shape and len(shape) == 3 and None not in shape and sorted(by_index) == list(range(shape[0] or 0)):
            yield source, [by_index[k] for k in sorted(by_index)], min(by_index.values(), key=order.__getitem__)


def _row(gemm: ir.Node) -> tuple[ir.Value, int] | None:
    """The tensor whose matrix a float product of constants takes, and the place of that along axis 0."""
    gather = producer(gemm.inputs[0], "Gather")
    plain = not gemm.attributes.keys() - {"transB"} and gemm.outputs[0].dtype == ir.DataType.FLOAT
    if gather is None or not plain or any(constant(value) is None for value in gemm.inputs[1:]):
        return None
    source, index = gather.inputs[0], constant(gather.inputs[1])
    if source is None or index is None or index.ndim or integer(gather, "axis", 0):
        return None
    return source, int(index)


def _replace(editor: Editor, place: Rows) -> bool:
    source, products, first = place
    shape = sizes(source)
    assert shape is not None
    with editor.replacing(first):
        rows = editor.emit("Reshape", source, np.asarray([-1, shape[2]], np.int64))
        product = editor.emit("Gemm", rows, *first.inputs[1:], like=first)
        lengths = np.full(len(products), shape[1], np.int64)
        parts = editor.emitter.emit("Split", [product, lengths], {"axis": 0}, outputs=len(products))
    for node, part in zip(products, parts, strict=True):
        editor.replace_value(node.outputs[0], part)
    return True
