"""Quantized elementwise operators on a tensor and a constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.matching import Affine, only_user, producer, sizes
from onnx_tflite_plugin.source.model import Array


@dataclass(frozen=True)
class QuantizedElementwise:
    """A quantized elementwise operator on a tensor and a constant.

    ``node`` is between DequantizeLinear and QuantizeLinear. ``dequantize``: the DequantizeLinear of the tensor. ``shape``:
    the shape of the tensor and of the result. ``slot``: the index of the constant operand.
    """

    node: ir.Node
    dequantize: ir.Node
    quantize: ir.Node
    constant: Affine
    slot: int
    shape: tuple[int | None, ...]

    @classmethod
    def of(cls, node: ir.Node | None, *op_types: str) -> Self | None:
        """Return the quantized operator of a node.

        Return ``None`` for operators other than ``op_types``, for per-axis scales, and if the tensor is broadcast.
        """
        if node is None or node.domain or node.op_type not in op_types:
            return None
        dequantize_nodes = [producer(value, "DequantizeLinear") for value in node.inputs]
        quantize = only_user(node.outputs[0], "QuantizeLinear")
        affines = [Affine.of(qdq_node) for qdq_node in (*dequantize_nodes, quantize)]
        slot = next((k for k, affine in enumerate(affines[:2]) if affine and affine.integers is not None), None)
        if slot is None or quantize is None or not all(affine and affine.per_tensor for affine in affines):
            return None
        dequantize, constant = dequantize_nodes[1 - slot], affines[slot]
        shape = None if dequantize is None else sizes(dequantize.outputs[0])
        if dequantize is None or constant is None or not shape or sizes(node.outputs[0]) not in (None, shape):
            return None
        return cls(node, dequantize, quantize, constant, slot, tuple(shape))

    @property
    def integers(self) -> Array:
        """Quantized values of the constant."""
        assert self.constant.integers is not None
        return self.constant.integers
