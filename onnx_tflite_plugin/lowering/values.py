"""Values of tensors by layout and encoding, each derived on first use.

``STORED`` values are quantized as the storage plan says, ``FILE`` values as in the file, ``FLOAT`` values are
dequantized. A tensor that is not quantized is always ``STORED``. Quantized values are transposed before
they are dequantized.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_tflite_plugin.graph.names import shared_scopes, shorten_name
from onnx_tflite_plugin.graph.value_metadata import holds_tensor, write_tensor
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    drop_unit_axes,
    format_layout,
    layout_axes,
    source_layout,
)
from onnx_tflite_plugin.lowering.arrays import (
    add_pair_axis,
    arrange_constant,
    has_split_axis,
    physical_dims,
    shift_integers,
)
from onnx_tflite_plugin.lowering.conversions import Conversions
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.quantization.storage import Encoding, WeightConversion, file_storage
from onnx_tflite_plugin.source.affine import dequantize_constant, is_quantized
from onnx_tflite_plugin.source.model import Dims, Model, Tensor

STORED, FILE, FLOAT = Encoding.STORED, Encoding.FILE, Encoding.FLOAT
TENSOR_NAME, VARIANT = "onnx_tflite_plugin.tensor_name", "onnx_tflite_plugin.variant"
"""Keys in the ``meta`` of values: the tensor's name, and the suffix of a derived value. ``meta`` is not written to files."""


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
        self._constants: dict[tuple[Tensor, TensorLayout, Encoding, WeightConversion], ir.Value] = {}
        # the layout and encoding in which an operator computed a tensor, and all values of the tensor
        self._produced: dict[Tensor, tuple[TensorLayout, Encoding]] = {}
        self._derived: dict[Tensor, dict[tuple[TensorLayout, Encoding], ir.Value]] = {}
        self._resources: dict[Tensor, Resource] = {}
        self.conversions = Conversions(emitter, storage.target, self.name)

    def clear(self) -> None:
        """Drop all values, since a reference cycle would keep replaced weights in memory."""
        for cache in (self._derived, self._constants, self._produced, self._resources):
            cache.clear()
        self.conversions.clear()

    # --- operator outputs -------------------------------------------------------------------

    def put(
        self, tensor: Tensor, value: ValueOrResource, layout: TensorLayout, encoding: Encoding, *, outer: bool = False
    ) -> None:
        """Set the value of a tensor.

        Values derived from an earlier value of the same tensor are dropped. ``outer``: the value belongs to another
        subgraph, which has named it.
        """
        if isinstance(value, Resource):
            self._resources[tensor] = value
            return
        encoding = self._canonical_encoding(tensor, encoding)
        self._produced[tensor] = layout, encoding
        self._derived[tensor] = {(layout, encoding): value}
        if not outer or value.shape is None:
            self._describe(tensor, value, layout, encoding)

    def has(self, tensor: Tensor) -> bool:
        """True if the tensor has a value."""
        return tensor.is_constant or tensor in self._produced or tensor in self._resources

    def resource(self, tensor: Tensor) -> Resource | None:
        """Return the resource that the tensor refers to; None if it is not a resource."""
        return self._resources.get(tensor)

    def name(self, tensor: Tensor) -> str:
        """Return the shortened tensor name with the subgraph's prefix."""
        return self.prefix + (shorten_name(tensor.name, outer_scopes=self.emitter.outer_scopes) or f"#{tensor.index}")

    def state_name(self, tensor: Tensor) -> str:
        """Return the name of a variable tensor's state, a graph input, unshortened."""
        return self.prefix + (tensor.name or f"#{tensor.index}")

    # --- operator inputs --------------------------------------------------------------------

    def get(
        self,
        tensor: Tensor,
        layout: TensorLayout | None = None,
        encoding: Encoding = STORED,
        *,
        conversion: WeightConversion = WeightConversion.DEQUANTIZED,
    ) -> ir.Value:
        """Return the tensor in a layout and encoding.

        ``conversion``: how a quantized constant becomes float. Raises LookupError for a tensor that no operator has
        computed.
        """
        layout = source_layout(tensor.dims) if layout is None else layout
        encoding = self._canonical_encoding(tensor, encoding)
        if tensor.is_constant:
            return self._constant(tensor, layout, encoding, conversion)
        derived = self._derived.setdefault(tensor, {})
        if (layout, encoding) not in derived:
            derived[layout, encoding] = self._derive(tensor, layout, encoding)
        return derived[layout, encoding]

    def _canonical_encoding(self, tensor: Tensor, encoding: Encoding) -> Encoding:
        """Return STORED if it equals ``encoding`` for this tensor, else ``encoding``."""
        if not is_quantized(tensor) or (encoding is FILE and self.plan.storage(tensor).dtype == tensor.dtype):
            return STORED
        return encoding

    def _lacks_transpose(self, tensor: Tensor) -> bool:
        """True for a quantized tensor whose stored dtype the target cannot transpose."""
        return is_quantized(tensor) and not self.plan.target.has_kernel("", self.plan.storage(tensor).dtype)

    def _derive(self, tensor: Tensor, layout: TensorLayout, encoding: Encoding) -> ir.Value:
        """Return a new value in a layout and encoding, derived from the produced value."""
        if tensor not in self._produced:
            raise LookupError(f"tensor {tensor} is used before an operator computes it")
        produced_layout, produced_encoding = self._produced[tensor]
        target = self.plan.target
        if encoding is FLOAT and layout != produced_layout and not (target.moves_integers or target.quantizes_moves):
            # Dequantize first, because the target transposes only floats.
            floats = self.get(tensor, produced_layout, FLOAT)
            value = self.conversions.convert_layout(floats, produced_layout, layout)
        elif encoding is FLOAT:
            value = self.conversions.dequantize(self.get(tensor, layout, STORED), self.plan.storage(tensor), layout)
        elif encoding is STORED and layout != produced_layout and self._lacks_transpose(tensor):
            # Transpose between DequantizeLinear and QuantizeLinear.
            floats = self.conversions.convert_layout(self.get(tensor, produced_layout, FLOAT), produced_layout, layout)
            value = self.conversions.quantize(floats, self.plan.storage(tensor), layout)
        elif encoding is produced_encoding:
            derived = self._derived[tensor]
            layouts = [derived_layout for derived_layout, derived_encoding in derived if derived_encoding is encoding]
            # A layout that differs only in axes of size 1 needs no Transpose.
            reshapable_layouts = (known for known in layouts if drop_unit_axes(known) == drop_unit_axes(layout))
            start = next(reshapable_layouts, produced_layout)
            value = self.conversions.convert_layout(
                derived[start, encoding], add_pair_axis(start, tensor.dtype), add_pair_axis(layout, tensor.dtype)
            )
        else:
            storages = {STORED: self.plan.storage(tensor), FILE: file_storage(tensor)}
            value = self.get(tensor, layout, produced_encoding)
            value = self.conversions.requantize(
                value, storages[produced_encoding], storages[encoding], source_layout(tensor.dims)
            )
        self._describe(tensor, value, layout, encoding)
        return value

    # --- constants --------------------------------------------------------------------------

    def _constant(
        self, tensor: Tensor, layout: TensorLayout, encoding: Encoding, conversion: WeightConversion
    ) -> ir.Value:
        """Return a constant tensor in a layout and encoding."""
        key = (tensor, layout, encoding, conversion)
        if key not in self._constants:
            storage = file_storage(tensor) if encoding is FILE else self.plan.storage(tensor)
            if tensor.narrower is not None and conversion is not WeightConversion.FOLDED:
                value = self.get(tensor.narrower, layout, FLOAT, conversion=conversion)
                if not is_quantized(tensor.narrower):
                    value = self.emitter.emit("Cast", [value], {"to": tensor.dtype})[0]
            elif encoding is FLOAT and (
                conversion is WeightConversion.FOLDED or (tensor.blocks and has_split_axis(layout))
            ):
                value = self.emitter.constant(arrange_constant(dequantize_constant(tensor), layout), self.name(tensor))
            else:
                value = self.emitter.constant(
                    arrange_constant(shift_integers(tensor.array, storage), layout), self.name(tensor)
                )
                if encoding is FLOAT:
                    value = self.conversions.dequantize(
                        value, storage, layout, multiply=conversion is WeightConversion.MULTIPLIED
                    )
            self._constants[key] = value
        return self._constants[key]

    # --- names and metadata ------------------------------------------------------------------------------

    def _describe(self, tensor: Tensor, value: ir.Value, layout: TensorLayout, encoding: Encoding) -> None:
        """Name a value after its tensor and write the layout and encoding to its metadata."""
        storage = self.plan.storage(tensor) if encoding is STORED else file_storage(tensor)
        dims = _merge_known_sizes(value, physical_dims(tensor, layout))
        set_type(value, "float32" if encoding is FLOAT else storage.dtype, dims)
        if holds_tensor(value.metadata_props) or (value.producer() is None and value.const_value is None):
            return  # the value is named after another tensor, or is a graph input
        produced = self._produced.get(tensor)
        is_produced = produced is None or produced == (layout, encoding)
        variant = "float" if encoding is FLOAT else "file" if encoding is FILE else format_layout(layout)
        variant = "" if is_produced else variant
        value.name = self.emitter.names.unique(self.name(tensor) + (f":{variant}" if variant else ""))
        value.meta[TENSOR_NAME], value.meta[VARIANT] = self.name(tensor), variant
        is_permuted = layout_axes(layout) != tuple(range(tensor.rank)) or len(layout) != tensor.rank
        write_tensor(
            value.metadata_props,
            tensor.subgraph,
            tensor.index,
            encoding="float" if encoding is FLOAT else "stored",
            order=format_layout(layout) if is_permuted else "",
            shift=storage.shift,
        )


def outer_scopes(model: Model) -> str:
    """Return the scopes that value names leave out (:func:`shared_scopes`)."""
    return shared_scopes(tensor.name for graph in model.subgraphs for tensor in graph.tensors)


def _merge_known_sizes(value: ir.Value, dims: Dims | None) -> Dims | None:
    """Return ``dims`` with dynamic sizes replaced by known sizes of the value."""
    if dims is None or value.shape is None or len(value.shape) != len(dims):
        return dims
    value_sizes = (size if isinstance(size, int) else None for size in value.shape)
    return tuple(value_size if size is None else size for size, value_size in zip(dims, value_sizes, strict=True))
