"""Operands of a handler, in planned layout and in the encoding that it requires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.behavior import Arithmetic
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bias_scales import describe_bias_scale
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout, layout_axes, source_layout
from onnx_tflite_plugin.lowering.arrays import arrange_constant
from onnx_tflite_plugin.lowering.emitter import Operand
from onnx_tflite_plugin.lowering.scope import Scope
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, ValueOrResource
from onnx_tflite_plugin.quantization.handler_inputs import storage_of_slot
from onnx_tflite_plugin.quantization.storage import Encoding, Storage, WeightConversion, encoding_of
from onnx_tflite_plugin.source.affine import affine, bias_scale
from onnx_tflite_plugin.source.model import Array, ArrayData, Dims, Quantization, Tensor


class Operands:
    """Operands of one operator. Input slots are 0, 1, ...; output ``k`` is ``~k``."""

    def __init__(self, scope: Scope, bound: Bound) -> None:
        self.scope, self.bound = scope, bound
        self.arithmetic: Arithmetic = scope.storage.arithmetic[bound]

    def layout(self, slot: int) -> TensorLayout:
        """Return the planned layout of the slot."""
        return self.scope.layout.layout(self.bound, slot)

    def perm(self, slot: int) -> tuple[int, ...]:
        """Return the TFLite axis of each axis in the planned order."""
        return layout_axes(self.layout(slot))

    def axis(self, axis: int, slot: int) -> int:
        """Return the position of a TFLite axis in the slot's planned order.

        A negative axis counts from the end. Raises Refusal for an axis that the slot does not have.
        """
        tensor = self.bound.op[slot]
        rank = max(tensor.rank, 1)
        if not -rank <= axis < rank:
            raise Refusal(f"axis {axis} does not exist: {tensor.name!r} has rank {tensor.rank}")
        return self.perm(slot).index(axis % rank) if tensor.rank else 0

    def storage(self, slot: int) -> Storage:
        """Return the storage of the slot's quantized values in the handler."""
        return storage_of_slot(self.scope.storage, self.bound, slot)

    def _emit(self, op_type: str, *inputs: Operand, **attributes: Any) -> ir.Value:
        return self.scope.emitter.emit(op_type, inputs, attributes)[0]

    def deliver(self, slot: int) -> ValueOrResource | None:
        """Return the operand as the handler gets it; None if it is absent."""
        tensor, declared = self.bound.op.tensor(slot), self.bound.declared
        if tensor is None:
            return None
        resource = self.scope.values.resource(tensor)
        if resource is not None:
            return resource
        if slot in declared.axis_number_slots or slot in declared.indexed_by_axis:
            return self._remap_axes(slot, tensor)
        behavior, encoding = declared.quantization, encoding_of(self.arithmetic)
        if self.arithmetic is Arithmetic.FLOAT and slot in behavior.biases and tensor.dtype in ("int32", "int64"):
            return self._dequantize_bias(slot, tensor)
        if slot in behavior.file_slots:
            return self._align_rank(self.scope.values.get(tensor, self.layout(slot), FILE), slot)
        shape = declared.reshapes.get(slot)
        return (
            self._align_rank(self.fetch(slot, encoding), slot)
            if shape is None
            else self._reshape(slot, encoding, shape)
        )

    def fetch(self, slot: int, encoding: Encoding) -> ir.Value:
        """Return the operand in its planned order and in ``encoding``."""
        tensor = self.bound.op[slot]
        if encoding is STORED and affine(tensor) is not None:
            return self._fetch_integers(tensor, slot)
        return self.scope.values.get(tensor, self.layout(slot), encoding, conversion=self._weight_conversion(tensor))

    def reinterpret_constant(self, slot: int, dtype: str, quantization: Quantization) -> ir.Value:
        """Return the float values of a constant whose bytes are read as ``dtype``."""
        tensor = self.bound.op[slot]
        data = ArrayData(tensor.array.view(dtype))
        reinterpreted = replace(tensor, dtype=dtype, data=data, quantization=quantization)
        conversion = self._weight_conversion(reinterpreted)
        return self.scope.values.get(reinterpreted, self.layout(slot), FLOAT, conversion=conversion)

    def constant(self, slot: int) -> Array | None:
        """Return a constant operand in planned order; None if it is not constant.

        Axis numbers and per-axis entries are remapped.
        """
        array, declared = self.bound.op.constant(slot), self.bound.declared
        if array is None:
            return None
        if slot in declared.axis_number_slots:
            data_slot = self._slot_of_axes()
            if self.bound.op[data_slot].rank:  # a scalar has no axes to remap
                remapped = [self.axis(int(axis), data_slot) for axis in array.reshape(-1)]
                return np.asarray(remapped, np.int64).reshape(array.shape)
        indexed_slot = declared.indexed_by_axis.get(slot)
        if indexed_slot is not None:
            return np.take(array, self.perm(indexed_slot), axis=0) if array.ndim else array
        return arrange_constant(array, self.layout(slot))

    def _reshape(self, slot: int, encoding: Encoding, shape: Dims) -> ir.Value:
        """Return an operand in the declared shape, reshaped before it is dequantized."""
        values, tensor, layout, target = self.scope.values, self.bound.op[slot], self.layout(slot), self.scope.target
        dequantizes = encoding is FLOAT and affine(tensor) is not None
        value = values.get(tensor, layout, STORED if dequantizes and target.moves_integers else encoding)
        value = self._emit("Reshape", value, [-1 if size is None else size for size in shape])
        if dequantizes and target.quantizes_moves and not tensor.is_constant:
            value = self.scope.conversions.quantize(value, self.storage(slot), layout)
        elif not (dequantizes and target.moves_integers):
            return value
        return self.scope.conversions.dequantize(value, self.storage(slot), layout)

    def _weight_conversion(self, tensor: Tensor) -> WeightConversion:
        return (
            self.scope.storage.weight_conversion(self.bound, tensor)
            if tensor.is_constant
            else WeightConversion.DEQUANTIZED
        )

    def _fetch_integers(self, tensor: Tensor, slot: int) -> ir.Value:
        """Return quantized values, requantized if the plan stores them differently."""
        values, layout, handler_storage = self.scope.values, self.layout(slot), self.storage(slot)
        if self.scope.storage.storage(tensor).shift == handler_storage.shift:
            return values.get(tensor, layout, STORED)
        return self.scope.conversions.quantize(values.get(tensor, layout, FLOAT), handler_storage, layout)

    def _align_rank(self, value: ir.Value, slot: int) -> ir.Value:
        """Insert axes of size 1 so that an operand of lower rank broadcasts."""
        constraint = self.scope.layout.constraints[self.bound]
        shared_axes = constraint.shared_axes
        if not constraint.aligned or shared_axes is None or slot not in shared_axes.slots:
            return value
        slot_letters = {letter for group in shared_axes.slots[slot].groups for letter in group}
        letters = list(dict.fromkeys(part.letter for part in self.scope.layout.operator_layouts[self.bound]))
        start = next((i for i, letter in enumerate(letters) if letter in slot_letters), len(letters))
        missing_axes = [i - start for i, letter in enumerate(letters) if i > start and letter not in slot_letters]
        if not missing_axes:
            return value
        if value.const_value is not None:
            return self.scope.emitter.constant(np.expand_dims(value.const_value.numpy(), tuple(missing_axes)))
        rank = len(letters) - start
        return self._emit("Unsqueeze", value, [axis for axis in range(rank) if axis in missing_axes])

    def _remap_axes(self, slot: int, tensor: Tensor) -> ir.Value:
        """Return axis numbers or per-axis entries in planned order, by Gather at runtime."""
        constant = self.constant(slot)
        if constant is not None:
            return self.scope.emitter.constant(constant, self.scope.values.name(tensor))
        value, indexed_slot = self.scope.values.get(tensor), self.bound.declared.indexed_by_axis.get(slot)
        perm = self.perm(self._slot_of_axes() if indexed_slot is None else indexed_slot)
        if perm == tuple(range(len(perm))):
            return value
        if indexed_slot is not None:
            return self._emit("Gather", value, list(perm), axis=0)
        return self._emit("Gather", np.argsort(perm).astype(np.int64), value, axis=0)

    def _slot_of_axes(self) -> int:
        """Return the slot whose axes the axis numbers refer to: the first data operand."""
        declared = self.bound.declared
        for slot in range(len(self.bound.op.inputs)):
            is_data = slot not in declared.axis_number_slots and slot not in declared.indexed_by_axis
            if is_data and self.bound.op.tensor(slot) is not None:
                return slot
        raise LookupError("all operands are in axis_number_slots or indexed_by_axis, so no operand has axes to permute")

    def _dequantize_bias(self, slot: int, tensor: Tensor) -> ir.Value:
        """Return an integer bias as floats, scaled by input scale x weight scale.

        Kernels ignore the scale that the file stores for a bias.
        """
        factors = self.bound.declared.quantization.biases[slot]
        scale = bias_scale(self.bound.op, factors)
        if scale is None:
            raise Refusal(f"the bias is {tensor.dtype}, but the input or weight is not quantized")
        if self.bound.pack != BUILTIN:
            self._warn_of_bias_scale(slot)
        values, weight_factor = self.scope.values, factors[1]
        has_float_weights = (
            isinstance(weight_factor, float)
            or self._weight_conversion(self.bound.op[weight_factor]) is not WeightConversion.DEQUANTIZED
        )
        if tensor.is_constant and (tensor.dtype == "int64" or has_float_weights or self.scope.target.float_biases):
            floats = self._reshape_array(slot, tensor.array).astype(np.float64) * scale
            return self.scope.emitter.constant(floats.astype(np.float32), values.name(tensor))
        integers = self._bias_integers(slot, tensor)
        if tensor.dtype == "int64" or self.scope.target.float_biases:
            return self._emit("Mul", self._emit("Cast", integers, to="float32"), np.asarray(scale, np.float32))
        storage = Storage("int32", 0, Quantization(tuple(scale.tolist()), (0,) * len(scale), 0))
        dims = self.bound.declared.reshapes.get(slot, tensor.dims)
        return self.scope.conversions.dequantize(integers, storage, source_layout(dims))

    def _warn_of_bias_scale(self, slot: int) -> None:
        """Add a warning if a bias's declared scale contradicts the scale in the file."""
        warnings = self.scope.emitter.warnings
        message = describe_bias_scale(self.bound.op, slot, self.bound.declared.quantization)
        text = f"{self.bound.label}: {message} of handler {self.bound.handler.name} of {self.bound.pack}"
        if message and text not in warnings:
            warnings.append(text)

    def _bias_integers(self, slot: int, tensor: Tensor) -> ir.Value:
        """Return the quantized values of a bias, in the declared shape."""
        value, dims = self.scope.values.get(tensor), self.bound.declared.reshapes.get(slot)
        if dims is None:
            return value
        if tensor.is_constant:
            return self.scope.emitter.constant(self._reshape_array(slot, tensor.array), self.scope.values.name(tensor))
        return self._emit("Reshape", value, [-1 if size is None else size for size in dims])

    def _reshape_array(self, slot: int, array: Array) -> Array:
        dims = self.bound.declared.reshapes.get(slot)
        return array if dims is None else array.reshape([-1 if size is None else size for size in dims])
