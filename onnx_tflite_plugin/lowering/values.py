"""The forms a tensor takes: (order, form) → ONNX value, made once, when somebody asks.

``STORED`` integers are kept as the storage plan says, ``FILE`` integers as the file has them, ``FLOAT`` is
dequantized. A tensor that is not quantized has the one form ``STORED``. Transposes go on the integer side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.graph.metadata import holds_tensor, write_tensor
from onnx_tflite_plugin.layout.tensor_layout import (
    AxisPart,
    TensorLayout,
    coalesce,
    drop_unit_axes,
    format_layout,
    intermediate_layouts,
    layout_axes,
    physical_shape,
    plan_conversion,
    source_layout,
)
from onnx_tflite_plugin.lowering.emitter import Emitter, Operand, typed
from onnx_tflite_plugin.quantization.plan import Form, Storage, StoragePlan, Weights, file_storage
from onnx_tflite_plugin.source.affine import dequantized, quantized
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE, PACKED
from onnx_tflite_plugin.source.model import Array, BlockwiseQuantization, Dims, Quantization, Tensor

STORED, FILE, FLOAT = Form.STORED, Form.FILE, Form.FLOAT


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
        self._made: dict[Tensor, dict[tuple[TensorLayout, Form], ir.Value]] = {}
        self._constants: dict[tuple[Tensor, TensorLayout, Form, Weights], ir.Value] = {}
        self._native: dict[Tensor, tuple[TensorLayout, Form]] = {}
        self._resources: dict[Tensor, Resource] = {}

    # --- what operators make ----------------------------------------------------------------

    def put(self, tensor: Tensor, value: Held, order: TensorLayout, form: Form, *, outer: bool = False) -> None:
        """The producer's own form of a tensor; a variable's next value takes the place of what was made of the last.

        ``outer``: the value is another subgraph's, whose name and shape it keeps.
        """
        if isinstance(value, Resource):
            self._resources[tensor] = value
            return
        form = self._form(tensor, form)
        self._native[tensor] = order, form
        self._made[tensor] = {(order, form): value}
        if not outer or value.shape is None:
            self._describe(tensor, value, order, form)

    def has(self, tensor: Tensor) -> bool:
        return tensor.constant or tensor in self._native or tensor in self._resources

    def resource(self, tensor: Tensor) -> Resource | None:
        return self._resources.get(tensor)

    def name(self, tensor: Tensor) -> str:
        return self.prefix + (tensor.name or f"#{tensor.index}")

    # --- what operators take ----------------------------------------------------------------

    def get(
        self,
        tensor: Tensor,
        order: TensorLayout | None = None,
        form: Form = STORED,
        *,
        weights: Weights = Weights.DEQUANTIZED,
    ) -> ir.Value:
        """The tensor in an order and form. ``weights``: how a quantized constant becomes float.

        Raises LookupError for a tensor nobody made.
        """
        order = source_layout(tensor.dims) if order is None else order
        form = self._form(tensor, form)
        if tensor.constant:
            return self._constant(tensor, order, form, weights)
        derived = self._made.setdefault(tensor, {})
        if (order, form) not in derived:
            derived[order, form] = self._derive(tensor, order, form)
        return derived[order, form]

    def _form(self, tensor: Tensor, form: Form) -> Form:
        """Forms that are the same for this tensor are one."""
        if not quantized(tensor) or (form is FILE and self.plan.storage(tensor).dtype == tensor.dtype):
            return STORED
        return form

    def _stays(self, tensor: Tensor) -> bool:
        """Whether the target moves nothing of the dtype that a quantized tensor is stored in."""
        return quantized(tensor) and not self.plan.target.has_kernel("", self.plan.storage(tensor).dtype)

    def _derive(self, tensor: Tensor, order: TensorLayout, form: Form) -> ir.Value:
        if tensor not in self._native:
            raise LookupError(f"tensor {tensor} is used before an operator makes it")
        native, native_form = self._native[tensor]
        if form is FLOAT and not self.plan.target.moves_integers and order != native:
            floats = self.get(tensor, native, FLOAT)
            value = self.moved(floats, native, order)
        elif form is FLOAT:
            value = self.dequantize(self.get(tensor, order, STORED), self.plan.storage(tensor), order)
        elif form is native_form is STORED and order != native and self._stays(tensor):
            value = self.quantize(self.get(tensor, order, FLOAT), self.plan.storage(tensor), order)
        elif form is native_form:
            there = self._made[tensor]
            start = next(
                (o for o, f in there if f is form and drop_unit_axes(o) == drop_unit_axes(order)),
                native,
            )
            value = self.moved(there[start, form], with_pairs(start, tensor.dtype), with_pairs(order, tensor.dtype))
        else:
            forms = {STORED: self.plan.storage(tensor), FILE: file_storage(tensor)}
            value = self.get(tensor, order, native_form)
            value = self.converted(value, forms[native_form], forms[form], source_layout(tensor.dims))
        self._describe(tensor, value, order, form)
        return value

    # --- conversions ------------------------------------------------------------------------------

    def moved(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        """Bring a value from one order to another."""
        for here, there in pairwise((start, *intermediate_layouts(start, end), end)):
            value = self._moved_at_once(value, here, there)
        return value

    def _moved_at_once(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        moves, dims = plan_conversion(start, end), physical_shape(start)
        if moves.split is not None:
            value, dims = self.reshape(value, dims, moves.split), moves.split
        if moves.perm is not None:
            value = self.emitter.emit("Transpose", [value], {"perm": moves.perm})[0]
            dims = tuple(dims[axis] for axis in moves.perm)
        return value if moves.shape is None else self.reshape(value, dims, moves.shape)

    def reshape(self, value: ir.Value, before: Dims, dims: Dims) -> ir.Value:
        """A Reshape; where only axes of size 1 come or go an Unsqueeze or a Squeeze, which needs no sizes.

        Raises ValueError where more than one size is needed that is not known.
        """
        if (added := _ones_more(dims, before)) is not None:
            return self.emitter.emit("Unsqueeze", [value, added], {})[0]
        if (dropped := _ones_more(before, dims)) is not None:
            return self.emitter.emit("Squeeze", [value, dropped], {})[0]
        if sum(d is None for d in dims) > 1:
            core = tuple(d for d in before if d != 1)
            if core != tuple(d for d in dims if d != 1):
                raise ValueError(f"a reshape to {tuple(dims)} with more than one unknown size")
            return self.reshape(self.reshape(value, before, core), core, dims)
        zero = {"allowzero": 1} if 0 in dims and self.emitter.opset >= 14 else {}
        return self.emitter.emit("Reshape", [value, [-1 if d is None else d for d in dims]], zero)[0]

    def converted(self, value: ir.Value, start: Storage, end: Storage, order: TensorLayout) -> ir.Value:
        """Stored integers kept in another way, at the same scale; any will do where it is 0, which stands for none."""
        return self.quantize(self.dequantize(value, scaled(start), order), scaled(end), order)

    def dequantize(self, value: ir.Value, storage: Storage, order: TensorLayout, *, multiply: bool = False) -> ir.Value:
        """Stored integers, dequantized; ``multiply``: by Cast and Mul whatever the target makes of the dtype."""
        if storage.blocks is not None:
            return self._dequantize_blocks(value, storage.blocks, order)
        scale, zero_point, axis = self._parameters(storage, order)
        target = self.plan.target
        if not (multiply or storage.dtype in target.multiplies or storage.dtype not in {*target.quantizes, "int32"}):
            return self.emitter.emit("DequantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        if axis is not None:
            along = [-1 if k == axis else 1 for k in range(len(physical_shape(order)))]
            scale, zero_point = scale.reshape(along), zero_point.reshape(along)
        floats = self._emit("Cast", value, to="float32")
        if zero_point.any():
            floats = self._emit("Sub", floats, zero_point.astype(np.float32))
        return self._emit("Mul", floats, scale)

    def _dequantize_blocks(self, value: ir.Value, blocks: BlockwiseQuantization, order: TensorLayout) -> ir.Value:
        """A scale per block of the last axis, in blocks of the size the target fuses."""
        perm, sizes = layout_axes(order), dict(zip(layout_axes(order), physical_shape(order), strict=True))
        size = self.plan.target.block(blocks.block_size)
        rows = [sizes[axis] or 0 for axis in range(len(perm) - 1)]
        scales = np.repeat(blocks.flat().reshape(*rows, -1), blocks.block_size // size, axis=-1)
        scale = self.emitter.constant(scales.transpose(perm), self.name(blocks.scales))
        along = {"axis": perm.index(len(rows)), "block_size": size}
        return self.emitter.emit("DequantizeLinear", [value, scale], along)[0]

    def quantize(self, value: ir.Value, storage: Storage, order: TensorLayout) -> ir.Value:
        """Floats as stored integers; by arithmetic where the target's QuantizeLinear does not know the dtype."""
        scale, zero_point, axis = self._parameters(storage, order)
        maker = value.producer()
        if storage.dtype in PACKED and maker is not None and maker.op_type == "Relu":
            value = self._emit("Max", value, 0.0)  # ONNX Runtime drops a Relu in front, whatever the zero point
        if axis is None and _rescales(maker, scale, zero_point):
            lowest = (INTEGER_RANGE[storage.dtype][0] - float(zero_point)) * float(scale)
            value = self._emit("Max", value, lowest)
        if storage.dtype in self.plan.target.quantizes:
            integers = self.emitter.emit("QuantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        else:
            low, high = (float(end) for end in INTEGER_RANGE[storage.dtype])
            rounded = self._emit("Round", self._emit("Div", value, scale))
            with_zero_point = self._emit("Add", rounded, zero_point.astype(np.float32))
            integers = self._emit("Cast", self._emit("Clip", with_zero_point, low, high), to=storage.dtype)
        return typed(integers, storage.dtype, None)

    def _emit(self, op_type: str, *operands: Operand, **attributes: str) -> ir.Value:
        return self.emitter.emit(op_type, operands, attributes)[0]

    def _parameters(self, storage: Storage, order: TensorLayout) -> tuple[Array, Array, int | None]:
        quantization = storage.quantization
        assert quantization is not None
        return quantization_arrays(quantization, storage.dtype, order)

    # --- constants --------------------------------------------------------------------------

    def _constant(self, tensor: Tensor, order: TensorLayout, form: Form, weights: Weights) -> ir.Value:
        key = (tensor, order, form, weights)
        if key not in self._constants:
            storage = file_storage(tensor) if form is FILE else self.plan.storage(tensor)
            if tensor.narrower is not None and weights is not Weights.FOLDED:
                value = self.get(tensor.narrower, order, FLOAT, weights=weights)
                if not quantized(tensor.narrower):
                    value = self._emit("Cast", value, to=tensor.dtype)
            elif form is FLOAT and (weights is Weights.FOLDED or (tensor.blocks and cut(order))):
                value = self.emitter.constant(arranged(dequantized(tensor), order), self.name(tensor))
            else:
                value = self.emitter.constant(arranged(shifted(tensor.array, storage), order), self.name(tensor))
                if form is FLOAT:
                    value = self.dequantize(value, storage, order, multiply=weights is Weights.MULTIPLIED)
            self._constants[key] = value
        return self._constants[key]

    # --- names and metadata ------------------------------------------------------------------------------

    def _describe(self, tensor: Tensor, value: ir.Value, order: TensorLayout, form: Form) -> None:
        """Name a value after its tensor and say which form of it this is."""
        storage = self.plan.storage(tensor) if form is STORED else file_storage(tensor)
        dims = _as_known(value, physical_dims(tensor, order))
        typed(value, "float32" if form is FLOAT else storage.dtype, dims)
        if holds_tensor(value.metadata_props) or (value.producer() is None and value.const_value is None):
            return  # one value may stand for several tensors; the first names it, and inputs have names
        native = self._native.get(tensor)
        plain = native is None or native == (order, form)
        suffix = "" if plain else f":{'float' if form is FLOAT else 'file' if form is FILE else format_layout(order)}"
        value.name = self.emitter.names.unique(self.name(tensor) + suffix)
        moved = layout_axes(order) != tuple(range(tensor.rank)) or len(order) != tensor.rank
        write_tensor(
            value.metadata_props,
            tensor.subgraph,
            tensor.index,
            form="float" if form is FLOAT else "stored",
            order=format_layout(order) if moved else "",
            shift=storage.shift,
        )


def _rescales(maker: ir.Node | None, scale: Array, zero_point: Array) -> bool:
    """Whether integers become such of the same dtype and other parameters, with nothing in between: ONNX Runtime makes one pair of
    two in a row, with parameters of its own, and the first rounding is lost (DoubleQDQPairsRemover).
    """
    if maker is None or maker.op_type != "DequantizeLinear":
        return False
    integers, *before = maker.inputs
    if integers is None or integers.producer() is None:  # an input of the graph
        return False
    known = [one.const_value.numpy() for one in before if one is not None and one.const_value is not None]
    if len(known) < 2 or known[1].dtype != zero_point.dtype:
        return False
    return not (np.array_equal(known[0], scale) and np.array_equal(known[1], zero_point))


def _as_known(value: ir.Value, dims: Dims | None) -> Dims | None:
    """Sizes of a tensor that the file leaves open, as they are known of a value which is an operand, too."""
    if dims is None or value.shape is None or len(value.shape) != len(dims):
        return dims
    known = (size if isinstance(size, int) else None for size in value.shape)
    return tuple(own if size is None else size for size, own in zip(dims, known, strict=True))


def _ones_more(long: Dims, short: Dims) -> list[int] | None:
    """The axes of size 1 that ``long`` has more than ``short``; ``None`` where that is not how they differ."""
    more, left = [], list(short)
    for axis, size in enumerate(long):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            more.append(axis)
        else:
            return None
    return None if left else more


def cut(order: TensorLayout) -> bool:
    """Whether the elements of any axis lie in another order than the file's."""
    return len(coalesce(order)) > len(layout_axes(order))


def physical_dims(tensor: Tensor, order: TensorLayout) -> tuple[int | None, ...] | None:
    """The shape of a tensor in an order; complex numbers have a trailing axis of 2."""
    if not tensor.has_rank:
        return None
    pair = (2,) if tensor.dtype.startswith("complex") else ()
    return (*physical_shape(order), *pair)


def with_pairs(order: TensorLayout, dtype: str) -> TensorLayout:
    """Complex numbers are pairs of reals along an axis that comes last in every order."""
    return (*order, AxisPart(len(layout_axes(order)), 1, 2)) if dtype.startswith("complex") else order


def quantization_arrays(quantization: Quantization, dtype: str, order: TensorLayout) -> tuple[Array, Array, int | None]:
    """Scale (float32) and zero point (the stored dtype) as ONNX wants them, and the axis they go along."""
    per_axis = quantization.per_axis
    scale = np.asarray(quantization.scale if per_axis else quantization.scale[0], np.float32)
    zero_point = integers(quantization.zero_point if per_axis else quantization.zero_point[0], dtype)
    axis = layout_axes(order).index(quantization.axis) if per_axis else None
    return scale, zero_point, axis


def integers(values: Sequence[int] | int, dtype: str) -> Array:
    if dtype in ("int4", "uint4", "int2", "uint2"):
        import ml_dtypes

        return np.asarray(values, np.int32).astype(getattr(ml_dtypes, dtype))
    return np.asarray(values, dtype)


def scaled(storage: Storage) -> Storage:
    """With 1 for each scale of 0."""
    parameters = storage.quantization
    if parameters is None or all(parameters.scale):
        return storage
    return storage._replace(quantization=replace(parameters, scale=tuple(scale or 1.0 for scale in parameters.scale)))


def shifted(array: Array, storage: Storage) -> Array:
    if array.dtype.name == storage.dtype or storage.quantization is None:
        return array
    return (array.astype(np.int16) + storage.shift).astype(storage.dtype)


def arranged(array: Array, order: TensorLayout) -> Array:
    """A constant in an order; complex numbers as pairs of reals."""
    order = with_pairs(order, array.dtype.name)
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)
    moves = plan_conversion(source_layout(array.shape), order)
    if moves.split is not None:
        array = array.reshape([d or 0 for d in moves.split])
    if moves.perm is not None:
        array = array.transpose(moves.perm)
    return array if moves.shape is None else array.reshape([d or 0 for d in moves.shape])
