"""Sizes of a model's inputs: those that the ONNX model fixes, and those that it leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..source.model import Tensor
from .structure import Entry
from .trial import Pairs


class InputSizes:
    """``entry``: as the TFLite file has it; ``pairs``: its inputs beside those of the ONNX model."""

    def __init__(self, entry: Entry, pairs: Pairs) -> None:
        self.entry, self.pairs = entry, pairs

    def as_converted(self) -> Entry:
        """The entry with the sizes of the ONNX model, which given arrays must fit."""
        sizes = {name: dims for _, name, dims in self._dims()}
        inputs = tuple(
            replace(tensor, dims=tuple(size if isinstance(size, int) else None for size in sizes[name]))
            if len(sizes[name]) == tensor.rank
            else tensor
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
        )
        return replace(self.entry, inputs=inputs)

    def open(self, least: int) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs with sizes that the ONNX model leaves open: by name of the size, one more than is stored."""
        sizes: dict[str, int] = {}
        shapes = {}
        for tensor, name, dims in self._dims():
            if len(dims) == tensor.rank and any(isinstance(size, str) for size in dims):
                for axis, (size, stored) in enumerate(zip(dims, tensor.shape, strict=True)):
                    if isinstance(size, str):
                        sizes.setdefault(size, max(stored, least if axis else 0) + 1)
                shapes[name] = tuple(sizes[size] if isinstance(size, str) else size for size in dims)
        return shapes

    def fixed(self, least: int) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs that the ONNX model fixes otherwise than the TFLite file stores them; open sizes at ``least``."""
        return {
            name: tuple(
                size if isinstance(size, int) else max(stored, least if axis else 0)
                for axis, (size, stored) in enumerate(zip(dims, tensor.shape, strict=True))
            )
            for tensor, name, dims in self._dims()
            if len(dims) == tensor.rank
        }

    def _dims(self) -> Iterator[tuple[Tensor, str, list[int | str]]]:
        """Each input with its name and its sizes in the ONNX model, in the file's order; an open one by its name."""
        for tensor, name, info in zip(self.entry.inputs, self.entry.input_names, self.pairs.inputs, strict=True):
            sizes: list[int | str] = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}:{axis}"
                for axis, dim in enumerate(info.type.tensor_type.shape.dim)
            ]
            if tensor.dtype.startswith("complex"):
                sizes = sizes[:-1]
            value = self.pairs.values.get(info.name)
            if value is not None and value.order is not None and len(value.order) == len(sizes):
                sizes = [sizes[k] for k in np.argsort(value.order)]
            yield tensor, name, sizes
