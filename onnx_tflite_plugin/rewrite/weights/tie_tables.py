"""Store the 4-bit embedding table of a language model only once.

In many language models, the embedding table is also the weights of the MatMul that computes the scores. ONNX Runtime's
MatMulNBits can read the bytes of the table as its weights. A model of 134 million weights, 28 million of them in the table, then takes
86 MB instead of 104 MB. If the table has per-row scales, a block axis is added to it, and the scales are repeated for the matmul.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, integer, nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.rewrite.weights.block_products import BlockMatMul, find_block_matmul
from onnx_tflite_plugin.source.model import Array


class Match(NamedTuple):
    """A MatMul or Gemm whose packed weights have the same bytes as ``table``.

    ``scales``: the stored scales of the table, or an array of scales to store for the MatMulNBits.
    """

    matmul: BlockMatMul
    table: ir.Value
    scales: ir.Value | Array


class Place(NamedTuple):
    """A MatMul or Gemm, and all tables of the model."""

    node: ir.Node
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
    """Return the match if a table has the same weights and scales as the node."""
    matmul = find_block_matmul(place.node)
    for table in place.tables:
        scales = _shared_scales(table, matmul) if _has_packed_weights(table, matmul) else None
        if scales is not None:
            return Match(matmul, table, scales)
    return require_match(None, "no table has the same values and scales")


def _has_packed_weights(table: ir.Value, matmul: BlockMatMul) -> bool:
    """True if a table, with or without a block axis, contains the packed weights."""
    (depth, rows), block_size = matmul.weights.shape, matmul.block_size
    packed_shape = (rows, depth // block_size, block_size // 2)
    array = require_match(constant(table))
    if array.shape not in (packed_shape, (rows, depth // 2)):
        return False
    return np.array_equal(array.reshape(packed_shape), matmul.packed_weights())


def _shared_scales(table: ir.Value, matmul: BlockMatMul) -> ir.Value | Array | None:
    """Return the scales for MatMulNBits if table and weights have the same scales.

    Return the table's stored scales if they are per block, or the scales of the weights if the table's are per row.
    """
    (depth, rows), scales = matmul.weights.shape, matmul.scales.T
    for scale_table in _tables_with_same_indices(table):
        stored_scales = constant(scale_table)
        if stored_scales is None:
            continue
        if stored_scales.shape == (rows, depth // matmul.block_size) and np.array_equal(stored_scales, scales):
            return scale_table
        has_block_axis = require_match(constant(table)).ndim == 3
        if not has_block_axis and stored_scales.shape == (rows, 1) and (stored_scales == scales).all():
            require(all(_is_row_lookup(use.node) for use in table.uses()), "the table has other users")
            return np.ascontiguousarray(scales)
    return None


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
    matmul, table, scales = match
    stored = require_match(constant(table))
    if stored.ndim == 2:
        table = _replace_by_blocks(editor, table, stored.reshape(len(stored), -1, matmul.block_size // 2))
    matmul.emit(editor, table, scales)


def _replace_by_blocks(editor: Editor, table: ir.Value, blocks: Array) -> ir.Value:
    """Replace a table with ``blocks``, which has a block axis; return the new one.

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
