"""Models with integer products, and a check of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian_product

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnx_tflite_plugin.rewrite.weights.assign_dtypes import AssignWeightDtypes
from onnx_tflite_plugin.rewrite.weights.int8_operands import Int8Operand, int8_operands
from onnx_tflite_plugin.source.model import Array

U8, I8, I32, F32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32, TensorProto.FLOAT


def assign_weight_dtypes(model: ir.Model, option: str) -> dict[str, int]:
    """Assign the dtypes of weights without the postcondition."""
    assign = AssignWeightDtypes(option)
    assign.call(model)
    return assign.dtypes


def saturates(rows: Array) -> bool:
    """True if the sum of two neighboring products may exceed int16 (vpmaddubsw)."""
    weight_pairs = np.pad(rows, ((0, 0), (0, rows.shape[-1] % 2))).astype(int).reshape(-1, 2)
    sums = [weight_pairs @ np.array(inputs) for inputs in cartesian_product((0, 255), repeat=2)]
    return any(bool((pair_sums > 32767).any() or (pair_sums < -32768).any()) for pair_sums in sums)


def tensor_proto(name: str, array: Array) -> TensorProto:
    return numpy_helper.from_array(array, name)


def dequantize(name: str, out: str) -> object:
    return helper.make_node("DequantizeLinear", [name, "scale", f"zero_{name}"], [out])


def build_model(
    nodes: Sequence[object],
    weights: Array | None,
    x_shape: Sequence[int | None],
    out_dtype: int = F32,
    more_constants: Sequence[TensorProto] = (),
) -> ir.Model:
    """Return a model of uint8 ``x`` and int8 ``w``, with scale 1 and zero points 0.

    ``w`` is a graph input if ``weights`` is None.
    """
    constants = [
        tensor_proto("scale", np.float32(1)),
        tensor_proto("zero_x", np.uint8(0)),
        tensor_proto("zero_w", np.int8(0)),
        *more_constants,
    ]
    inputs = [helper.make_tensor_value_info("x", U8, x_shape)]
    if weights is None:
        inputs.append(helper.make_tensor_value_info("w", I8, [3, 2]))
    else:
        constants.append(tensor_proto("w", weights))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", out_dtype, None)], constants)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def only_int8_operand(model: ir.Model) -> Int8Operand:
    (operand,) = int8_operands(model)
    return operand


def build_float_product(
    op_type: str, weights: Array | None, x_shape: Sequence[int | None], **attributes: object
) -> ir.Model:
    """Return a model of one operator on the dequantized ``x`` and ``w``."""
    nodes = [dequantize("x", "a"), dequantize("w", "b"), helper.make_node(op_type, ["a", "b"], ["y"], **attributes)]
    return build_model(nodes, weights, x_shape)
