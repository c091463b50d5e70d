"""Integers of 16 bits that a Cast and a Mul make float go through memory twice; DequantizeLinear does it in one node.

Where a DequantizeLinear with one scale stands in front of Conv or Gemm and a QuantizeLinear behind, ONNX Runtime rounds their
float weights to 8 bits (WeightBiasQuantization), and it moves such a node behind Reshape and Transpose. It leaves alone what
operators that work element by element take, for which it has no kernel of 16 bits, and what has a scale along an axis.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, only_user, producer, rewrite_nodes, sizes
from onnx_tflite_plugin.source.model import Array

_EACH = frozenset({"Add", "Div", "HardSigmoid", "HardSwish", "Mul", "Sigmoid", "Sub", "Tanh"})
_OPSET = 21  # from which on 16 bits are dequantized
_LONGEST = 1 << 16  # of an axis, for which the one scale is written so often
_RUN = 16  # elements of one scale in a row: 64 apart take 0.55 us, 256 1.0, 0.8 and 0.9 in two nodes


def run(model: ir.Model) -> int:
    """Leave out each Cast in front of a multiplication by one scale; returns how many."""
    if (model.graph.opset_imports.get("") or 0) < _OPSET:
        return 0
    return rewrite_nodes(model, "Mul", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    cast, scale = producer(node.inputs[0], "Cast"), constant(node.inputs[1])
    if (
        cast is None
        or scale is None
        or scale.size != 1
        or scale.dtype != np.float32
        or only_user(cast.outputs[0], "Mul") is None
    ):
        return False
    points: tuple[Array, ...]
    integers, users = cast.inputs[0], node.outputs[0].uses()
    if integers is None or integers.dtype != ir.DataType.INT16 or constant(integers) is not None or len(users) != 1:
        return False
    if next(iter(users)).node.op_type in _EACH:
        scales, points, along = np.asarray(scale.item(), np.float32), (), None
    else:
        shape = sizes(node.outputs[0]) or []
        axis = next((k for k, size in enumerate(shape) if size is not None and size > 1), len(shape))
        if math.prod(size or 1 for size in shape[axis + 1 :]) < _RUN or (shape[axis] or 0) > _LONGEST:
            return False
        scales, along = np.full(shape[axis] or 0, scale.item(), np.float32), axis
        # Before 1.24 ONNX Runtime takes integers without a zero point for uint8 where it moves such a node.
        points = (np.zeros(scales.shape, np.int16),)
    with editor.replacing(node):
        floats = editor.emit("DequantizeLinear", integers, scales, *points, axis=along)
    editor.replace_value(node.outputs[0], floats)
    return True
