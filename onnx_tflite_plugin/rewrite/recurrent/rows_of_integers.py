"""Each time step of an unrolled recurrent layer multiplies its own row of integers by the same matrix, and rounds to a scale of its
own. One product of all rows costs one call, and so does rounding each row of it to its scale.

Of 8 bits the product is made of float32 that hold integers, whose sums are exact below 2^24, and rescaled by the factors that
ONNX Runtime's integer kernel has, so that every result is the same on each processor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import (
    Affine,
    Editor,
    constant,
    first,
    integer,
    nodes_of,
    only_user,
    producer,
    rewrite,
    sizes,
)
from onnx_tflite_plugin.rewrite.recurrent.rows import every, parted, row_of
from onnx_tflite_plugin.source.model import Array

_EXACT = 2**24
_FEWEST = 3  # rows


@dataclass(frozen=True)
class Row:
    """A row of a tensor, dequantized, multiplied by a matrix, and quantized. ``data``: the parameters of the tensor."""

    source: ir.Value
    index: int
    data: Affine
    gemm: ir.Node
    quantize: ir.Node
    result: Affine

    @classmethod
    def of(cls, gemm: ir.Node) -> Self | None:
        """What a product belongs to; ``None`` where a part is missing or not constant."""
        quantize, (integers, data) = only_user(gemm.outputs[0], "QuantizeLinear"), _dequantized(gemm.inputs[0])
        row, result = row_of(integers), Affine.of(quantize)
        if row is None or quantize is None or data is None or result is None or gemm.attributes.keys() - {"transB"}:
            return None
        source, index = row
        if source.dtype != quantize.outputs[0].dtype or not integer(gemm, "transB", 0):
            return None
        return cls(source, index, data, gemm, quantize, result) if data.per_tensor and result.per_tensor else None

    @property
    def bias(self) -> ir.Value | None:
        return self.gemm.inputs[2] if len(self.gemm.inputs) > 2 else None


def run(model: ir.Model) -> int:
    """Join the products of all rows of a tensor; returns of how many tensors."""
    return rewrite(model, [*_places(model.graph)], _replace)


def _places(graph: ir.Graph) -> Iterator[Sequence[Row]]:
    """The products of all rows of a tensor in their order, which have one matrix and one kind of result."""
    rows: dict[tuple[ir.Value, Hashable], dict[int, Row]] = {}
    for node in nodes_of(graph, "Gemm"):
        if row := Row.of(node):
            rows.setdefault((row.source, _content(node.inputs[1])), {})[row.index] = row
    for (source, *_), by_index in rows.items():
        taken = every(source, by_index)
        if len(taken) >= _FEWEST:
            yield taken


def _content(value: ir.Value | None) -> Hashable:
    """What tells a matrix from others: each product may dequantize it in nodes of its own."""
    array, node = constant(value), producer(value, "Cast", "DequantizeLinear", "Mul")
    if array is not None:
        return array.dtype.name, array.shape, array.tobytes()
    if node is None:
        return value
    return node.op_type, integer(node, "axis", 1), tuple(_content(operand) for operand in node.inputs)


def _dequantized(value: ir.Value | None) -> tuple[ir.Value | None, Affine | None]:
    """Integers and their parameters; of int16 a Cast and a Mul may stand for DequantizeLinear."""
    node = producer(value, "DequantizeLinear", "Mul")
    if node is None or node.op_type == "DequantizeLinear":
        return (None if node is None else node.inputs[0]), Affine.of(node)
    cast, scale = producer(node.inputs[0], "Cast"), constant(node.inputs[1])
    if cast is None or scale is None or scale.size != 1 or cast.inputs[0] is None:
        return None, None
    return cast.inputs[0], Affine(None, scale, np.zeros((), np.int16))


def _replace(editor: Editor, rows: Sequence[Row]) -> bool:
    """One product instead of all, where the first of them stands."""
    product = _PRODUCTS.get(rows[0].source.dtype or ir.DataType.UNDEFINED, Product).of(rows)
    if product is None:
        return False
    with editor.replacing(first(row.gemm for row in rows)):
        parts = parted(editor, product.emitted(editor), len(rows), product.batch)
    for row, part in zip(rows, parts, strict=True):
        editor.replace_value(row.quantize.outputs[0], part)
    return True


@dataclass(frozen=True)
class Product:
    """The product of all T rows of B sequences, of int16: float32, as each row's was.

    ``biases``: (T, O), or (O) where all have the same; ``points``: a zero point for each row of the product, T * B.
    """

    rows: Sequence[Row]
    batch: int
    biases: Array | None
    points: Array

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self | None:
        """``None`` where an operand is no constant that it knows."""
        shape = sizes(rows[0].source)
        assert shape is not None
        batch, biases = shape[1] or 0, [cls.bias(row) for row in rows]
        present = next((bias for bias in biases if bias is not None), None)
        unknown = any(bias is None and row.bias is not None for bias, row in zip(biases, rows, strict=True))
        if unknown or (present is not None and present.ndim != 1):
            return None
        joined = None
        if present is not None:
            joined = np.repeat([np.zeros_like(present) if bias is None else bias for bias in biases], batch, axis=0)
        points = np.repeat([row.result.zero_point.reshape(()) for row in rows], batch)
        return cls(rows, batch, joined, points)

    @staticmethod
    def bias(row: Row) -> Array | None:
        return constant(row.bias)

    @property
    def scales(self) -> Array:
        return np.repeat([row.result.scale.reshape(()) for row in self.rows], self.batch)

    def emitted(self, editor: Editor) -> ir.Value:
        """All rows as integers."""
        row = self.rows[0]
        floats = editor.emit("Mul", editor.emit("Cast", self.flat(editor), to="float32"), row.data.scale)
        return editor.emit(
            "QuantizeLinear", self.multiplied(editor, floats, row.gemm.inputs[1]), self.scales, self.points, axis=0
        )

    def flat(self, editor: Editor) -> ir.Value:
        """The tensor as rows."""
        shape = sizes(self.rows[0].source)
        assert shape is not None
        return editor.emit("Reshape", self.rows[0].source, np.asarray([-1, shape[2]], np.int64))

    def multiplied(self, editor: Editor, floats: ir.Value, weights: ir.Value | None) -> ir.Value:
        operands = [floats, weights] if self.biases is None else [floats, weights, self.biases.astype(np.float32)]
        return editor.emit("Gemm", *operands, transB=1)


@dataclass(frozen=True)
class ExactProduct(Product):
    """Of uint8 by int8: float32 that hold integers, rescaled as the integer kernel does (MlasRequantizeOutput of ONNX Runtime)."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self | None:
        self, weights = super().of(rows), _weights(rows[0])
        if self is None or weights is None or weights.integers is None:
            return None
        sums = 255 * np.abs(weights.integers.astype(np.int64)).sum(axis=1) + (
            0 if self.biases is None else np.abs(self.biases)
        )
        return self if sums.max(initial=0) <= _EXACT else None

    @staticmethod
    def bias(row: Row) -> Array | None:
        """In steps of input times weight, or it is none that the integer kernel takes."""
        affine, weights = Affine.of(producer(row.bias, "DequantizeLinear")), _weights(row)
        if affine is None or weights is None or affine.integers is None:
            return None
        return affine.integers if np.allclose(affine.scale, row.data.scale * weights.scale, rtol=1e-3, atol=0) else None

    def emitted(self, editor: Editor) -> ir.Value:
        row, weights = self.rows[0], _weights(self.rows[0])
        maker = producer(row.gemm.inputs[1], "DequantizeLinear")
        assert weights is not None
        assert maker is not None
        floats = editor.emit("DequantizeLinear", self.flat(editor), np.ones((), np.float32), row.data.zero_point)
        sums = self.multiplied(editor, floats, editor.emit("Cast", maker.inputs[0], to="float32"))
        inward = row.data.scale.reshape(()) * weights.scale
        factors = editor.emit("Div", inward, self.scales[:, np.newaxis])
        ones = np.ones(len(self.points), np.float32)
        return editor.emit("QuantizeLinear", editor.emit("Mul", sums, factors), ones, self.points, axis=0)


_PRODUCTS = {ir.DataType.UINT8: ExactProduct, ir.DataType.INT16: Product}


def _weights(row: Row) -> Affine | None:
    """The matrix of int8, symmetric and with a scale for each row or for all."""
    maker = producer(row.gemm.inputs[1], "DequantizeLinear")
    weights = Affine.of(maker)
    if maker is None or weights is None or weights.integers is None or weights.integers.dtype != np.int8:
        return None
    along = weights.per_tensor or integer(maker, "axis", 1) == 0
    return weights if along and not weights.zero_point.any() else None
