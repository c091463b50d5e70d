"""Read and check quantization parameters.

The checks are those of LiteRT's ``InterpreterBuilder::ParseQuantization``. As in LiteRT, a scale of 0 means no scale.
For quantized dtypes, parameters that no kernel can use are rejected: a per-tensor scale that is negative, a scale that
is not finite, or a zero point outside the dtype's range. Per-axis scales may be negative, because converters fold batch
normalization with a negative gamma into a convolution; kernels multiply by such scales (``QuantizeMultiplier``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod

import numpy as np

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE, QUANTIZED
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.model import (
    AnyQuantization,
    BlockwiseQuantization,
    MultiAxisQuantization,
    Quantization,
    Tensor,
)
from onnx_tflite_plugin.source.schema import BLOCKWISE, DETAILS_BLOCKWISE, DETAILS_MULTI_AXIS, MULTI_AXIS


def read_quantization(
    table: Table | None, dtype: str, shape: tuple[int, ...], tensors: Sequence[Tensor]
) -> AnyQuantization | None:
    """Return the quantization parameters, or None if the table has no scales.

    ``tensors``: tensors of the subgraph, some of which contain the scales of blockwise parameters.
    """
    if table is None:
        return None
    kind = table.number("details_type")
    if kind in (DETAILS_BLOCKWISE, DETAILS_MULTI_AXIS):
        details = table.table("details", BLOCKWISE if kind == DETAILS_BLOCKWISE else MULTI_AXIS)
        if details is None:
            raise table.invalid("details", "the quantization details are declared but missing", REFUSED)
        if kind == DETAILS_BLOCKWISE:
            return _read_blockwise(details, shape, tensors)
        return _read_multi_axis(details, shape, len(tensors))
    scale = table.numbers("scale")
    if not scale:
        return None
    zero_point = table.numbers("zero_point") or (0,) * len(scale)
    if len(zero_point) != len(scale):
        raise table.invalid("zero_point", f"{len(zero_point)} zero points for {len(scale)} scales", REFUSED)
    axis = table.number("quantized_dimension")
    if axis < 0 or (shape and axis >= len(shape)):
        raise table.invalid(
            "quantized_dimension", f"axis {axis} does not exist in a tensor of rank {len(shape)}", REFUSED
        )
    if shape and len(scale) not in (1, shape[axis]):
        reason = f"{len(scale)} scales for axis {axis} of size {shape[axis]}"
        raise table.invalid("scale", reason, REFUSED)
    if dtype in QUANTIZED:
        _check_scales(table, dtype, scale)
    if dtype in INTEGER_RANGE:
        _check_zero_points(table, dtype, zero_point)
    return None if dtype == "string" else Quantization(scale, zero_point, axis)  # strings are never quantized


def _check_scales(table: Table, dtype: str, scale: Sequence[float]) -> None:
    for value in scale:
        if (value < 0 and len(scale) == 1) or not isfinite(value):
            raise table.invalid("scale", f"{value} is not a valid scale of {dtype}", DAMAGED)


def _check_zero_points(table: Table, dtype: str, zero_point: Sequence[int]) -> None:
    lowest, highest = INTEGER_RANGE[dtype]
    for point in zero_point:
        if not lowest <= point <= highest:
            raise table.invalid(
                "zero_point", f"{point} is outside the range of {dtype}, {lowest} to {highest}", DAMAGED
            )


def _read_blockwise(details: Table, shape: tuple[int, ...], tensors: Sequence[Tensor]) -> BlockwiseQuantization:
    """Return the blockwise parameters. Raises InvalidModel if no kernel supports them.

    Kernels support one float16 scale per block of the last axis, without zero points.
    Kernels read the scales in stored order, regardless of the shape (``EvalBlockwise4Bit``, kernels/fully_connected.cc).
    """
    if details.numbers("block_shape"):
        raise details.invalid("block_shape", "blocks of several dimensions are not supported", "use one block_size")
    block_size = details.number("block_size")
    if block_size <= 0:
        raise details.invalid("block_size", f"{block_size} is not positive", DAMAGED)
    scales_index, zero_points_index = (
        _read_tensor_index(details, "scales", len(tensors)),
        _read_zero_points_index(details, len(tensors)),
    )
    if not shape or shape[-1] % block_size:
        raise details.invalid("block_size", f"{block_size} does not divide the last axis of {list(shape)}", DAMAGED)
    scales = tensors[scales_index]
    if scales.dtype != "float16" or not scales.is_constant:
        found = scales.dtype if scales.is_constant else f"a variable {scales.dtype} tensor"
        reason = f"scales of blockwise quantization must be float16 constants; tensor {scales} is {found}"
        hint = "LiteRT supports no other dtype of scales; quantize the model again with float16 scales"
        raise details.invalid("scales", reason, hint)
    if prod(scales.shape) != prod(shape) // block_size:
        reason = f"tensor {scales} has {prod(scales.shape)} scales for {prod(shape) // block_size} blocks"
        raise details.invalid("scales", reason, DAMAGED)
    if not (np.isfinite(scales.array) & (scales.array >= 0)).all():
        raise details.invalid("scales", f"tensor {scales} holds a value that is negative or not finite", DAMAGED)
    # A tensor has no zero points if their index is -1 or that of the scales, or if the field is absent, as in files of
    # LiteRT's own tests.
    if zero_points_index not in (None, scales_index) and details.has("zero_points"):
        points = tensors[zero_points_index]
        if not points.is_constant or points.array.any():
            reason = f"tensor {points} has nonzero values, and LiteRT's kernels ignore zero points of blocks"
            raise details.invalid("zero_points", reason, "quantize symmetrically")
    return BlockwiseQuantization(scales, block_size)


def _read_multi_axis(details: Table, shape: tuple[int, ...], tensor_count: int) -> MultiAxisQuantization:
    size, axes = details.number("block_size"), details.numbers("quantized_dimensions")
    if size < 0:
        raise details.invalid("block_size", f"{size} is negative", REFUSED)
    if not axes or min(axes) < 0 or (shape and max(axes) >= len(shape)):
        raise details.invalid("quantized_dimensions", f"axes {axes} do not fit a tensor of rank {len(shape)}", REFUSED)
    return MultiAxisQuantization(
        _read_tensor_index(details, "scales", tensor_count), _read_zero_points_index(details, tensor_count), size, axes
    )


def _read_zero_points_index(details: Table, tensor_count: int) -> int | None:
    return None if details.number("zero_points") == -1 else _read_tensor_index(details, "zero_points", tensor_count)


def _read_tensor_index(details: Table, name: str, tensor_count: int) -> int:
    index = details.number(name)
    if not 0 <= index < tensor_count:
        raise details.invalid(
            name, f"tensor {index} does not exist; the subgraph has {plural(tensor_count, 'tensor')}", REFUSED
        )
    return index
