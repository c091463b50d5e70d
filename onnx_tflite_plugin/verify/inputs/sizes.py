"""Input sizes of a model: those of the ONNX model, or default sizes if dynamic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.source.model import Array, Tensor, agree
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface, Run
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import ValueInfoProto


IMAGE = 224
"""Height and width of images with dynamic sizes, because most image networks were trained on this size."""
_CHANNELS = (1, 3, 4)  # of images


class InputSizes:
    """Input sizes of one model.

    ``entry``: inputs and outputs of the TFLite model. ``interface``: the matched inputs and outputs of the ONNX model.
    ``submodel_shapes``: for a submodel, tensor index -> shape of the input in the whole model.
    """

    def __init__(
        self,
        entry: Entry,
        interface: MatchedInterface,
        submodel_shapes: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.entry, self.interface, self.submodel_shapes = entry, interface, submodel_shapes or {}

    def as_converted(self) -> Entry:
        """Return the entry with the ONNX model's sizes. A user's arrays must fit them."""
        inputs = tuple(
            replace(tensor, dims=tuple(size if isinstance(size, int) else None for size in sizes))
            if len(sizes) == tensor.rank
            else tensor
            for tensor, _, sizes in self._dims()
        )
        return replace(self.entry, inputs=inputs)

    def other_sizes(self, minimum: int, *, per_axis: bool = False) -> dict[str, tuple[int, ...]]:
        """Return input name -> another shape, for the inputs with dynamic dimensions.

        Each dynamic dimension gets one more than its default size. ``minimum``: as for :meth:`onnx_shapes`.
        ``per_axis``: the second symbolic dimension gets two more, and so on, so that exchanged dimensions are detected.
        """
        sizes: dict[str, int] = {}
        shapes = {}
        for tensor, name, dims in self._dims():
            if len(dims) == tensor.rank and any(isinstance(size, str) for size in dims):
                for axis, size in enumerate(dims):
                    if isinstance(size, str):
                        excess = 1 + (len(sizes) if per_axis else 0)
                        sizes.setdefault(size, _default_size(tensor, axis, minimum) + excess)
                shapes[name] = tuple(sizes[size] if isinstance(size, str) else size for size in dims)
        return shapes

    @property
    def is_dynamic_in_file(self) -> bool:
        """True if every dynamic dimension of the ONNX model is dynamic in the file too."""
        return all(
            not isinstance(size, str) or file_size is None
            for tensor, _, dims in self._dims()
            if len(dims) == tensor.rank
            for size, file_size in zip(dims, tensor.dims, strict=True)
        )

    def split_batch(self, arrays: Run, results: Run | None) -> list[list[Array]]:
        """Return one run per element of a batch that only the ONNX model supports.

        ``results``: LiteRT's outputs for the whole batch; None if LiteRT refuses it. Return an empty list if LiteRT's outputs
        have the shapes of the ONNX model or a different rank, or if dynamic axes are not batch axes (axis 0, stored size 1).
        """
        inputs, outputs = list(self._dims()), list(self._output_dims())
        dynamic_axes = [[axis for axis, size in enumerate(dims) if isinstance(size, str)] for *_, dims in inputs]
        has_only_batch_axes = all(
            axes in ([], [0]) and (not axes or t.shape[0] == 1)
            for axes, (t, *_) in zip(dynamic_axes, inputs, strict=True)
        )
        if not has_only_batch_axes or not all(dims and isinstance(dims[0], str) for dims in outputs):
            return []
        count, *other_counts = {len(array) for array, axes in zip(arrays, dynamic_axes, strict=True) if axes}
        if other_counts:
            return []
        if results is not None:
            results_and_dims = list(zip(results, outputs, strict=True))
            if all(_fits(array.shape, dims) for array, dims in results_and_dims) or any(
                array.ndim != len(dims) for array, dims in results_and_dims
            ):
                return []
        return [
            [array[k : k + 1] if axes else array for array, axes in zip(arrays, dynamic_axes, strict=True)]
            for k in range(count)
        ]

    def mismatch(self) -> str:
        """Describe the first input whose static sizes differ; empty if none differs."""
        for tensor, name, dims in self._dims():
            sizes = tuple(size if isinstance(size, int) else None for size in dims)
            if not agree(sizes, tensor.dims):
                return f"input {name!r} is {format_shape(sizes)} in the ONNX model and {format_shape(tensor.dims)} in the TFLite model"
        return ""

    def onnx_shapes(self, minimum: int) -> dict[str, tuple[int, ...]]:
        """Return the ONNX model's input shapes, with default sizes if dynamic.

        ``minimum``: minimum of the default sizes, except for axis 0.
        """
        return {
            name: tuple(
                size if isinstance(size, int) else _default_size(tensor, axis, minimum)
                for axis, size in enumerate(dims)
            )
            for tensor, name, dims in self._dims()
            if len(dims) == tensor.rank
        }

    def _output_dims(self) -> Iterator[list[int | str]]:
        """Yield the ONNX model's output sizes, with names of dynamic dimensions."""
        for tensor, name, info in zip(self.entry.outputs, self.entry.output_names, self.interface.outputs, strict=True):
            yield self._sizes(tensor, name, info)

    def _dims(self) -> Iterator[tuple[Tensor, str, list[int | str]]]:
        """Yield each input of the file with its name and its sizes in the ONNX model.

        A dynamic size is the dimension's name. If the file stores the shape ``[]``, as old converters did, all sizes are
        dynamic.
        """
        for tensor, name, info in zip(self.entry.inputs, self.entry.input_names, self.interface.inputs, strict=True):
            sizes = self._sizes(tensor, name, info)
            if not tensor.shape and sizes:
                tensor = replace(tensor, shape=(1,) * len(sizes), dims=(None,) * len(sizes))
            if len(shape := self.submodel_shapes.get(tensor.index, ())) == tensor.rank:
                tensor = replace(tensor, shape=shape)
            yield tensor, name, sizes

    def _sizes(self, tensor: Tensor, name: str, info: ValueInfoProto) -> list[int | str]:
        sizes: list[int | str] = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}:{axis}"
            for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        ]
        if tensor.dtype.startswith("complex"):
            sizes = sizes[:-1]
        value = self.interface.values.get(info.name)
        if value is not None and value.order is not None and len(value.order) == len(sizes):
            sizes = [sizes[k] for k in np.argsort(value.order)]
        return sizes


def _default_size(tensor: Tensor, axis: int, minimum: int) -> int:
    """Return the size of a dynamic axis in a run: the stored size, at least 1.

    Height and width of an image are ``IMAGE`` if the file does not store them.
    """
    is_image_size = tensor.rank == 4 and axis in (1, 2) and tensor.dims[axis] is None and tensor.shape[3] in _CHANNELS
    file_size = tensor.shape[axis]
    if is_image_size and file_size <= 1 and not minimum:
        return IMAGE
    return max(file_size, 1) if axis == 0 else max(file_size, minimum, 1)


def plausible_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the stored shape, with default sizes for dynamic dimensions."""
    return tuple(
        _default_size(tensor, axis, 0) if dim is None else size
        for axis, (dim, size) in enumerate(zip(tensor.dims, tensor.shape, strict=True))
    )


def _fits(shape: Sequence[int], dims: Sequence[int | str]) -> bool:
    """True if an array has the shape of the ONNX model in all static dimensions."""
    return len(shape) == len(dims) and all(
        isinstance(size, str) or n == size for n, size in zip(shape, dims, strict=True)
    )
