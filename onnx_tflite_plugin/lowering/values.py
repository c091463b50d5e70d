"""The forms a tensor takes: (order, form) → ONNX value, made once, when somebody asks.

``STORED`` integers are kept as the storage plan says, ``FILE`` integers as the file has them, ``FLOAT`` is
dequantized. A tensor that is not quantized has the one form ``STORED``. Transposes go on the integer side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.layout.order import Atom, Order, axes, essence, move, physical, source_order, spelled
from onnx_tflite_plugin.lowering.emitter import Emitter, typed
from onnx_tflite_plugin.quantization.plan import Compute, Storage, StoragePlan, affine, file_storage
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor

STORED, FILE, FLOAT = Compute.STORED, Compute.FILE, Compute.FLOAT
MARK = "onnx_tflite_plugin."


@dataclass(frozen=True)
class Resource:
    """A compile-time token: which state or table a TFLite resource tensor stands for."""

    key: str


Held = ir.Value | Resource


class Values:
    """The values of one (inlined) TFLite subgraph."""

    def __init__(self, emitter: Emitter, storage: StoragePlan, prefix: str = "") -> None:
        self.emitter = emitter
        self.plan = storage
        self.prefix = prefix
        self._made: dict[tuple[Tensor, Order, Compute], ir.Value] = {}
        self._native: dict[Tensor, tuple[Order, Compute]] = {}
        self._resources: dict[Tensor, Resource] = {}

    # --- what operators make ----------------------------------------------------------------

    def put(self, tensor: Tensor, value: Held, order: Order, form: Compute) -> None:
        """The producer's own form of a tensor."""
        if isinstance(value, Resource):
            self._resources[tensor] = value
            return
        form = self._form(tensor, form)
        self._native[tensor] = order, form
        self._made[tensor, order, form] = value
        self._mark(tensor, value, order, form)

    def has(self, tensor: Tensor) -> bool:
        return tensor.constant or tensor in self._native or tensor in self._resources

    def resource(self, tensor: Tensor) -> Resource | None:
        return self._resources.get(tensor)

    def name(self, tensor: Tensor) -> str:
        return self.prefix + (tensor.name or f"#{tensor.index}")

    # --- what operators take ----------------------------------------------------------------

    def get(
        self, tensor: Tensor, order: Order | None = None, form: Compute = STORED, *, fold: bool = False
    ) -> ir.Value:
        """The tensor in an order and form. ``fold`` dequantizes constants now rather than at run time.

        Raises LookupError for a tensor nobody made.
        """
        order = source_order(tensor.dims) if order is None else order
        form = self._form(tensor, form)
        key = (tensor, order, form)
        if tensor.constant:
            if key not in self._made or fold:
                return self._constant(tensor, order, form, fold)
        elif key not in self._made:
            self._made[key] = self._derive(tensor, order, form)
        return self._made[key]

    def _form(self, tensor: Tensor, form: Compute) -> Compute:
        """Forms that are the same for this tensor are one."""
        if affine(tensor) is None or (form is FILE and self.plan.storage(tensor).dtype == tensor.dtype):
            return STORED
        return form

    def _derive(self, tensor: Tensor, order: Order, form: Compute) -> ir.Value:
        if tensor not in self._native:
            raise LookupError(f"tensor {tensor} is used before an operator makes it")
        native, made = self._native[tensor]
        if form is FLOAT:
            value = self.dequantize(self.get(tensor, order, STORED), self.plan.storage(tensor), order)
        elif form is made:
            start = next(
                (o for t, o, f in self._made if t is tensor and f is form and essence(o) == essence(order)), native
            )
            value = self.moved(
                self._made[tensor, start, form], with_pairs(start, tensor.dtype), with_pairs(order, tensor.dtype)
            )
        else:
            value = self.converted(self.get(tensor, order, made), tensor, made, form)
        self._mark(tensor, value, order, form)
        return value

    # --- steps ------------------------------------------------------------------------------

    def moved(self, value: ir.Value, start: Order, end: Order) -> ir.Value:
        """Bring a value from one order to another."""
        steps = move(start, end)
        if steps.split is not None:
            value = self._reshape(value, steps.split)
        if steps.perm is not None:
            value = self.emitter.emit("Transpose", [value], {"perm": steps.perm})[0]
        return value if steps.shape is None else self._reshape(value, steps.shape)

    def _reshape(self, value: ir.Value, dims: Sequence[int | None]) -> ir.Value:
        if sum(d is None for d in dims) > 1:
            raise ValueError(f"a reshape to {tuple(dims)} with more than one unknown size")
        shape = [-1 if d is None else d for d in dims]
        zero = {"allowzero": 1} if 0 in shape and self.emitter.opset >= 14 else {}
        return self.emitter.emit("Reshape", [value, shape], zero)[0]

    def converted(self, value: ir.Value, tensor: Tensor, start: Compute, end: Compute) -> ir.Value:
        """Stored integers to the file's, or back: the same real numbers, so the same scale on both sides."""
        forms = {STORED: self.plan.storage(tensor), FILE: file_storage(tensor)}
        order = source_order(tensor.dims)
        real = self.dequantize(value, forms[start], order)
        return self.quantize(real, forms[end], order)

    def dequantize(self, value: ir.Value, storage: Storage, order: Order) -> ir.Value:
        scale, zero_point, axis = self._parameters(storage, order)
        return self.emitter.emit("DequantizeLinear", [value, scale, zero_point], {"axis": axis})[0]

    def quantize(self, value: ir.Value, storage: Storage, order: Order) -> ir.Value:
        scale, zero_point, axis = self._parameters(storage, order)
        made = self.emitter.emit("QuantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        return typed(made, storage.dtype, None)

    def _parameters(self, storage: Storage, order: Order) -> tuple[Array, Array, int | None]:
        quantization = storage.quantization
        assert quantization is not None
        return quantization_arrays(quantization, storage.dtype, order)

    # --- constants --------------------------------------------------------------------------

    def _constant(self, tensor: Tensor, order: Order, form: Compute, fold: bool) -> ir.Value:
        storage = file_storage(tensor) if form is FILE else self.plan.storage(tensor)
        name = self.name(tensor)
        if form is FLOAT and fold:
            return self.emitter.constant(arranged(dequantized(tensor), order), name)
        stored = self.emitter.constant(arranged(shifted(tensor.array, storage), order), name)
        value = self.dequantize(stored, storage, order) if form is FLOAT else stored
        self._made[tensor, order, form] = value
        return value

    # --- marks ------------------------------------------------------------------------------

    def _mark(self, tensor: Tensor, value: ir.Value, order: Order, form: Compute) -> None:
        """Name a value after its tensor and say which form of it this is."""
        storage = self.plan.storage(tensor) if form is STORED else file_storage(tensor)
        typed(value, "float32" if form is FLOAT else storage.dtype, physical_dims(tensor, order))
        if MARK + "tensor" in value.metadata_props or (value.producer() is None and value.const_value is None):
            return  # one value may stand for several tensors; the first names it, and inputs have names
        native = self._native.get(tensor)
        plain = native is None or native == (order, form)
        suffix = "" if plain else f":{'float' if form is FLOAT else 'file' if form is FILE else spelled(order)}"
        value.name = self.emitter.names.unique(self.name(tensor) + suffix)
        marks = {"tensor": f"{tensor.subgraph}:{tensor.index}", "form": "float" if form is FLOAT else "stored"}
        if axes(order) != tuple(range(tensor.rank)) or len(order) != tensor.rank:
            marks["order"] = spelled(order)
        if form is STORED and storage.shift:
            marks["shift"] = str(storage.shift)
        value.metadata_props.update({MARK + key: text for key, text in marks.items()})


def physical_dims(tensor: Tensor, order: Order) -> tuple[int | None, ...] | None:
    """The shape of a tensor in an order; complex numbers have a trailing axis of 2."""
    if not tensor.has_rank:
        return None
    pair = (2,) if tensor.dtype.startswith("complex") else ()
    return (*physical(order), *pair)


def with_pairs(order: Order, dtype: str) -> Order:
    """Complex numbers are pairs of reals along an axis that comes last in every order."""
    return (*order, Atom(len(axes(order)), 1, 2)) if dtype.startswith("complex") else order


def quantization_arrays(quantization: Quantization, dtype: str, order: Order) -> tuple[Array, Array, int | None]:
    """Scale (float32) and zero point (the stored dtype) as ONNX wants them, and the axis they go along."""
    per_axis = quantization.per_axis
    scale = np.asarray(quantization.scale if per_axis else quantization.scale[0], np.float32)
    zero_point = integers(quantization.zero_point if per_axis else quantization.zero_point[0], dtype)
    axis = axes(order).index(quantization.axis) if per_axis else None
    return scale, zero_point, axis


def integers(values: Sequence[int] | int, dtype: str) -> Array:
    if dtype in ("int4", "uint4", "int2", "uint2"):
        import ml_dtypes

        return np.asarray(values, np.int32).astype(getattr(ml_dtypes, dtype))
    return np.asarray(values, dtype)


def shifted(array: Array, storage: Storage) -> Array:
    if array.dtype.name == storage.dtype or storage.quantization is None:
        return array
    return (array.astype(np.int16) + storage.shift).astype(storage.dtype)


def dequantized(tensor: Tensor) -> Array:
    """A quantized constant's real numbers as float32."""
    quantization = affine(tensor)
    assert quantization is not None
    along = [1] * tensor.rank
    if quantization.per_axis:
        along[quantization.axis] = len(quantization.scale)
    scale = np.asarray(quantization.scale, np.float32).reshape(along if quantization.per_axis else ())
    zero_point = np.asarray(quantization.zero_point, np.int32).reshape(along if quantization.per_axis else ())
    return np.asarray((tensor.array.astype(np.int32) - zero_point).astype(np.float32) * scale)


def arranged(array: Array, order: Order) -> Array:
    """A constant in an order; complex numbers as pairs of reals."""
    order = with_pairs(order, array.dtype.name)
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)
    steps = move(source_order(array.shape), order)
    if steps.split is not None:
        array = array.reshape([d or 0 for d in steps.split])
    if steps.perm is not None:
        array = array.transpose(steps.perm)
    return array if steps.shape is None else array.reshape([d or 0 for d in steps.shape])
