"""A quantized operator of two operands, one of them constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.matching import Affine, only_user, producer, sizes
from onnx_tflite_plugin.source.model import Array


@dataclass(frozen=True)
class WithConstant:
    """A quantized operator on ``data`` of ``shape`` and a constant in ``slot``, between DequantizeLinear and
    QuantizeLinear.
    """

    node: ir.Node
    data: ir.Node
    quantize: ir.Node
    constant: Affine
    slot: int
    shape: tuple[int | None, ...]

    @classmethod
    def of(cls, node: ir.Node | None, *op_types: str) -> Self | None:
        """Return the unit around a node; ``None`` for other operators, per-axis scales, or if the data is broadcast."""
        if node is None or node.domain or node.op_type not in op_types:
            return None
        makers = [producer(value, "DequantizeLinear") for value in node.inputs]
        quantize = only_user(node.outputs[0], "QuantizeLinear")
        affines = [Affine.of(maker) for maker in (*makers, quantize)]
        slot = next((k for k, affine in enumerate(affines[:2]) if affine and affine.integers is not None), None)
        if slot is None or quantize is None or not all(one and one.per_tensor for one in affines):
            return None
        data, constant = makers[1 - slot], affines[slot]
        shape = None if data is None else sizes(data.outputs[0])
        if data is None or constant is None or not shape or sizes(node.outputs[0]) not in (None, shape):
            return None
        return cls(node, data, quantize, constant, slot, tuple(shape))

    @property
    def integers(self) -> Array:
        """Quantized values of the constant."""
        assert self.constant.integers is not None
        return self.constant.integers
