"""A model's inputs and outputs as whoever runs it meets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.authored import Described, TensorMetadata

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_tflite_plugin.source.model import Tensor


@dataclass(frozen=True, repr=False)
class Edge:
    """One input or output of the ONNX model.

    ``shape``: a size left open is its name, or ``None``. ``scale`` and ``zero_point`` (one, or one per element of
    ``axis``) say what its integers mean; both are empty for other dtypes. ``tensor`` is its name in the TFLite file. The
    rest is what the file's metadata says: the model takes ``(x - mean) / std`` of an image or a sound, values are within
    ``range``, scores below ``threshold`` count for nothing.
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
        """What is known, with the number of scales and labels where there are many."""
        facts = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        long = {name: f"<{len(value)}>" for name, value in facts.items() if isinstance(value, tuple) and len(value) > 8}
        return f"Edge({', '.join(f'{name}={long.get(name) or repr(value)}' for name, value in facts.items())})"

    def as_dict(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def edges(
    values: Iterable[ir.Value], names: Sequence[str], tensors: Sequence[Tensor], told: Described
) -> tuple[Edge, ...]:
    """One side of a finished model, without its states: the values of these names, which stand for these tensors."""
    by_name = {str(value.name): value for value in values}
    return tuple(
        _edge(name, by_name[name], tensor, told.get((tensor.subgraph, tensor.index), TensorMetadata()))
        for name, tensor in zip(names, tensors, strict=True)
        if name in by_name
    )


def _edge(name: str, value: ir.Value, tensor: Tensor, told: TensorMetadata) -> Edge:
    dtype = "unknown" if value.dtype is None else value.dtype.name.lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    quantization = affine(tensor) if dtype == tensor.dtype else None
    return Edge(
        name,
        dtype,
        tuple(size if isinstance(size, int) else size.value for size in value.shape or ()),
        tensor.name,
        () if quantization is None else quantization.scale,
        () if quantization is None else quantization.zero_point,
        0 if quantization is None else quantization.axis,
        **authored(told),
    )


def authored(told: TensorMetadata) -> dict[str, Any]:
    """What the metadata says of an input or output, under the names of the fields of :class:`Edge`."""
    return {
        "kind": told.kind,
        "description": told.description,
        "mean": told.mean,
        "std": told.std,
        "range": (told.low, told.high) if told.low and told.high else None,
        "threshold": told.threshold,
        "labels": told.labels,
        "files": tuple(file.name for file in told.files),
    }
