"""Arrays of constants and of quantization parameters in a layout and storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_tflite_plugin.layout.tensor_layout import (
    AxisPart,
    TensorLayout,
    coalesce,
    layout_axes,
    physical_shape,
    plan_conversion,
    source_layout,
)
from onnx_tflite_plugin.quantization.storage import Storage
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor


def has_split_axis(layout: TensorLayout) -> bool:
    """True if an axis is split and its elements are not in the file's order."""
    return len(coalesce(layout)) > len(layout_axes(layout))


def physical_dims(tensor: Tensor, layout: TensorLayout) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor in a layout; complex numbers have a last axis of 2."""
    if not tensor.has_rank:
        return None
    pair = (2,) if tensor.dtype.startswith("complex") else ()
    return (*physical_shape(layout), *pair)


def add_pair_axis(layout: TensorLayout, dtype: str) -> TensorLayout:
    """Return the layout, with a last axis of 2 for complex numbers."""
    return (*layout, AxisPart(len(layout_axes(layout)), 1, 2)) if dtype.startswith("complex") else layout


def quantization_arrays(
    quantization: Quantization, dtype: str, layout: TensorLayout
) -> tuple[Array, Array, int | None]:
    """Return float32 scale, zero point in stored dtype, and axis for QuantizeLinear."""
    per_axis = quantization.per_axis
    scale = np.asarray(quantization.scale if per_axis else quantization.scale[0], np.float32)
    zero_point = integer_array(quantization.zero_point if per_axis else quantization.zero_point[0], dtype)
    axis = layout_axes(layout).index(quantization.axis) if per_axis else None
    return scale, zero_point, axis


def integer_array(values: Sequence[int] | int, dtype: str) -> Array:
    """Return integers in a dtype, which NumPy may lack."""
    if dtype in ("int4", "uint4", "int2", "uint2"):
        import ml_dtypes

        return np.asarray(values, np.int32).astype(getattr(ml_dtypes, dtype))
    return np.asarray(values, dtype)


def replace_zero_scales(storage: Storage) -> Storage:
    """Return the storage with each scale of 0 replaced by 1."""
    parameters = storage.quantization
    if parameters is None or all(parameters.scale):
        return storage
    return storage._replace(quantization=replace(parameters, scale=tuple(scale or 1.0 for scale in parameters.scale)))


def shift_integers(array: Array, storage: Storage) -> Array:
    """Return an array of quantized values shifted to the storage's dtype."""
    if array.dtype.name == storage.dtype or storage.quantization is None:
        return array
    return (array.astype(np.int16) + storage.shift).astype(storage.dtype)


def arrange_constant(array: Array, layout: TensorLayout) -> Array:
    """Return a constant in a layout; complex numbers as pairs of reals."""
    layout = add_pair_axis(layout, array.dtype.name)
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)
    steps = plan_conversion(source_layout(array.shape), layout)
    if steps.split is not None:
        array = array.reshape([d or 0 for d in steps.split])
    if steps.perm is not None:
        array = array.transpose(steps.perm)
    return array if steps.shape is None else array.reshape([d or 0 for d in steps.shape])
