"""Constant folding at binding: results that handlers evaluate become constants.

Operators that use such a result get the constant as operand. The operator that computes the result is kept, because the result may
be a graph output; otherwise its nodes are removed as unused.
"""

from __future__ import annotations

from dataclasses import replace

from onnx_tflite_plugin.api.declarations import WidenedConstant
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import OperatorInstance, evaluate_output
from onnx_tflite_plugin.errors import REFUSED, HandlerError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.source.affine import dequantize_constant, is_quantized
from onnx_tflite_plugin.source.model import Array, ArrayData, Operator, Tensor, Widening, agree
from onnx_tflite_plugin.targets import Target


class Evaluation:
    """Constant results of one subgraph, collected in the order of execution."""

    def __init__(self) -> None:
        self._constants: dict[Tensor, Tensor] = {}

    def substitute(self, op: Operator) -> Operator:
        """Return the operator, with constants in place of operands that were evaluated."""
        if self._constants.keys().isdisjoint(tensor for tensor in op.inputs if tensor is not None):
            return op
        return replace(op, inputs=tuple(None if t is None else self._constants.get(t, t) for t in op.inputs))

    def add_result(self, bound: Bound, target: Target, opset: int) -> None:
        """Store the result of an operator if its handler evaluates it.

        Raises HandlerError if the handler fails or the result contradicts the file.
        """
        try:
            array = evaluate_output(bound.handler, bound.pack, OperatorInstance(bound.op, target, opset))
        except Failed as failed:
            raise HandlerError(REFUSED, [failed.problem(bound.label)]) from failed
        if array is not None:
            tensor = bound.op[~0]
            if isinstance(array, WidenedConstant):
                narrower = bound.op[array.slot]
                data = widening(narrower, tensor.dtype)
                dims = narrower.dims if agree(narrower.dims, tensor.dims) else tensor.dims
                self._constants[tensor] = replace(tensor, dims=dims, data=data)  # a constant has no dynamic dimensions
                return
            self._constants[tensor] = replace(tensor, shape=array.shape, dims=array.shape, data=ArrayData(array))


def widening(source: Tensor, dtype: str) -> Widening:
    """Return the constant ``source`` in ``dtype``; quantized values are dequantized."""

    def compute() -> Array:
        array = dequantize_constant(source) if is_quantized(source) else source.array
        return array.astype(dtype)

    return Widening(source, compute)
