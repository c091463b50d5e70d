"""Each time step of an unrolled recurrent layer multiplies its own row of the input by the same matrix; one product of all rows
costs one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant_shape, first, integer, nodes_of, producer, rewrite, sizes
from onnx_tflite_plugin.rewrite.recurrent.rows import every, parted, row_of

Rows = tuple[ir.Value, Sequence[ir.Node]]
"""A tensor (T, B, I), and the product of each of its T matrices in their order."""


def run(model: ir.Model) -> int:
    """Join the products of all matrices of a tensor; returns of how many tensors."""
    return rewrite(model, [*_places(model.graph)], _replace)


def _places(graph: ir.Graph) -> Iterator[Rows]:
    products: dict[tuple[ir.Value, tuple[ir.Value | None, ...], bool], dict[int, ir.Node]] = {}
    for node in nodes_of(graph, "Gemm"):
        if _plain(node) and (row := row_of(node.inputs[0])):
            source, index = row
            key = source, tuple(node.inputs[1:]), bool(integer(node, "transB", 0))
            products.setdefault(key, {})[index] = node
    for (source, *_), by_index in products.items():
        if taken := every(source, by_index):
            yield source, taken


def _plain(gemm: ir.Node) -> bool:
    """Whether it is a float product with constants, of float16 too; ONNX Runtime may multiply what is dequantized as integers."""
    plain = not gemm.attributes.keys() - {"transB"} and gemm.outputs[0].dtype == ir.DataType.FLOAT
    return plain and not any(
        constant_shape(value) is None or producer(value, "DequantizeLinear") for value in gemm.inputs[1:]
    )


def _replace(editor: Editor, place: Rows) -> bool:
    source, products = place
    shape = sizes(source)
    assert shape is not None
    foremost = first(products)
    with editor.replacing(foremost):
        rows = editor.emit("Reshape", source, np.asarray([-1, shape[2]], np.int64))
        product = editor.emit("Gemm", rows, *foremost.inputs[1:], like=foremost)
        parts = parted(editor, product, len(products), shape[1] or 0)
    for node, part in zip(products, parts, strict=True):
        editor.replace_value(node.outputs[0], part)
    return True
