"""Merge the Gemms that multiply each time step by the same quantized matrix.

Each time step of an unrolled recurrent layer multiplies its row of quantized values by the same matrix, and quantizes the product with
its own scale. After merging, one kernel call multiplies all rows, and another quantizes them with per-row scales.

For 8 bits, the merged product multiplies integers in float32, which is exact for sums of at most 2^24. It rescales them with the
factors of ONNX Runtime's integer kernel, so that results are equal on all processors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import (
    Affine,
    constant,
    first_node,
    integer,
    nodes_of,
    only_user,
    producer,
    sizes,
)
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.source.model import Array

_MAX_EXACT_SUM = 2**24
_MIN_ROWS = 3


@dataclass(frozen=True)
class Row:
    """A row of a tensor, and the quantized product of this row and a matrix.

    ``index``: index of the row along axis 0 of the tensor ``source``. ``data`` and ``result``: quantization parameters of
    the row and of the product.
    """

    source: ir.Value
    index: int
    data: Affine
    gemm: ir.Node
    quantize: ir.Node
    result: Affine

    @classmethod
    def of(cls, gemm: ir.Node) -> Self | None:
        """Return the row that a Gemm multiplies.

        Return ``None`` if the Gemm does not multiply a quantized row by a transposed matrix, or if a parameter is
        computed or per axis.
        """
        quantize, (integers, data) = only_user(gemm.outputs[0], "QuantizeLinear"), _dequantized_operand(gemm.inputs[0])
        row, result = _gathered_row(integers), Affine.of(quantize)
        if row is None or quantize is None or data is None or result is None or gemm.attributes.keys() - {"transB"}:
            return None
        source, index = row
        if source.dtype != quantize.outputs[0].dtype or not integer(gemm, "transB", 0):
            return None
        return cls(source, index, data, gemm, quantize, result) if data.per_tensor and result.per_tensor else None

    @property
    def bias(self) -> ir.Value | None:
        return self.gemm.inputs[2] if len(self.gemm.inputs) > 2 else None


def pattern(model: ir.Model, _: RewriteOptions) -> Iterator[Mapping[int, Row]]:
    """Yield rows of a tensor that are multiplied by the same matrix, by row index."""
    rows: dict[tuple[ir.Value, Hashable], dict[int, Row]] = {}
    for node in nodes_of(model.graph, "Gemm"):
        if row := Row.of(node):
            rows.setdefault((row.source, _matrix_key(node.inputs[1])), {})[row.index] = row
    yield from rows.values()


def check(rows: Mapping[int, Row]) -> Product:
    """Return the merged product. Raises Refusal if a row is missing or unsupported."""
    source = next(iter(rows.values())).source
    shape = require_match(sizes(source), "the rank of the tensor is unknown")
    require(len(shape) == 3 and None not in shape, "the tensor does not have three axes, or a size is dynamic")
    require(sorted(rows) == list(range(shape[0] or 0)), "a row is not multiplied by the matrix")
    require(len(rows) >= _MIN_ROWS, f"there are fewer than {_MIN_ROWS} rows")
    product_class = _PRODUCT_CLASSES.get(source.dtype or ir.DataType.UNDEFINED, Product)
    return product_class.of([rows[k] for k in sorted(rows)])


def rewrite(editor: Editor, product: Product) -> None:
    """Emit the merged product before the first Gemm, and split it into rows."""
    rows = product.rows
    with editor.replacing(first_node(row.gemm for row in rows)):
        lengths = np.full(len(rows), product.batch, np.int64)
        parts = editor.emitter.emit("Split", [product.emit(editor), lengths], {"axis": 0}, outputs=len(rows))
    for row, part in zip(rows, parts, strict=True):
        editor.replace_value(row.quantize.outputs[0], part)


merge_step_gemms = RewriteRule(pattern, check, rewrite)


def _gathered_row(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """Return the tensor and the index along axis 0 if a Gather selects one row."""
    gather = producer(value, "Gather")
    if gather is None:
        return None
    source, index = gather.inputs[0], constant(gather.inputs[1])
    if source is None or index is None or index.ndim or integer(gather, "axis", 0):
        return None
    return source, int(index)


def _matrix_key(value: ir.Value | None) -> Hashable:
    """Return a key that is the same for equal matrices.

    Each Gemm may have its own nodes that dequantize the matrix.
    """
    array, node = constant(value), producer(value, "Cast", "DequantizeLinear", "Mul")
    if array is not None:
        return array.dtype.name, array.shape, array.tobytes()
    if node is None:
        return value
    return node.op_type, integer(node, "axis", 1), tuple(_matrix_key(operand) for operand in node.inputs)


def _dequantized_operand(value: ir.Value | None) -> tuple[ir.Value | None, Affine | None]:
    """Return the quantized tensor of a value, and its parameters.

    Values of int16 may be dequantized by Cast and Mul.
    """
    node = producer(value, "DequantizeLinear", "Mul")
    if node is None or node.op_type == "DequantizeLinear":
        return (None if node is None else node.inputs[0]), Affine.of(node)
    cast, scale = producer(node.inputs[0], "Cast"), constant(node.inputs[1])
    if cast is None or scale is None or scale.size != 1 or cast.inputs[0] is None:
        return None, None
    return cast.inputs[0], Affine(None, scale, np.zeros((), np.int16))


@dataclass(frozen=True)
class Product:
    """The merged product of T time steps of B int16 sequences, computed in float32.

    The unmerged products are also computed in float32. ``biases``: [T * B, outputs], or None. ``zero_points``: the
    zero point of each row of the product, [T * B].
    """

    rows: Sequence[Row]
    batch: int
    biases: Array | None
    zero_points: Array

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Return the product. Raises Refusal if a bias is unsupported."""
        shape = require_match(sizes(rows[0].source))
        batch, biases = shape[1] or 0, [cls.bias(row) for row in rows]
        first_bias = next((bias for bias in biases if bias is not None), None)
        has_computed_bias = any(bias is None and row.bias is not None for bias, row in zip(biases, rows, strict=True))
        is_vector = first_bias is None or first_bias.ndim == 1
        require(
            not has_computed_bias and is_vector,
            "a bias is not a constant vector, or its scale is not the product of the operands' scales",
        )
        joined_biases = None
        if first_bias is not None:
            filled_biases = [np.zeros_like(first_bias) if bias is None else bias for bias in biases]
            joined_biases = np.repeat(filled_biases, batch, axis=0)
        zero_points = np.repeat([row.result.zero_point.reshape(()) for row in rows], batch)
        return cls(rows, batch, joined_biases, zero_points)

    @staticmethod
    def bias(row: Row) -> Array | None:
        return constant(row.bias)

    @property
    def scales(self) -> Array:
        return np.repeat([row.result.scale.reshape(()) for row in self.rows], self.batch)

    def emit(self, editor: Editor) -> ir.Value:
        """Emit the product, with all rows quantized."""
        row = self.rows[0]
        floats = editor.emit("Mul", editor.emit("Cast", self.emit_matrix(editor), to="float32"), row.data.scale)
        return editor.emit(
            "QuantizeLinear", self.emit_gemm(editor, floats, row.gemm.inputs[1]), self.scales, self.zero_points, axis=0
        )

    def emit_matrix(self, editor: Editor) -> ir.Value:
        """Emit a Reshape of the tensor to a matrix, [T * B, elements]."""
        shape = require_match(sizes(self.rows[0].source))
        return editor.emit("Reshape", self.rows[0].source, np.asarray([-1, shape[2]], np.int64))

    def emit_gemm(self, editor: Editor, floats: ir.Value, weights: ir.Value | None) -> ir.Value:
        """Emit the Gemm of all rows."""
        operands = [floats, weights] if self.biases is None else [floats, weights, self.biases.astype(np.float32)]
        return editor.emit("Gemm", *operands, transB=1)


@dataclass(frozen=True)
class ExactProduct(Product):
    """The merged product of uint8 rows by an int8 matrix, with exact sums in float32.

    The sums are rescaled as in the integer kernel of ONNX Runtime (MlasRequantizeOutput).
    """

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Return the product. Raises Refusal unless its sums are exact in float32."""
        weights = require_match(_weights(rows[0]), "the matrix is not symmetric int8")
        product, integers = super().of(rows), require_match(weights.integers)
        max_biases = 0 if product.biases is None else np.abs(product.biases)
        max_sums = 255 * np.abs(integers.astype(np.int64)).sum(axis=1) + max_biases
        require(
            max_sums.max(initial=0) <= _MAX_EXACT_SUM, "sums may exceed the integers that float32 represents exactly"
        )
        return product

    @staticmethod
    def bias(row: Row) -> Array | None:
        """Return the quantized values of the bias.

        Return ``None`` if its scale is not the row's scale times the matrix's scale.
        """
        affine, weights = Affine.of(producer(row.bias, "DequantizeLinear")), _weights(row)
        if affine is None or weights is None or affine.integers is None:
            return None
        return affine.integers if np.allclose(affine.scale, row.data.scale * weights.scale, rtol=1e-3, atol=0) else None

    def emit(self, editor: Editor) -> ir.Value:
        row, weights = self.rows[0], _weights(self.rows[0])
        dequantize = producer(row.gemm.inputs[1], "DequantizeLinear")
        assert weights is not None
        assert dequantize is not None
        floats = editor.emit("DequantizeLinear", self.emit_matrix(editor), np.ones((), np.float32), row.data.zero_point)
        sums = self.emit_gemm(editor, floats, editor.emit("Cast", dequantize.inputs[0], to="float32"))
        operand_scale = row.data.scale.reshape(()) * weights.scale
        factors = editor.emit("Div", operand_scale, self.scales[:, np.newaxis])
        ones = np.ones(len(self.zero_points), np.float32)
        return editor.emit("QuantizeLinear", editor.emit("Mul", sums, factors), ones, self.zero_points, axis=0)


_PRODUCT_CLASSES = {ir.DataType.UINT8: ExactProduct, ir.DataType.INT16: Product}


def _weights(row: Row) -> Affine | None:
    """Return the matrix of a product if it is symmetric int8, per tensor or per row."""
    dequantize = producer(row.gemm.inputs[1], "DequantizeLinear")
    weights = Affine.of(dequantize)
    if dequantize is None or weights is None or weights.integers is None or weights.integers.dtype != np.int8:
        return None
    is_supported = weights.per_tensor or integer(dequantize, "axis", 1) == 0
    return weights if is_supported and not weights.zero_point.any() else None
