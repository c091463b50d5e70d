"""Conversion of dynamic-range weights to floats, for LiteRT's float kernels."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from onnx_tflite_plugin.source.model import Array

_BITS = {"INT8": 8, "UINT8": 8, "INT4": 4, "INT2": 2}
_WIDE = {"INT16": np.int16, "INT32": np.int32, "INT64": np.int64}


def dequantize_weights(schema: Any, model: Any) -> None:
    """Replace quantized weights of dynamic-range operators with float32, in place."""
    dtype_names = read_dtype_names(schema)
    for graph in model.subgraphs:
        float_tensors: dict[int, int] = {}  # the float copy of each quantized tensor
        for operator in graph.operators or ():
            input_indices = [int(k) for k in (operator.inputs if operator.inputs is not None else ())]
            if not _is_dynamic_range(model, graph, operator, input_indices, dtype_names):
                continue
            for k, index in enumerate(input_indices):
                if index >= 0 and _is_weight(model, graph.tensors[index], dtype_names):
                    if index not in float_tensors:
                        float_tensors[index] = _add_constant(schema, model, graph, index, dtype_names)
                    input_indices[k] = float_tensors[index]
            operator.inputs = input_indices


def read_dtype_names(schema: Any) -> dict[int, str]:
    """Return the names of the schema's tensor types, such as ``INT8``, by number."""
    return {value: name for name, value in vars(schema.TensorType).items() if not name.startswith("_")}


def _is_dynamic_range(model: Any, graph: Any, operator: Any, inputs: list[int], dtype_names: dict[int, str]) -> bool:
    """True if an operator has float activations, float results and quantized weights."""
    tensors = [graph.tensors[k] for k in inputs if k >= 0]
    outputs = [graph.tensors[int(k)] for k in (operator.outputs if operator.outputs is not None else ()) if k >= 0]
    has_float_operand = any(dtype_names[t.type] == "FLOAT32" and not constant_data(model, t).size for t in tensors)
    return (
        has_float_operand
        and any(dtype_names[t.type] == "FLOAT32" for t in outputs)
        and any(_is_weight(model, tensor, dtype_names) for tensor in tensors)
    )


def _is_weight(model: Any, tensor: Any, dtype_names: dict[int, str]) -> bool:
    quantization = tensor.quantization
    has_scale = quantization is not None and (
        (quantization.scale is not None and len(quantization.scale)) or hasattr(quantization.details, "scales")
    )
    return bool(dtype_names[tensor.type] in _BITS and has_scale and constant_data(model, tensor).size)


def constant_data(model: Any, tensor: Any) -> Array:
    """Return the bytes of a constant; empty for other tensors."""
    data = model.buffers[tensor.buffer].data
    return np.empty(0, np.uint8) if data is None else np.asarray(data, np.uint8)


def _add_constant(schema: Any, model: Any, graph: Any, index: int, dtype_names: dict[int, str]) -> int:
    """Add the dequantized constant to the subgraph, and return its tensor index."""
    quantized_tensor = graph.tensors[index]
    if quantized_tensor.type == schema.TensorType.UINT8:
        quantized_tensor = _as_int8(schema, quantized_tensor)
    tensor, buffer = schema.TensorT(), schema.BufferT()
    values = dequantize_constant(model, graph, quantized_tensor, dtype_names)
    buffer.data = np.frombuffer(np.ascontiguousarray(values, np.float32).tobytes(), np.uint8)
    tensor.name, tensor.shape, tensor.type = quantized_tensor.name, quantized_tensor.shape, schema.TensorType.FLOAT32
    tensor.buffer = len(model.buffers)
    model.buffers = [*model.buffers, buffer]
    graph.tensors = [*graph.tensors, tensor]
    return len(graph.tensors) - 1


def _as_int8(schema: Any, tensor: Any) -> Any:
    """Return uint8 weights as int8 without zero point.

    Kernels of dynamic-range operators read them in this way (EvalHybrid, kernels/fully_connected.cc and conv.cc).
    """
    int8_tensor = copy(tensor)
    int8_tensor.quantization = copy(tensor.quantization)
    int8_tensor.type, int8_tensor.quantization.zeroPoint = schema.TensorType.INT8, None
    return int8_tensor


def dequantize_constant(model: Any, graph: Any, tensor: Any, dtype_names: dict[int, str]) -> Array:
    """Return a constant, dequantized per tensor, per axis, or per last-axis block."""
    shape = [int(size) for size in tensor.shape]
    data, name = constant_data(model, tensor), dtype_names[tensor.type]
    integers = data.view(_WIDE[name]) if name in _WIDE else _unpack(data, _BITS[name], name == "UINT8")
    integers = integers[: int(np.prod(shape))].reshape(shape).astype(np.float32)
    quantization = tensor.quantization
    if hasattr(quantization.details, "scales"):
        scales = constant_data(model, graph.tensors[quantization.details.scales]).view(np.float16).astype(np.float32)
        block_scales = scales.reshape(shape[0], -1)
        return np.asarray(integers * np.repeat(block_scales, shape[-1] // block_scales.shape[1], axis=1).reshape(shape))
    scale = np.asarray(quantization.scale, np.float32)
    zero_points = np.zeros(len(scale)) if quantization.zeroPoint is None else np.asarray(quantization.zeroPoint)
    scale_shape = [1] * len(shape)
    if len(scale) > 1:
        scale_shape[quantization.quantizedDimension] = len(scale)
    return np.asarray((integers - zero_points.astype(np.float32).reshape(scale_shape)) * scale.reshape(scale_shape))


def _unpack(data: Array, bits: int, unsigned: bool) -> Array:
    """Return packed integers as one element each, lowest bits first."""
    if bits == 8:
        return data if unsigned else data.view(np.int8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (data[:, None] >> shifts) & ((1 << bits) - 1)
    values = fields.reshape(-1).astype(np.int8)
    return np.where(values >= 1 << (bits - 1), values - (1 << bits), values).astype(np.int8)
