"""Sizes of a model's inputs: those that the ONNX model fixes, and plausible ones for dynamic dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify.comparison.trial import Pairs, Run
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import ValueInfoProto


IMAGE = 224
"""Height and width of images with dynamic sizes: what most image networks were trained on."""
_CHANNELS = (1, 3, 4)  # of images


class InputSizes:
    """Sizes of the inputs of one model.

    ``entry``: as the TFLite file has it; ``pairs``: its inputs beside those of the ONNX model. ``known``: sizes that inputs
    have in the whole model, by tensor index, if this model is a submodel of it.
    """

    def __init__(self, entry: Entry, pairs: Pairs, known: Mapping[int, tuple[int, ...]] | None = None) -> None:
        self.entry, self.pairs, self.known = entry, pairs, known or {}

    def as_converted(self) -> Entry:
        """Return the entry with the sizes of the ONNX model, which given arrays must fit."""
        inputs = tuple(
            replace(tensor, dims=tuple(size if isinstance(size, int) else None for size in sizes))
            if len(sizes) == tensor.rank
            else tensor
            for tensor, _, sizes in self._dims()
        )
        return replace(self.entry, inputs=inputs)

    def other_sizes(self, least: int, *, per_axis: bool = False) -> dict[str, tuple[int, ...]]:
        """Return shapes of inputs with dynamic dimensions: per symbolic dimension, one more than the stored size.

        ``per_axis``: the second symbolic dimension gets two more, and so on, so that an exchange of two dimensions is found.
        """
        sizes: dict[str, int] = {}
        shapes = {}
        for tensor, name, dims in self._dims():
            if len(dims) == tensor.rank and any(isinstance(size, str) for size in dims):
                for axis, size in enumerate(dims):
                    if isinstance(size, str):
                        sizes.setdefault(size, _run(tensor, axis, least) + 1 + (len(sizes) if per_axis else 0))
                shapes[name] = tuple(sizes[size] if isinstance(size, str) else size for size in dims)
        return shapes

    @property
    def dynamic_in_file(self) -> bool:
        """True if the file has the same dynamic sizes as the ONNX model."""
        return all(
            not isinstance(size, str) or stored is None
            for tensor, _, dims in self._dims()
            if len(dims) == tensor.rank
            for size, stored in zip(dims, tensor.dims, strict=True)
        )

    def rows(self, arrays: Run, whole: Run | None) -> list[list[Array]]:
        """Return a batch as runs of one row each, if only the ONNX model's results have an axis for it.

        Empty if another dimension than the batch is dynamic, if a row is not of size 1, or if results have another rank.
        """
        inputs, outputs = list(self._dims()), list(self._results())
        opened = [[axis for axis, size in enumerate(dims) if isinstance(size, str)] for *_, dims in inputs]
        single = all(
            axes in ([], [0]) and (not axes or t.shape[0] == 1) for axes, (t, *_) in zip(opened, inputs, strict=True)
        )
        if not single or not all(dims and isinstance(dims[0], str) for dims in outputs):
            return []
        count, *others = {len(array) for array, axes in zip(arrays, opened, strict=True) if axes}
        if others:
            return []
        if whole is not None:
            results = list(zip(whole, outputs, strict=True))
            if all(_fits(one.shape, dims) for one, dims in results) or any(
                one.ndim != len(dims) for one, dims in results
            ):
                return []
        return [
            [array[k : k + 1] if axes else array for array, axes in zip(arrays, opened, strict=True)]
            for k in range(count)
        ]

    def mismatch(self) -> str:
        """Describe the first input whose static shapes differ between the two models; "" if there is none."""
        for tensor, name, dims in self._dims():
            static = [size for size in dims if isinstance(size, int)]
            if len(static) == len(dims) and None not in tensor.dims and tuple(static) != tuple(tensor.shape):
                return f"input {name!r} is {static} in the ONNX model and {list(tensor.shape)} in the TFLite model"
        return ""

    def onnx_shapes(self, least: int) -> dict[str, tuple[int, ...]]:
        """Return the input shapes of the ONNX model; dynamic dimensions have the size ``least`` or the stored one."""
        return {
            name: tuple(size if isinstance(size, int) else _run(tensor, axis, least) for axis, size in enumerate(dims))
            for tensor, name, dims in self._dims()
            if len(dims) == tensor.rank
        }

    def _results(self) -> Iterator[list[int | str]]:
        """Return the sizes of each output in the ONNX model, with dynamic dimensions at ``least``."""
        for tensor, name, info in zip(self.entry.outputs, self.entry.output_names, self.pairs.outputs, strict=True):
            yield self._sizes(tensor, name, info)

    def _dims(self) -> Iterator[tuple[Tensor, str, list[int | str]]]:
        """Yield each input with its name and its sizes in the ONNX model, in the file's order; a dynamic one by its name.

        If the file stores ``[]``, as old converters did for any shape, all sizes are dynamic.
        """
        for tensor, name, info in zip(self.entry.inputs, self.entry.input_names, self.pairs.inputs, strict=True):
            sizes = self._sizes(tensor, name, info)
            if not tensor.shape and sizes:
                tensor = replace(tensor, shape=(1,) * len(sizes), dims=(None,) * len(sizes))
            if len(known := self.known.get(tensor.index, ())) == tensor.rank:
                tensor = replace(tensor, shape=known)
            yield tensor, name, sizes

    def _sizes(self, tensor: Tensor, name: str, info: ValueInfoProto) -> list[int | str]:
        sizes: list[int | str] = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}:{axis}"
            for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        ]
        if tensor.dtype.startswith("complex"):
            sizes = sizes[:-1]
        value = self.pairs.values.get(info.name)
        if value is not None and value.order is not None and len(value.order) == len(sizes):
            sizes = [sizes[k] for k in np.argsort(value.order)]
        return sizes


def _run(tensor: Tensor, axis: int, least: int) -> int:
    """Return the size of a dynamic axis in a run: at least 1, and ``IMAGE`` for height and width of an image."""
    image = tensor.rank == 4 and axis in (1, 2) and tensor.dims[axis] is None and tensor.shape[3] in _CHANNELS
    stored = tensor.shape[axis]
    return IMAGE if image and stored <= 1 and not least else max(stored, least if axis else 0, 1)


def plausible_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the stored shape with dynamic dimensions at the size of a run."""
    return tuple(
        _run(tensor, axis, 0) if dim is None else size
        for axis, (dim, size) in enumerate(zip(tensor.dims, tensor.shape, strict=True))
    )


def _fits(shape: Sequence[int], dims: Sequence[int | str]) -> bool:
    """True if an array has the shape of the ONNX model in all static dimensions."""
    return len(shape) == len(dims) and all(
        isinstance(size, str) or n == size for n, size in zip(shape, dims, strict=True)
    )
