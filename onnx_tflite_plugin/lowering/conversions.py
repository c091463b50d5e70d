"""Nodes that convert layouts of values, quantize and dequantize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    intermediate_layouts,
    layout_axes,
    physical_shape,
    plan_conversion,
)
from onnx_tflite_plugin.lowering.arrays import quantization_arrays, replace_zero_scales
from onnx_tflite_plugin.lowering.emitter import CONVERTS_LAYOUT, Emitter, Operand
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.quantization.storage import Storage
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE, PACKED
from onnx_tflite_plugin.source.model import Array, BlockwiseQuantization, Dims, Quantization, Tensor

DEQUANTIZES = "onnx_tflite_plugin.dequantizes"
"""Key in the ``meta`` of values: marks results of a Cast, Sub or Mul that dequantizes. ``meta`` is not written to files."""


class Conversions:
    """Emits the conversions of values for one target.

    ``name``: function that returns the name of a tensor's values.
    """

    def __init__(self, emitter: Emitter, target: Target, name: Callable[[Tensor], str]) -> None:
        self.emitter = emitter
        self.target = target
        self.name = name
        self._fake_quantized: dict[ir.Value, Quantization] = {}

    def clear(self) -> None:
        """Forget the values that were emitted."""
        self._fake_quantized.clear()

    def convert_layout(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        """Return a value converted from one layout to another."""
        layouts = (start, *intermediate_layouts(start, end), end)
        for before, after in pairwise(layouts):
            value = self._convert_layout_in_one_step(value, before, after)
        return value

    def _convert_layout_in_one_step(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        steps, dims = plan_conversion(start, end), physical_shape(start)
        if steps.split is not None:
            value, dims = self.reshape(value, dims, steps.split), steps.split
        if steps.perm is not None:
            first_new_node = len(self.emitter.nodes)
            value = self.emitter.emit("Transpose", [value], {"perm": steps.perm})[0]
            for node in self.emitter.nodes[first_new_node:]:
                node.meta[CONVERTS_LAYOUT] = True
            dims = tuple(dims[axis] for axis in steps.perm)
        return value if steps.shape is None else self.reshape(value, dims, steps.shape)

    def reshape(self, value: ir.Value, shape: Dims, new_shape: Dims) -> ir.Value:
        """Return a value of ``shape``, reshaped to ``new_shape``.

        Axes of size 1 are added or removed by Unsqueeze or Squeeze, which need no sizes. Raises ValueError if the new
        shape has more than one dynamic size.
        """
        if (added_axes := _extra_unit_axes(new_shape, shape)) is not None:
            return self.emitter.emit("Unsqueeze", [value, added_axes], {})[0]
        if (dropped_axes := _extra_unit_axes(shape, new_shape)) is not None:
            return self.emitter.emit("Squeeze", [value, dropped_axes], {})[0]
        if sum(d is None for d in new_shape) > 1:
            non_unit_sizes = tuple(d for d in shape if d != 1)
            if non_unit_sizes != tuple(d for d in new_shape if d != 1):
                raise ValueError(f"a reshape to {tuple(new_shape)} has more than one dynamic size")
            return self.reshape(self.reshape(value, shape, non_unit_sizes), non_unit_sizes, new_shape)
        attributes = {"allowzero": 1} if 0 in new_shape and self.emitter.opset >= 14 else {}
        return self.emitter.emit("Reshape", [value, [-1 if d is None else d for d in new_shape]], attributes)[0]

    def requantize(self, value: ir.Value, start: Storage, end: Storage, layout: TensorLayout) -> ir.Value:
        """Return quantized values in another storage of the same scale.

        A scale of 0 means that the scale is missing; 1 replaces it.
        """
        return self.quantize(
            self.dequantize(value, replace_zero_scales(start), layout), replace_zero_scales(end), layout
        )

    def dequantize(
        self, value: ir.Value, storage: Storage, layout: TensorLayout, *, multiply: bool = False
    ) -> ir.Value:
        """Return dequantized values.

        ``multiply``: use Cast and Mul even if the target supports DequantizeLinear.
        """
        if storage.blocks is not None:
            return self._dequantize_blocks(value, storage.blocks, layout)
        scale, zero_point, axis = self._parameters(storage, layout)
        target = self.target
        if not (
            multiply or storage.dtype in target.cast_mul_dtypes or storage.dtype not in {*target.quantizes, "int32"}
        ):
            return self.emitter.emit("DequantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        if axis is not None:
            broadcast_shape = [-1 if k == axis else 1 for k in range(len(physical_shape(layout)))]
            scale, zero_point = scale.reshape(broadcast_shape), zero_point.reshape(broadcast_shape)
        floats = _mark_dequantization(self._emit("Cast", value, to="float32"))
        if zero_point.any():
            floats = _mark_dequantization(self._emit("Sub", floats, zero_point.astype(np.float32)))
        return _mark_dequantization(self._emit("Mul", floats, scale))

    def _dequantize_blocks(self, value: ir.Value, blocks: BlockwiseQuantization, layout: TensorLayout) -> ir.Value:
        """Return values dequantized with one scale per block of the last axis.

        Each block is split into smaller blocks of a size that the target fuses.
        """
        perm, sizes = layout_axes(layout), dict(zip(layout_axes(layout), physical_shape(layout), strict=True))
        size = self.target.fused_block_size(blocks.block_size)
        leading_sizes = [sizes[axis] or 0 for axis in range(len(perm) - 1)]
        scales = np.repeat(blocks.flat().reshape(*leading_sizes, -1), blocks.block_size // size, axis=-1)
        scale = self.emitter.constant(scales.transpose(perm), self.name(blocks.scales))
        attributes = {"axis": perm.index(len(leading_sizes)), "block_size": size}
        return self.emitter.emit("DequantizeLinear", [value, scale], attributes)[0]

    def quantize(self, value: ir.Value, storage: Storage, layout: TensorLayout) -> ir.Value:
        """Return quantized values.

        Arithmetic operators replace a QuantizeLinear whose dtype the target does not support.
        """
        scale, zero_point, axis = self._parameters(storage, layout)
        producer = value.producer()
        if storage.dtype in PACKED and producer is not None and producer.op_type == "Relu":
            # ONNX Runtime drops a Relu before QuantizeLinear, regardless of the zero point.
            value = self._emit("Max", value, 0.0)
        if axis is None and _is_rescaling(producer, scale, zero_point):
            lowest = (INTEGER_RANGE[storage.dtype][0] - float(zero_point)) * float(scale)
            value = self._emit("Max", value, lowest)
        if storage.dtype in self.target.quantizes:
            stored = self.emitter.emit("QuantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        else:
            low, high = map(float, INTEGER_RANGE[storage.dtype])
            rounded = self._emit("Round", self._emit("Div", value, scale))
            with_zero_point = self._emit("Add", rounded, zero_point.astype(np.float32))
            stored = self._emit("Cast", self._emit("Clip", with_zero_point, low, high), to=storage.dtype)
        return set_type(stored, storage.dtype, None)

    def fake_quantize(self, value: ir.Value, quantization: Quantization, layout: TensorLayout) -> ir.Value:
        """Return floats, rounded by quantizing and dequantizing them.

        The dtype is int8, or the dtype in which the target stores int8.
        """
        if self._fake_quantized.get(value) == quantization:
            return value
        dtype, shift = self.target.storage.get("int8", ("int8", 0))
        shifted = replace(quantization, zero_point=tuple(z + shift for z in quantization.zero_point))
        storage = Storage(dtype, shift, shifted)
        rounded = self.dequantize(self.quantize(value, storage, layout), storage, layout)
        self._fake_quantized[rounded] = quantization
        return rounded

    def _emit(self, op_type: str, *operands: Operand, **attributes: str) -> ir.Value:
        return self.emitter.emit(op_type, operands, attributes)[0]

    def _parameters(self, storage: Storage, layout: TensorLayout) -> tuple[Array, Array, int | None]:
        quantization = storage.quantization
        assert quantization is not None
        return quantization_arrays(quantization, storage.dtype, layout)


def _is_rescaling(producer: ir.Node | None, scale: Array, zero_point: Array) -> bool:
    """True if the value comes from a DequantizeLinear with other parameters.

    ONNX Runtime merges two consecutive Q/DQ pairs and so loses the first rounding (DoubleQDQPairsRemover).
    """
    if producer is None or producer.op_type != "DequantizeLinear":
        return False
    quantized, *parameters = producer.inputs
    if quantized is None or quantized.producer() is None:  # a graph input
        return False
    values = [value.const_value for value in parameters if value is not None]
    constants = [value.numpy() for value in values if value is not None]
    if len(constants) < 2 or constants[1].dtype != zero_point.dtype:
        return False
    return not (np.array_equal(constants[0], scale) and np.array_equal(constants[1], zero_point))


def _extra_unit_axes(long: Dims, short: Dims) -> list[int] | None:
    """Return the additional axes of size 1 in ``long``; None for other differences."""
    extra, remaining = [], list(short)
    for axis, size in enumerate(long):
        if remaining and remaining[0] == size:
            remaining.pop(0)
        elif size == 1:
            extra.append(axis)
        else:
            return None
    return None if remaining else extra


def _mark_dequantization(value: ir.Value) -> ir.Value:
    """Return the value, marked as part of a dequantization."""
    value.meta[DEQUANTIZES] = True
    return value
