"""Results of LiteRT's float kernels for quantized operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter, pack_model
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.weights import constant_data, dequantize_constant, read_dtype_names

_QUANTIZED = {"INT8", "UINT8", "INT16", "INT32", "INT64"}
_SYMMETRIC_POINTS = {"INT8": 0, "UINT8": 128}  # zero points of weights that symmetric int8 stores unchanged
_MAX_INT8 = 127


class FloatKernels:
    """Session of LiteRT's float kernels for quantized operators.

    States are carried from run to run. ``operands``: tensors that the caller passes. ``result``: tensor to return.
    ``symmetric``: round asymmetric 8-bit weights to symmetric int8, with a scale per output channel. Raises
    LiteRTError if LiteRT does not load the operators with float tensors.
    """

    def __init__(
        self,
        writer: SubmodelWriter,
        operators: Sequence[Operator],
        operands: Sequence[Tensor],
        result: Tensor,
        *,
        symmetric: bool,
    ) -> None:
        data = writer.write(operators, [], [result.index], [tensor.index for tensor in operands])
        self._session = LiteRT(_with_floats(data, symmetric=symmetric), "builtin")

    def run(self, arrays: Sequence[Array]) -> Array | None:
        """Return the float result of float operands; None if the result is not float32.

        Raises LiteRTError if LiteRT has no float kernel.
        """
        (array,) = self._session.run(arrays)
        return array if array.dtype == np.float32 else None


def as_symmetric(tensor: Tensor, array: Array) -> Array:
    """Return a dequantized array; 8-bit values are rounded to symmetric int8."""
    quantization, values = tensor.quantization, as_float(tensor, array)
    if not isinstance(quantization, Quantization) or array.dtype.kind not in "iu" or array.dtype.itemsize > 1:
        return values
    limits, (zero_point, *_) = np.iinfo(array.dtype), quantization.zero_point
    steps = min(max(limits.max - zero_point, zero_point - limits.min), 2 * _MAX_INT8)
    scale = quantization.scale[0] * steps / _MAX_INT8
    return np.asarray(np.clip(np.rint(values / scale), -_MAX_INT8 - 1, _MAX_INT8) * scale, np.float32)


def _with_floats(data: bytes, *, symmetric: bool) -> bytes:
    """Return the file with float32 tensors in place of quantized tensors."""
    schema = import_optional("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(data)
    dtype_names = read_dtype_names(schema)
    graph = model.subgraphs[0]
    channels = _channel_counts(graph)
    for index, tensor in enumerate(graph.tensors):
        quantization = tensor.quantization
        if dtype_names[tensor.type] not in _QUANTIZED or quantization is None or quantization.scale is None:
            continue
        if constant_data(model, tensor).size:
            values = dequantize_constant(model, graph, tensor, dtype_names)
            zero_points = quantization.zeroPoint if quantization.zeroPoint is not None else [0]
            is_shifted = any(
                int(point) != _SYMMETRIC_POINTS.get(dtype_names[tensor.type], point) for point in zero_points
            )
            if symmetric and is_shifted:
                values = _round_symmetric(values, channels.get(index))
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(values, np.float32).tobytes(), np.uint8)
            tensor.buffer, model.buffers = len(model.buffers), [*model.buffers, buffer]
        tensor.type, tensor.quantization = schema.TensorType.FLOAT32, None
    _remove_rescaling(model, schema)
    return pack_model(model)


def _remove_rescaling(model: Any, schema: Any) -> None:
    """Remove each QUANTIZE and DEQUANTIZE with float32 operand and result."""
    graph = model.subgraphs[0]
    codes = {schema.BuiltinOperator.QUANTIZE, schema.BuiltinOperator.DEQUANTIZE}
    sources: dict[int, int] = {}
    remaining_operators = []
    for operator in graph.operators:
        operator.inputs = [sources.get(int(k), int(k)) for k in operator.inputs]
        tensors = [graph.tensors[int(k)] for k in (*operator.inputs, *operator.outputs) if k >= 0]
        is_rescaling = model.operatorCodes[operator.opcodeIndex].builtinCode in codes
        if is_rescaling and all(tensor.type == schema.TensorType.FLOAT32 for tensor in tensors):
            sources[int(operator.outputs[0])] = operator.inputs[0]
        else:
            remaining_operators.append(operator)
    graph.operators = remaining_operators
    graph.outputs = [sources.get(int(k), int(k)) for k in graph.outputs]


def _channel_counts(graph: Any) -> dict[int, int]:
    """Return the size of the bias of each weight, by the weight's tensor index."""
    counts = {}
    for operator in graph.operators:
        indices = [int(k) for k in operator.inputs]  # input, weights, bias
        if len(indices) > 2 and indices[2] >= 0 and graph.tensors[indices[2]].shape is not None:
            counts[indices[1]] = int(np.prod(graph.tensors[indices[2]].shape))
    return counts


def _round_symmetric(values: Array, channels: int | None) -> Array:
    """Return values rounded to symmetric int8.

    There is one scale per channel, if the first or last axis has ``channels`` elements; otherwise one scale.
    """
    axis = next((axis for axis in (0, values.ndim - 1) if values.ndim and values.shape[axis] == channels), None)
    other_axes = None if axis is None else tuple(k for k in range(values.ndim) if k != axis)
    largest = np.abs(values).max(axis=other_axes, keepdims=True, initial=0)
    scale = np.where(largest > 0, largest, 1) / _MAX_INT8
    return np.asarray(np.rint(values / scale) * scale, np.float32)
