"""Test for views: operators that return the elements of their operand in order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.changes import resize_tensor
from onnx_tflite_plugin.normalize.derivation import ShapeDerivation
from onnx_tflite_plugin.normalize.isolated_operator import lower_in_isolation
from onnx_tflite_plugin.source.model import Model, Operator
from onnx_tflite_plugin.targets import Target

MAX_ELEMENTS = 1 << 22
"""Maximum elements of an operand that is tested."""
MAX_CONSTANT_ELEMENTS = 64
"""Maximum elements of the constant operands, such as a shape or a permutation."""


class ViewTest:
    """Test that runs an operator to find whether it is a view of operand 0.

    Only operators that move values are run; equal operators are run once.
    """

    def __init__(self, model: Model, host: Host, target: Target) -> None:
        self._derivation = ShapeDerivation(model, host, target, "")
        self._results: dict[Hashable, bool] = {}

    def __call__(self, op: Operator, shape: tuple[int, ...], result_shape: tuple[int, ...]) -> bool:
        constants = [tensor for tensor in op.inputs[1:] if tensor is not None]
        result = op.tensor(~0)
        if len(op.outputs) != 1 or result is None or not all(tensor.is_constant for tensor in constants):
            return False
        if (op[0].dtype, op[0].quantization) != (result.dtype, result.quantization) or op[0].is_variable:
            return False
        if (
            prod(shape) != prod(result_shape)
            or not 0 < prod(shape) <= MAX_ELEMENTS
            or sum(prod(t.shape) for t in constants) > MAX_CONSTANT_ELEMENTS
        ):
            return False
        values = tuple(tensor.array.tobytes() for tensor in constants)
        key = op.code, repr(sorted(op.options.items())), op[0].dtype, shape, result_shape, values
        if key not in self._results:
            self._results[key] = self._keeps_order(op, shape, result_shape)
        return self._results[key]

    def _keeps_order(self, op: Operator, shape: tuple[int, ...], result_shape: tuple[int, ...]) -> bool:
        """True if the lowered operator returns distinct elements in unchanged order."""
        operand, result = replace(resize_tensor(op[0], shape), dtype="float32"), resize_tensor(op[~0], result_shape)
        float_op = replace(op, inputs=(operand, *op.inputs[1:]), outputs=(replace(result, dtype="float32"),))
        derivation = self._derivation
        try:
            if not derivation.bind(op).declared.quantization.moves_values:
                return False
            model = lower_in_isolation(float_op, derivation.model, derivation.host, derivation.target)
        except (ConversionError, Failed, Refusal):
            return False
        from onnx.reference import ReferenceEvaluator

        elements = np.random.default_rng(prod(shape)).permutation(prod(shape)).astype(np.float32).reshape(shape)
        (returned,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {str(model.graph.inputs[0].name): elements})
        return bool(np.array_equal(np.reshape(returned, -1), elements.reshape(-1)))
