"""Values of tensors by layout and form, each derived once, on first use.

``STORED`` values are quantized as the storage plan says, ``FILE`` values as in the file, ``FLOAT`` values are
dequantized. A tensor that is not quantized has only the form ``STORED``. Quantized values are transposed before they are
dequantized.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.graph.names import shared_scopes, shorten_name
from onnx_tflite_plugin.graph.value_metadata import holds_tensor, write_tensor
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    drop_unit_axes,
    format_layout,
    intermediate_layouts,
    layout_axes,
    physical_shape,
    plan_conversion,
    source_layout,
)
from onnx_tflite_plugin.lowering.arrays import (
    add_pair_axis,
    arrange_constant,
    has_split_axis,
    physical_dims,
    quantization_arrays,
    replace_zero_scales,
    shift_integers,
)
from onnx_tflite_plugin.lowering.emitter import CONVERTS_LAYOUT, Emitter, Operand
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.quantization.plan import Form, Storage, StoragePlan, Weights, file_storage
from onnx_tflite_plugin.source.affine import dequantize_constant, is_quantized
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE, PACKED
from onnx_tflite_plugin.source.model import Array, BlockwiseQuantization, Dims, Model, Quantization, Tensor

STORED, FILE, FLOAT = Form.STORED, Form.FILE, Form.FLOAT
TENSOR_NAME, VARIANT = "onnx_tflite_plugin.tensor_name", "onnx_tflite_plugin.variant"
DEQUANTIZES = "onnx_tflite_plugin.dequantizes"
"""Keys in the ``meta`` of values, which no file stores.

They hold the tensor's name and the suffix of a derived value, and mark results of a Cast, Sub or Mul that dequantizes.
"""


@dataclass(frozen=True)
class Resource:
    """Token for the state or table that a TFLite resource tensor refers to."""

    key: str


ValueOrResource = ir.Value | Resource


class Values:
    """Values of one (inlined) TFLite subgraph."""

    def __init__(self, emitter: Emitter, storage: StoragePlan, prefix: str = "") -> None:
        self.emitter = emitter
        self.plan = storage
        self.prefix = prefix
        self._derived: dict[Tensor, dict[tuple[TensorLayout, Form], ir.Value]] = {}
        self._constants: dict[tuple[Tensor, TensorLayout, Form, Weights], ir.Value] = {}
        self._produced: dict[Tensor, tuple[TensorLayout, Form]] = {}
        self._resources: dict[Tensor, Resource] = {}
        self._fake_quantized: dict[ir.Value, Quantization] = {}

    def clear(self) -> None:
        """Drop all values.

        The scope is part of a reference cycle, which would keep replaced weights in memory.
        """
        for cache in (self._derived, self._constants, self._produced, self._resources, self._fake_quantized):
            cache.clear()

    # --- operator outputs -------------------------------------------------------------------

    def put(
        self, tensor: Tensor, value: ValueOrResource, layout: TensorLayout, form: Form, *, outer: bool = False
    ) -> None:
        """Set the value of a tensor.

        Values derived from an earlier value of the same tensor are dropped. ``outer``: the value belongs to another
        subgraph and keeps its name and shape.
        """
        if isinstance(value, Resource):
            self._resources[tensor] = value
            return
        form = self._form(tensor, form)
        self._produced[tensor] = layout, form
        self._derived[tensor] = {(layout, form): value}
        if not outer or value.shape is None:
            self._describe(tensor, value, layout, form)

    def has(self, tensor: Tensor) -> bool:
        """Return True if the tensor has a value."""
        return tensor.is_constant or tensor in self._produced or tensor in self._resources

    def resource(self, tensor: Tensor) -> Resource | None:
        """Return the resource that the tensor refers to; None if it is not a resource."""
        return self._resources.get(tensor)

    def name(self, tensor: Tensor) -> str:
        """Return the end of the tensor's name with the subgraph's prefix."""
        return self.prefix + (shorten_name(tensor.name, outer_scopes=self.emitter.outer_scopes) or f"#{tensor.index}")

    def state_name(self, tensor: Tensor) -> str:
        """Return the name of a variable tensor's state.

        It is a graph input, so the name is never shortened.
        """
        return self.prefix + (tensor.name or f"#{tensor.index}")

    # --- operator inputs --------------------------------------------------------------------

    def get(
        self,
        tensor: Tensor,
        layout: TensorLayout | None = None,
        form: Form = STORED,
        *,
        weights: Weights = Weights.DEQUANTIZED,
    ) -> ir.Value:
        """Return the tensor in a layout and form.

        ``weights``: how a quantized constant becomes float.

        Raises LookupError for a tensor that no operator has computed.
        """
        layout = source_layout(tensor.dims) if layout is None else layout
        form = self._form(tensor, form)
        if tensor.is_constant:
            return self._constant(tensor, layout, form, weights)
        derived = self._derived.setdefault(tensor, {})
        if (layout, form) not in derived:
            derived[layout, form] = self._derive(tensor, layout, form)
        return derived[layout, form]

    def _form(self, tensor: Tensor, form: Form) -> Form:
        """Return the canonical form: one of the forms that are equal for this tensor."""
        if not is_quantized(tensor) or (form is FILE and self.plan.storage(tensor).dtype == tensor.dtype):
            return STORED
        return form

    def _has_no_transpose(self, tensor: Tensor) -> bool:
        """True if the target cannot transpose the stored dtype of the tensor.

        Only quantized tensors are concerned.
        """
        return is_quantized(tensor) and not self.plan.target.has_kernel("", self.plan.storage(tensor).dtype)

    def _derive(self, tensor: Tensor, layout: TensorLayout, form: Form) -> ir.Value:
        """Return a new value in a layout and form, derived from the producer's."""
        if tensor not in self._produced:
            raise LookupError(f"tensor {tensor} is used before an operator computes it")
        produced_layout, produced_form = self._produced[tensor]
        target = self.plan.target
        if form is FLOAT and layout != produced_layout and not (target.moves_integers or target.quantizes_moves):
            floats = self.get(tensor, produced_layout, FLOAT)
            value = self.convert_layout(floats, produced_layout, layout)
        elif form is FLOAT:
            value = self.dequantize(self.get(tensor, layout, STORED), self.plan.storage(tensor), layout)
        elif form is STORED and layout != produced_layout and self._has_no_transpose(tensor):
            floats = self.convert_layout(self.get(tensor, produced_layout, FLOAT), produced_layout, layout)
            value = self.quantize(floats, self.plan.storage(tensor), layout)
        elif form is produced_form:
            existing = self._derived[tensor]
            layouts = [other_layout for other_layout, other_form in existing if other_form is form]
            same_axes = (other for other in layouts if drop_unit_axes(other) == drop_unit_axes(layout))
            closest = next(same_axes, produced_layout)
            value = self.convert_layout(
                existing[closest, form], add_pair_axis(closest, tensor.dtype), add_pair_axis(layout, tensor.dtype)
            )
        else:
            forms = {STORED: self.plan.storage(tensor), FILE: file_storage(tensor)}
            value = self.get(tensor, layout, produced_form)
            value = self.requantize(value, forms[produced_form], forms[form], source_layout(tensor.dims))
        self._describe(tensor, value, layout, form)
        return value

    # --- conversions ------------------------------------------------------------------------------

    def convert_layout(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        """Return a value converted from one layout to another."""
        for previous, following in pairwise((start, *intermediate_layouts(start, end), end)):
            value = self._convert_layout_in_one_step(value, previous, following)
        return value

    def _convert_layout_in_one_step(self, value: ir.Value, start: TensorLayout, end: TensorLayout) -> ir.Value:
        steps, dims = plan_conversion(start, end), physical_shape(start)
        if steps.split is not None:
            value, dims = self.reshape(value, dims, steps.split), steps.split
        if steps.perm is not None:
            emitted = len(self.emitter.nodes)
            value = self.emitter.emit("Transpose", [value], {"perm": steps.perm})[0]
            for node in self.emitter.nodes[emitted:]:
                node.meta[CONVERTS_LAYOUT] = True
            dims = tuple(dims[axis] for axis in steps.perm)
        return value if steps.shape is None else self.reshape(value, dims, steps.shape)

    def reshape(self, value: ir.Value, start: Dims, dims: Dims) -> ir.Value:
        """Return a reshaped value.

        If only axes of size 1 are added or removed, Unsqueeze or Squeeze is emitted, which needs no sizes.
        Raises ValueError if more than one dynamic size is needed.
        """
        if (added := _extra_unit_axes(dims, start)) is not None:
            return self.emitter.emit("Unsqueeze", [value, added], {})[0]
        if (dropped := _extra_unit_axes(start, dims)) is not None:
            return self.emitter.emit("Squeeze", [value, dropped], {})[0]
        if sum(d is None for d in dims) > 1:
            non_unit_sizes = tuple(d for d in start if d != 1)
            if non_unit_sizes != tuple(d for d in dims if d != 1):
                raise ValueError(f"a reshape to {tuple(dims)} has more than one dynamic size")
            return self.reshape(self.reshape(value, start, non_unit_sizes), non_unit_sizes, dims)
        attributes = {"allowzero": 1} if 0 in dims and self.emitter.opset >= 14 else {}
        return self.emitter.emit("Reshape", [value, [-1 if d is None else d for d in dims]], attributes)[0]

    def requantize(self, value: ir.Value, start: Storage, end: Storage, layout: TensorLayout) -> ir.Value:
        """Return quantized values in another storage of the same scale.

        A scale of 0 (no scale) is replaced by 1.
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
        target = self.plan.target
        if not (
            multiply or storage.dtype in target.cast_mul_dtypes or storage.dtype not in {*target.quantizes, "int32"}
        ):
            return self.emitter.emit("DequantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        if axis is not None:
            broadcast_shape = [-1 if k == axis else 1 for k in range(len(physical_shape(layout)))]
            scale, zero_point = scale.reshape(broadcast_shape), zero_point.reshape(broadcast_shape)
        floats = _mark(self._emit("Cast", value, to="float32"))
        if zero_point.any():
            floats = _mark(self._emit("Sub", floats, zero_point.astype(np.float32)))
        return _mark(self._emit("Mul", floats, scale))

    def _dequantize_blocks(self, value: ir.Value, blocks: BlockwiseQuantization, layout: TensorLayout) -> ir.Value:
        """Return values dequantized with one scale per block of the last axis.

        Blocks have a size that the target fuses.
        """
        perm, sizes = layout_axes(layout), dict(zip(layout_axes(layout), physical_shape(layout), strict=True))
        size = self.plan.target.fused_block_size(blocks.block_size)
        leading_sizes = [sizes[axis] or 0 for axis in range(len(perm) - 1)]
        scales = np.repeat(blocks.flat().reshape(*leading_sizes, -1), blocks.block_size // size, axis=-1)
        scale = self.emitter.constant(scales.transpose(perm), self.name(blocks.scales))
        attributes = {"axis": perm.index(len(leading_sizes)), "block_size": size}
        return self.emitter.emit("DequantizeLinear", [value, scale], attributes)[0]

    def quantize(self, value: ir.Value, storage: Storage, layout: TensorLayout) -> ir.Value:
        """Return quantized values.

        Arithmetic is emitted if the target's QuantizeLinear does not support the dtype.
        """
        scale, zero_point, axis = self._parameters(storage, layout)
        producer = value.producer()
        if storage.dtype in PACKED and producer is not None and producer.op_type == "Relu":
            # ONNX Runtime drops a Relu before QuantizeLinear, regardless of the zero point.
            value = self._emit("Max", value, 0.0)
        if axis is None and _is_rescaling(producer, scale, zero_point):
            lowest = (INTEGER_RANGE[storage.dtype][0] - float(zero_point)) * float(scale)
            value = self._emit("Max", value, lowest)
        if storage.dtype in self.plan.target.quantizes:
            stored = self.emitter.emit("QuantizeLinear", [value, scale, zero_point], {"axis": axis})[0]
        else:
            low, high = (float(end) for end in INTEGER_RANGE[storage.dtype])
            rounded = self._emit("Round", self._emit("Div", value, scale))
            with_zero_point = self._emit("Add", rounded, zero_point.astype(np.float32))
            stored = self._emit("Cast", self._emit("Clip", with_zero_point, low, high), to=storage.dtype)
        return set_type(stored, storage.dtype, None)

    def fake_quantize(self, value: ir.Value, quantization: Quantization, layout: TensorLayout) -> ir.Value:
        """Return float values rounded to int8 parameters.

        The values are quantized in the dtype that the target stores, then dequantized.
        """
        if self._fake_quantized.get(value) == quantization:
            return value
        dtype, shift = self.plan.target.storage.get("int8", ("int8", 0))
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

    # --- constants --------------------------------------------------------------------------

    def _constant(self, tensor: Tensor, layout: TensorLayout, form: Form, weights: Weights) -> ir.Value:
        """Return a constant tensor in a layout and form."""
        key = (tensor, layout, form, weights)
        if key not in self._constants:
            storage = file_storage(tensor) if form is FILE else self.plan.storage(tensor)
            if tensor.narrower is not None and weights is not Weights.FOLDED:
                value = self.get(tensor.narrower, layout, FLOAT, weights=weights)
                if not is_quantized(tensor.narrower):
                    value = self._emit("Cast", value, to=tensor.dtype)
            elif form is FLOAT and (weights is Weights.FOLDED or (tensor.blocks and has_split_axis(layout))):
                value = self.emitter.constant(arrange_constant(dequantize_constant(tensor), layout), self.name(tensor))
            else:
                value = self.emitter.constant(
                    arrange_constant(shift_integers(tensor.array, storage), layout), self.name(tensor)
                )
                if form is FLOAT:
                    value = self.dequantize(value, storage, layout, multiply=weights is Weights.MULTIPLIED)
            self._constants[key] = value
        return self._constants[key]

    # --- names and metadata ------------------------------------------------------------------------------

    def _describe(self, tensor: Tensor, value: ir.Value, layout: TensorLayout, form: Form) -> None:
        """Name a value after its tensor and write the layout and form to its metadata."""
        storage = self.plan.storage(tensor) if form is STORED else file_storage(tensor)
        dims = _merge_known_sizes(value, physical_dims(tensor, layout))
        set_type(value, "float32" if form is FLOAT else storage.dtype, dims)
        if holds_tensor(value.metadata_props) or (value.producer() is None and value.const_value is None):
            return  # a value may represent several tensors; the first names it, and graph inputs have names
        produced = self._produced.get(tensor)
        is_produced = produced is None or produced == (layout, form)
        variant = "float" if form is FLOAT else "file" if form is FILE else format_layout(layout)
        variant = "" if is_produced else variant
        value.name = self.emitter.names.unique(self.name(tensor) + (f":{variant}" if variant else ""))
        value.meta[TENSOR_NAME], value.meta[VARIANT] = self.name(tensor), variant
        is_permuted = layout_axes(layout) != tuple(range(tensor.rank)) or len(layout) != tensor.rank
        write_tensor(
            value.metadata_props,
            tensor.subgraph,
            tensor.index,
            form="float" if form is FLOAT else "stored",
            order=format_layout(layout) if is_permuted else "",
            shift=storage.shift,
        )


def outer_scopes(model: Model) -> str:
    """Return the scopes that names of values leave out, see :func:`shared_scopes`."""
    return shared_scopes(tensor.name for graph in model.subgraphs for tensor in graph.tensors)


def _is_rescaling(producer: ir.Node | None, scale: Array, zero_point: Array) -> bool:
    """True if a QuantizeLinear would directly follow a DequantizeLinear.

    The two have different parameters. ONNX Runtime merges two consecutive Q/DQ pairs into one pair and so loses
    the first rounding (DoubleQDQPairsRemover).
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


def _merge_known_sizes(value: ir.Value, dims: Dims | None) -> Dims | None:
    """Return the dims with dynamic sizes replaced by those known from the value."""
    if dims is None or value.shape is None or len(value.shape) != len(dims):
        return dims
    known = (size if isinstance(size, int) else None for size in value.shape)
    return tuple(known_size if size is None else size for size, known_size in zip(dims, known, strict=True))


def _extra_unit_axes(long: Dims, short: Dims) -> list[int] | None:
    """Return the axes of size 1 that ``long`` has in addition to ``short``.

    Return ``None`` if they differ otherwise.
    """
    extra, remaining = [], list(short)
    for axis, size in enumerate(long):
        if remaining and remaining[0] == size:
            remaining.pop(0)
        elif size == 1:
            extra.append(axis)
        else:
            return None
    return None if remaining else extra


def _mark(value: ir.Value) -> ir.Value:
    """Return the value, marked as part of a dequantization."""
    value.meta[DEQUANTIZES] = True
    return value
