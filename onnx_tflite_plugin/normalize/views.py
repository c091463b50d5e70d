"""Views: operators that return the elements of their operand in order.

They are found by running them.
"""

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


class ViewTest:
    """Test that operators return the elements of operand 0 in order.

    Only operators that move values are run, and equal operators once.
    """

    def __init__(self, model: Model, host: Host, target: Target) -> None:
        self._derivation = ShapeDerivation(model, host, target, "")
        self._results: dict[Hashable, bool] = {}

    def __call__(self, op: Operator, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        constants = [tensor for tensor in op.inputs[1:] if tensor is not None]
        result = op.tensor(~0)
        if len(op.outputs) != 1 or result is None or not all(tensor.is_constant for tensor in constants):
            return False
        if (op[0].dtype, op[0].quantization) != (result.dtype, result.quantization) or op[0].is_variable:
            return False
        if (
            prod(before) != prod(after)
            or not 0 < prod(before) <= MAX_ELEMENTS
            or sum(prod(t.shape) for t in constants) > 64
        ):
            return False
        values = tuple(tensor.array.tobytes() for tensor in constants)
        key = op.code, repr(sorted(op.options.items())), op[0].dtype, before, after, values
        if key not in self._results:
            self._results[key] = self._keeps_order(op, before, after)
        return self._results[key]

    def _keeps_order(self, op: Operator, before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        """True if the lowered operator returns shuffled elements in the same order."""
        operand, result = replace(resize_tensor(op[0], before), dtype="float32"), resize_tensor(op[~0], after)
        float_op = replace(op, inputs=(operand, *op.inputs[1:]), outputs=(replace(result, dtype="float32"),))
        derivation = self._derivation
        try:
            if not derivation.bind(op).declared.quantization.moves_values:
                return False
            model = lower_in_isolation(float_op, derivation.model, derivation.host, derivation.target)
        except (ConversionError, Failed, Refusal):
            return False
        from onnx.reference import ReferenceEvaluator

        elements = np.random.default_rng(prod(before)).permutation(prod(before)).astype(np.float32).reshape(before)
        (reordered,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {str(model.graph.inputs[0].name): elements})
        return bool(np.array_equal(np.reshape(reordered, -1), elements.reshape(-1)))
