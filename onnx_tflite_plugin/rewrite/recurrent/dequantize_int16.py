"""int16 that a Cast and a Mul dequantize goes through memory twice; DequantizeLinear does it in one node.

Between a DequantizeLinear with one scale and a QuantizeLinear, ONNX Runtime rounds float weights of Conv or Gemm to 8 bits
(WeightBiasQuantization), and it moves such a node across Reshape and Transpose. It changes neither the operands of element-wise
operators, for which it has no kernel for 16 bits, nor tensors with a scale along an axis.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, nodes_of, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match

_ELEMENTWISE = frozenset({"Add", "Div", "HardSigmoid", "HardSwish", "Mul", "Sigmoid", "Sub", "Tanh"})
_OPSET = 21  # first opset in which DequantizeLinear supports 16 bits
_LONGEST = 1 << 16  # maximum elements of an axis along which scales are repeated
_RUN = 16  # consecutive elements of one scale: 64 such runs take 0.55 us, 256 1.0, against 0.8 and 0.9 in two nodes


class Match(NamedTuple):
    """A Mul of cast ``integers`` by one scale; ``axis``: the axis along which the scale is repeated ``times``, if any."""

    node: ir.Node
    integers: ir.Value
    scale: float
    axis: int | None = None
    times: int = 1


def pattern(model: ir.Model, _: RewriteOptions) -> list[ir.Node]:
    """Yield the multiplications of the main graph, from the first opset that dequantizes 16 bits."""
    return nodes_of(model.graph, "Mul") if (model.graph.opset_imports.get("") or 0) >= _OPSET else []


def check(node: ir.Node) -> Match:
    """Return the match, if computed int16 is multiplied by one scale for one reader."""
    cast, scale = require_match(producer(node.inputs[0], "Cast")), require_match(constant(node.inputs[1]))
    integers, uses = require_match(cast.inputs[0]), node.outputs[0].uses()
    require(integers.dtype == ir.DataType.INT16 and constant(integers) is None)
    require(scale.size == 1 and scale.dtype == np.float32, "there are several scales")
    require(only_user(cast.outputs[0], "Mul") and len(uses) == 1, "several nodes read the integers or the floats")
    if next(iter(uses)).node.op_type in _ELEMENTWISE:
        return Match(node, integers, scale.item())
    shape = sizes(node.outputs[0]) or []
    axis = next((k for k, size in enumerate(shape) if size is not None and size > 1), len(shape))
    run = math.prod(size or 1 for size in shape[axis + 1 :])
    require(run >= _RUN, f"fewer than {_RUN} consecutive elements would have one scale")
    require((shape[axis] or 0) <= _LONGEST, f"the axis has more than {_LONGEST} elements")
    return Match(node, integers, scale.item(), axis, shape[axis] or 0)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit DequantizeLinear, per axis before other operators than element-wise ones."""
    node, integers, scale, axis, times = match
    scales = np.asarray(scale, np.float32) if axis is None else np.full(times, scale, np.float32)
    # Before 1.24 ONNX Runtime treats integers without a zero point as uint8 when it moves such a node.
    points = () if axis is None else (np.zeros(scales.shape, np.int16),)
    with editor.replacing(node):
        floats = editor.emit("DequantizeLinear", integers, scales, *points, axis=axis)
    editor.replace_value(node.outputs[0], floats)


dequantize_int16 = RewriteRule(pattern, check, rewrite)
