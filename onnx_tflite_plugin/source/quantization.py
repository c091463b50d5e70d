"""Quantization parameters of a tensor, with the checks of LiteRT's ``InterpreterBuilder::ParseQuantization``.

A scale that is 0, negative or not finite passes, as it does there: real files have such scales on tensors whose
type is not quantized, and whoever uses a scale has to look at it.
"""

from __future__ import annotations

from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.model import BlockwiseQuantization, MultiAxisQuantization, Quantization
from onnx_tflite_plugin.source.schema import BLOCKWISE, DETAILS_BLOCKWISE, DETAILS_MULTI_AXIS, MULTI_AXIS


def read_quantization(
    table: Table | None, shape: tuple[int, ...], tensors: int
) -> Quantization | BlockwiseQuantization | MultiAxisQuantization | None:
    """The parameters, or None where the file gives none (or only ``min`` and ``max``).

    ``tensors`` is how many tensors the subgraph has, which blockwise parameters point to.
    """
    if table is None:
        return None
    kind = table.number("details_type")
    if kind in (DETAILS_BLOCKWISE, DETAILS_MULTI_AXIS):
        details = table.table("details", BLOCKWISE if kind == DETAILS_BLOCKWISE else MULTI_AXIS)
        if details is None:
            raise table.invalid("details", "they are announced but missing", REFUSED)
        if kind == DETAILS_BLOCKWISE:
            return _read_blockwise(details, tensors)
        return _read_multi_axis(details, shape, tensors)
    scale = table.numbers("scale")
    if not scale:
        return None
    zero_point = table.numbers("zero_point") or (0,) * len(scale)
    if len(zero_point) != len(scale):
        raise table.invalid("zero_point", f"{len(zero_point)} zero points for {len(scale)} scales", REFUSED)
    axis = table.number("quantized_dimension")
    if axis < 0 or (shape and axis >= len(shape)):
        raise table.invalid("quantized_dimension", f"axis {axis} of a tensor of rank {len(shape)}", REFUSED)
    if shape and len(scale) not in (1, shape[axis]):
        reason = f"{len(scale)} scales for axis {axis} of size {shape[axis]}"
        raise table.invalid("scale", reason, REFUSED)
    return Quantization(scale, zero_point, axis)


def _read_blockwise(details: Table, tensors: int) -> BlockwiseQuantization:
    if details.numbers("block_shape"):
        raise details.invalid("block_shape", "blocks of several dimensions are not read", "use one block_size")
    size = details.number("block_size")
    if size <= 0:
        raise details.invalid("block_size", f"{size} is not positive", DAMAGED)
    scales, zero_points = _tensor(details, "scales", tensors), _zero_points(details, tensors)
    # -1 says "none", but writers that leave the field out (LiteRT's own tests) say 0 with it; zero points are never
    # the scales, and LiteRT's kernels, which look at no blockwise zero points, take these files.
    if zero_points == scales or not details.has("zero_points"):
        zero_points = None
    return BlockwiseQuantization(scales, zero_points, size)


def _read_multi_axis(details: Table, shape: tuple[int, ...], tensors: int) -> MultiAxisQuantization:
    size, axes = details.number("block_size"), details.numbers("quantized_dimensions")
    if size < 0:
        raise details.invalid("block_size", f"{size} is negative", REFUSED)
    if not axes or min(axes) < 0 or (shape and max(axes) >= len(shape)):
        raise details.invalid("quantized_dimensions", f"{axes} for a tensor of rank {len(shape)}", REFUSED)
    return MultiAxisQuantization(_tensor(details, "scales", tensors), _zero_points(details, tensors), size, axes)


def _zero_points(details: Table, tensors: int) -> int | None:
    return None if details.number("zero_points") == -1 else _tensor(details, "zero_points", tensors)


def _tensor(details: Table, name: str, tensors: int) -> int:
    index = details.number(name)
    if not 0 <= index < tensors:
        raise details.invalid(name, f"tensor {index} does not exist; the subgraph has {tensors}", REFUSED)
    return index
