"""Replace a Gemm between two Reshapes with a MatMul of the original tensor.

Gemm supports matrices only, so a tensor is reshaped to rows before the Gemm, and back after it. MatMul needs no Reshapes. Without
Reshapes, 16 multiplications of a row of 64 elements by a 64 x 64 matrix take 9.6 us instead of 14.0 us. With 512 elements, the time is
equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, constant_shape, integer, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array


class Match(NamedTuple):
    """A Gemm between ``flatten``, a Reshape to rows, and ``restore``, a Reshape back.

    ``shape``: the shape of the MatMul's result. ``transpose_matrix``: the matrix is stored as [columns, rows], unlike the
    operand of a MatMul.
    """

    gemm: ir.Node
    flatten: ir.Node
    restore: ir.Node
    shape: Sequence[int | None]
    transpose_matrix: bool


def check(gemm: ir.Node) -> Match:
    """Return the match if a Gemm multiplies the last axis of a tensor by a constant."""
    rows = gemm.inputs[0]
    flatten = require_match(producer(rows, "Reshape") or _reshape_before_quantization(rows))
    restore = require_match(only_user(gemm.outputs[0], "Reshape"), "the product is not reshaped back")
    block_matrix_shape = _block_shape(gemm.inputs[1])
    transpose_matrix = block_matrix_shape is None
    require(_is_plain(gemm, transpose_matrix), "the Gemm adds, scales or transposes its operands, or is not float")
    require(block_matrix_shape or _has_single_use(gemm.inputs[1]), "the matrix is not constant, or has other users")
    tensor_shape = require_match(sizes(flatten.inputs[0]), "the rank of the tensor is unknown")
    matrix_shape = block_matrix_shape[::-1] if block_matrix_shape else require_match(constant_shape(gemm.inputs[1]))
    result_shape = require_match(constant(restore.inputs[1]), "the shape of the result is not constant")
    require(
        result_shape.all(), "the target shape of the Reshape after the Gemm contains 0, which copies an input dimension"
    )
    require(tensor_shape[-1] == matrix_shape[1], "the Gemm does not reduce the last axis of the tensor")
    return Match(gemm, flatten, restore, [*tensor_shape[:-1], matrix_shape[0]], transpose_matrix)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the MatMul, and keep the Reshape after it only if the shapes differ."""
    gemm, flatten, restore, shape, transpose_matrix = match
    if transpose_matrix:
        editor.rebuild(gemm, [1], _transpose)
    with editor.replacing(gemm):
        product = editor.emit("MatMul", _unflattened_operand(editor, gemm.inputs[0], flatten), gemm.inputs[1])
    product.type = gemm.outputs[0].type
    if sizes(restore.outputs[0]) == shape and shape.count(None) < 2:
        editor.replace_value(restore.outputs[0], product)
    else:
        product.shape = ir.Shape(shape)
        restore.replace_input_with(0, product)


gemm_to_matmul = RewriteRule(nodes("Gemm"), check, rewrite)


def _reshape_before_quantization(rows: ir.Value | None) -> ir.Node | None:
    """Return the Reshape before the dynamic quantization of the rows."""
    dequantize = producer(rows, "DequantizeLinear")
    quantize = None if dequantize is None else producer(dequantize.inputs[0], "DynamicQuantizeLinear")
    return None if quantize is None else producer(quantize.inputs[0], "Reshape")


def _unflattened_operand(editor: Editor, rows: ir.Value | None, flatten: ir.Node) -> ir.Value | None:
    """Return the tensor before its Reshape, quantized and dequantized like the rows."""
    if producer(rows, "DequantizeLinear") is None:
        return flatten.inputs[0]
    quantized = editor.emitter.emit("DynamicQuantizeLinear", [flatten.inputs[0]], {}, outputs=3)
    return editor.emit("DequantizeLinear", *quantized)


def _block_shape(matrix: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of a blockwise-quantized matrix, or ``None`` for any other."""
    dequantize = producer(matrix, "DequantizeLinear")
    return constant_shape(matrix) if dequantize is not None and integer(dequantize, "block_size", 0) else None


def _is_plain(gemm: ir.Node, transpose_matrix: bool) -> bool:
    """True for a float Gemm without bias, factors or transposed first operand."""
    has_bias = any(value is not None for value in gemm.inputs[2:])
    return (
        not has_bias
        and not gemm.attributes.keys() & {"alpha", "beta", "transA"}
        and integer(gemm, "transB", 0) == transpose_matrix
        and gemm.outputs[0].dtype == ir.DataType.FLOAT
    )


def _has_single_use(matrix: ir.Value | None) -> bool:
    """True if only one node reads each constant that a matrix is computed from.

    The matrix is a constant, or is dequantized by Cast and Mul.
    """
    constants = [*_stored_constants(matrix)]
    return bool(constants) and all(
        array is not None and array.ndim in (0, 2) and len(value.uses()) == 1 for value, array in constants
    )


def _stored_constants(matrix: ir.Value | None) -> Iterator[tuple[ir.Value, Array | None]]:
    """Yield the values that a matrix is computed from, with their arrays if constant."""
    producer_node = producer(matrix, "Cast", "Mul")
    if producer_node is not None:
        for operand in producer_node.inputs:
            yield from _stored_constants(operand)
    elif matrix is not None:
        yield matrix, constant(matrix)


def _transpose(array: Array, _: float) -> Array:
    return np.ascontiguousarray(array.T)
