"""The operands of one operator, each in its planned order, in the form and storage that the operator computes on."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Dequantized
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.layout.order import source_order
from onnx_tflite_plugin.lowering.emitter import own_value
from onnx_tflite_plugin.lowering.planned import Planned
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, Held, arranged
from onnx_tflite_plugin.quantization.plan import Arithmetic, Form, Storage, Weights
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Dims, Quantization, Tensor


class Operands(Planned):
    """An operator with what its handler is given."""

    @cached_property
    def inputs(self) -> tuple[Held | None, ...]:
        """The operands as the handler gets them, ``None`` where absent."""
        return tuple(self._input(slot) for slot in range(len(self.op.inputs)))

    def constant(self, slot: int) -> Array | None:
        """A constant operand in planned order, axis numbers and what is indexed by axis remapped; else ``None``."""
        array = self.op.constant(slot)
        if array is None:
            return None
        if slot in self.bound.declared.holds_axes and self.op[self._data_slot].rank:  # a scalar has none to rename
            remapped = [self.axis(int(axis), self._data_slot) for axis in array.reshape(-1)]
            return np.asarray(remapped, np.int64).reshape(array.shape)
        of = self._indexed.get(slot)
        if of is not None:
            return np.take(array, self.perm(of), axis=0) if array.ndim else array
        return arranged(array, self.order(slot))

    def required(self, slot: int) -> Array:
        """A constant operand as :meth:`constant` has it. Raises Refused where it is none."""
        constant = self.constant(slot)
        if constant is None:
            tensor = self.op.tensor(slot)
            named = "is absent" if tensor is None else f"({tensor.name!r}) must be a constant"
            raise Refused(f"its operand {slot} {named}")
        return constant

    def _input(self, slot: int) -> Held | None:
        tensor = self.op.tensor(slot)
        if tensor is None:
            return None
        resource = self.scope.values.resource(tensor)
        if resource is not None:
            return resource
        if slot in self.bound.declared.holds_axes or slot in self._indexed:
            return self._remapped(slot, tensor)
        if slot in self._biases and tensor.dtype in ("int32", "int64"):
            return self._bias(slot, tensor)
        if slot in self._stored:
            return self.aligned(self.scope.values.get(tensor, self.order(slot), FILE), slot)
        form = self.arithmetic.form
        dims = self.bound.declared.reshapes.get(slot)
        return self.aligned(self.fetch(slot, form), slot) if dims is None else self._reshaped_input(slot, form, dims)

    def _reshaped_input(self, slot: int, form: Form, dims: Dims) -> ir.Value:
        """An operand in another shape, reshaped before it is dequantized."""
        integers = form is FLOAT and affine(self.op[slot]) is not None and self.target.moves_integers
        value = self.scope.values.get(self.op[slot], self.order(slot), STORED if integers else form)
        value = self.node("Reshape", value, [-1 if size is None else size for size in dims])
        return own_value(self.dequantize(value, slot)) if integers else value

    def fetch(self, slot: int, form: Form) -> ir.Value:
        """The operand in its planned order and a form."""
        tensor = self.op[slot]
        if form is STORED and affine(tensor) is not None:
            return self._integers(tensor, slot)
        return self.scope.values.get(tensor, self.order(slot), form, weights=self._weights(tensor))

    def _weights(self, tensor: Tensor) -> Weights:
        return self.scope.storage.weights(self.bound, tensor) if tensor.constant else Weights.DEQUANTIZED

    def _integers(self, tensor: Tensor, slot: int) -> ir.Value:
        """Stored integers as they are delivered; by Q of the floats where the tensor is kept in another dtype."""
        values, order, delivered = self.scope.values, self.order(slot), self.delivered(slot)
        if self.scope.storage.storage(tensor).shift == delivered.shift:
            return values.get(tensor, order, STORED)
        return values.quantize(values.get(tensor, order, FLOAT), delivered, order)

    def aligned(self, value: ir.Value, slot: int) -> ir.Value:
        """Insert unit axes so that a lower rank broadcasts in the planned order."""
        free = self.scope.layout.freedoms[self.bound]
        frame = free.frame
        if not free.aligned or frame is None or slot not in frame.slots:
            return value
        own = {letter for group in frame.slots[slot].groups for letter in group}
        letters = list(dict.fromkeys(part.letter for part in self.scope.layout.frames[self.bound]))
        start = next((i for i, letter in enumerate(letters) if letter in own), len(letters))
        missing = [i - start for i, letter in enumerate(letters) if i > start and letter not in own]
        if not missing:
            return value
        if value.const_value is not None:
            return self.scope.emitter.constant(np.expand_dims(value.const_value.numpy(), tuple(missing)))
        rank = len(letters) - start
        return self.node("Unsqueeze", value, [axis for axis in range(rank) if axis in missing])

    def _remapped(self, slot: int, tensor: Tensor) -> ir.Value:
        """Axis numbers, or rows per axis, in planned order; at run time by a Gather."""
        constant = self.constant(slot)
        if constant is not None:
            return self.scope.emitter.constant(constant, f"{self.scope.values.name(tensor)}")
        value = self.scope.values.get(tensor)
        if slot in self._indexed:
            perm = self.perm(self._indexed[slot])
            return value if perm == tuple(range(len(perm))) else self.node("Gather", value, list(perm), axis=0)
        perm = self.perm(self._data_slot)
        if perm == tuple(range(len(perm))):
            return value
        return self.node("Gather", np.argsort(perm).astype(np.int64), value, axis=0)

    @cached_property
    def _biases(self) -> dict[int, tuple[int, int]]:
        behaviour = self.bound.declared.quantization
        return (
            dict(behaviour.bias) if isinstance(behaviour, Dequantized) and self.arithmetic is Arithmetic.FLOAT else {}
        )

    @cached_property
    def _stored(self) -> tuple[int, ...]:
        behaviour = self.bound.declared.quantization
        return behaviour.stored if isinstance(behaviour, Dequantized) else ()

    def _bias(self, slot: int, tensor: Tensor) -> ir.Value:
        """An int32 bias has scale input x weight per channel; what the file says of it is not used (the kernels do not)."""
        first, second = (affine(self.op[of]) for of in self._biases[slot])
        if first is None or second is None:
            raise Refused(f"its bias is {tensor.dtype}, but its input or weight is not quantized")
        scale = [first.scale[0] * s for s in second.scale]
        values = self.scope.values
        float_weights = self._weights(self.op[self._biases[slot][1]]) is not Weights.DEQUANTIZED
        if tensor.constant and (tensor.dtype == "int64" or float_weights or self.target.float_biases):
            floats = tensor.array.astype(np.float64) * np.asarray(scale)
            return self.scope.emitter.constant(floats.astype(np.float32), values.name(tensor))
        if tensor.dtype == "int64" or self.target.float_biases:
            floats = self.node("Cast", values.get(tensor), to="float32")
            return self.node("Mul", floats, np.asarray(scale, np.float32))
        storage = Storage("int32", 0, Quantization(tuple(scale), (0,) * len(scale), 0))
        return values.dequantize(values.get(tensor), storage, source_order(tensor.dims))

    # --- quantization -------------------------------------------------------------------------

    def quantize(self, value: Value, like: int) -> Value:
        """Floats to the integers of a slot; the value itself where the slot is not quantized."""
        tensor = self.op[like]
        if affine(tensor) is None or not self.target.moves_integers:
            return value
        return self.scope.values.quantize(own_value(value), self.delivered(like), self.order(like))

    def dequantize(self, value: Value, like: int) -> Value:
        """Integers of a slot to floats; the value itself where the slot is not quantized."""
        tensor = self.op[like]
        if affine(tensor) is None or not self.target.moves_integers:
            return value
        return self.scope.values.dequantize(own_value(value), self.delivered(like), self.order(like))
