"""Graph inputs and outputs as users of the model see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.authored import InterfaceMetadata, TensorMetadata

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_tflite_plugin.api.target import Target
    from onnx_tflite_plugin.source.model import Tensor


@dataclass(frozen=True, repr=False)
class GraphValue:
    """Input or output of the ONNX model.

    Attributes:
        name: name in the ONNX model.
        dtype: dtype, such as ``"float32"``.
        shape: sizes; the name of a dynamic dimension, or ``None`` if it has no name.
        tensor: name in the TFLite file.
        scale: scale of a quantized tensor, or one scale per element of ``axis``; empty if the tensor is not quantized.
        zero_point: zero points that belong to ``scale``.
        axis: axis of the scales, if there are several.
        kind: kind of content in the file's metadata, such as an image.
        description: the author's description.
        mean: mean of the normalization; the model takes ``(x - mean) / std`` of an image or a sound.
        std: standard deviation of the normalization.
        range: minimum and maximum of the values, in the units of ``dtype``.
        threshold: threshold below which scores are to be ignored.
        labels: labels of the elements.
        files: names of associated files in the file's metadata.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    tensor: str = ""
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0
    kind: str = ""
    description: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    threshold: float | None = None
    labels: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the known fields; only the length of tuples of more than 8 elements."""
        facts = {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)
            if getattr(self, attribute.name) != attribute.default
        }
        lengths = {
            name: f"<{len(value)}>" for name, value in facts.items() if isinstance(value, tuple) and len(value) > 8
        }
        return f"GraphValue({', '.join(f'{name}={lengths.get(name) or repr(value)}' for name, value in facts.items())})"

    def as_dict(self) -> dict[str, object]:
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}


def graph_values(
    values: Iterable[ir.Value],
    names: Sequence[str],
    tensors: Sequence[Tensor],
    file_tensors: Sequence[Tensor],
    metadata: InterfaceMetadata,
) -> tuple[GraphValue, ...]:
    """Return the graph inputs or outputs of a finished model, without its states.

    ``names``: names of the graph inputs or outputs. ``tensors``: their converted tensors.
    ``file_tensors``: these tensors before a change of the quantization.
    """
    by_name = {str(value.name): value for value in values}
    return tuple(
        _graph_value(
            name, by_name[name], tensor, file_tensor, metadata.get((tensor.subgraph, tensor.index), TensorMetadata())
        )
        for name, tensor, file_tensor in zip(names, tensors, file_tensors, strict=True)
        if name in by_name
    )


def _graph_value(
    name: str, value: ir.Value, tensor: Tensor, file_tensor: Tensor, metadata: TensorMetadata
) -> GraphValue:
    dtype = "unknown" if value.dtype is None else value.dtype.name.lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    quantization = affine(tensor) if dtype == tensor.dtype else None
    return GraphValue(
        name,
        dtype,
        tuple(size if isinstance(size, int) else size.value for size in value.shape or ()),
        tensor.name,
        () if quantization is None else quantization.scale,
        () if quantization is None else quantization.zero_point,
        0 if quantization is None else quantization.axis,
        **author_metadata(_in_units_of(dtype, file_tensor, metadata)),
    )


def dequantize_range(
    limits: tuple[tuple[float, ...], tuple[float, ...]] | None,
    dtype: str,
    scale: Sequence[float],
    zero_point: Sequence[int],
) -> tuple[tuple[float], tuple[float]] | None:
    """Dequantize the author's range if it is the full range of uint8 or int8.

    Return None for any other range, which already consists of real values.
    """
    dtype_limits = {"uint8": (0, 255), "int8": (-128, 127)}.get(dtype)
    if limits is None or dtype_limits is None or len(scale) != 1:
        return None
    if {*limits[0]} != {dtype_limits[0]} or {*limits[1]} != {dtype_limits[1]}:
        return None
    low, high = (float(f"{scale[0] * (value - zero_point[0]):.3g}") for value in dtype_limits)
    return (low,), (high,)


def _in_units_of(dtype: str, tensor: Tensor, metadata: TensorMetadata) -> TensorMetadata:
    """Return the metadata, with a range of real values if the graph has floats."""
    quantization = affine(tensor) if dtype == "float32" else None
    if quantization is None:
        return metadata
    limits = dequantize_range((metadata.low, metadata.high), tensor.dtype, quantization.scale, quantization.zero_point)
    return metadata if limits is None else metadata._replace(low=limits[0], high=limits[1])


def author_metadata(metadata: TensorMetadata) -> dict[str, Any]:
    """Return the fields of :class:`GraphValue` that come from the author's metadata."""
    return {
        "kind": metadata.kind,
        "description": metadata.description,
        "mean": metadata.mean,
        "std": metadata.std,
        "range": (metadata.low, metadata.high) if metadata.low and metadata.high else None,
        "threshold": metadata.threshold,
        "labels": metadata.labels,
        "files": tuple(file.name for file in metadata.files),
    }


def dynamic_input_warnings(inputs: Iterable[GraphValue], target: Target) -> list[str]:
    """Return a warning and remedy for each input with dynamic dimensions.

    Return no warnings if the target supports dynamic shapes.
    """
    if not target.needs_static_shapes:
        return []
    return [
        f"input {value.name!r} has dynamic dimensions, with which the model runs on the CPU instead of the accelerator; "
        "set them, as in "
        f"--input-shape {value.name}={','.join(str(size) if isinstance(size, int) else '1' for size in value.shape)}"
        for value in inputs
        if not all(isinstance(size, int) for size in value.shape)
    ]
