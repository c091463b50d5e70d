"""Store the 4-bit embedding table of a language model only once.

In many language models, the embedding table also contains the weights of the product that computes the scores. ONNX Runtime's
MatMulNBits can read the bytes of the table as its weights. A model of 134 million weights, 28 million of them in the table, then takes
86 MB instead of 104 MB. If the table has per-row scales, a block axis is added to it, and the scales are repeated for the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.rewrite.weights.block_products import BlockProduct, find_block_product
from onnx_tflite_plugin.source.model import Array


class Match(NamedTuple):
    """A product whose packed weights have the same bytes as ``table``.

    ``scales``: the stored scales of the table, or an array of scales to store for the product.
    """

    product: BlockProduct
    table: ir.Value
    scales: ir.Value | Array


class Place(NamedTuple):
    """A product, and all tables of the model."""

    product: ir.Node
    tables: list[ir.Value]


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[Place]:
    tables = [
        node.inputs[0]
        for node in nodes_of(model.graph, "Gather")
        if node.inputs[0] is not None
        and node.inputs[0].dtype == ir.DataType.UINT8
        and constant(node.inputs[0]) is not None
    ]
    return [Place(node, tables) for node in nodes_of(model.graph, "MatMul", "Gemm")] if tables else []


def check(place: Place) -> Match:
    """Return the match if weights and scales of the product equal those of a table."""
    product, tables = find_block_product(place.product), place.tables
    (depth, rows), block_size, scales = product.weights.shape, product.block_size, product.scales
    shape = (rows, depth // block_size, block_size // 2)
    for table in tables:
        array = require_match(constant(table))
        if array.shape not in (shape, (rows, depth // 2)):
            continue
        if not np.array_equal(array.reshape(shape), product.packed_weights()):
            continue
        for scale_table in _tables_with_same_indices(table):
            stored_scales = constant(scale_table)
            if stored_scales is None:
                continue
            if stored_scales.shape == (rows, depth // block_size) and np.array_equal(stored_scales, scales.T):
                return Match(product, table, scale_table)
            if array.ndim == 2 and stored_scales.shape == (rows, 1) and (stored_scales == scales.T).all():
                require(all(_is_row_lookup(use.node) for use in table.uses()), "the table has other users")
                return Match(product, table, np.ascontiguousarray(scales.T))
    return require_match(None, "no table has the same values and scales")


def _is_row_lookup(node: ir.Node) -> bool:
    """True for a Gather along axis 0 with indices of known rank."""
    return node.op_type == "Gather" and integer(node, "axis", 0) == 0 and sizes(node.inputs[1]) is not None


def _tables_with_same_indices(table: ir.Value) -> list[ir.Value]:
    """Return the tables, such as scales, that are read with the same indices."""
    indices = [use.node.inputs[1] for use in table.uses()]
    users = [use.node for value in indices if value is not None for use in value.uses()]
    return [node.inputs[0] for node in users if node.op_type == "Gather" and node.inputs[0] is not None]


def rewrite(editor: Editor, match: Match) -> None:
    """Emit MatMulNBits with the table as packed weights."""
    product, table, scales = match
    stored = require_match(constant(table))
    if stored.ndim == 2:
        table = _replace_by_blocks(editor, table, stored.reshape(len(stored), -1, product.block_size // 2))
    product.emit(editor, table, scales)


def _replace_by_blocks(editor: Editor, table: ir.Value, blocks: Array) -> ir.Value:
    """Replace a table by ``blocks``, which has a block axis, and return the new table.

    A Reshape removes the block axis after each lookup.
    """
    blocked_table = editor.store(blocks, like=table)
    for node in [use.node for use in table.uses()]:
        rank = len(require_match(sizes(node.inputs[1])))
        with editor.replacing(node):
            row_blocks = editor.emit("Gather", blocked_table, node.inputs[1], axis=0)
            rows = editor.emit("Reshape", row_blocks, np.asarray([*[0] * rank, blocks[0].size], np.int64))
        editor.replace_value(node.outputs[0], rows)
    return blocked_table


tie_tables = RewriteRule(pattern, check, rewrite)
