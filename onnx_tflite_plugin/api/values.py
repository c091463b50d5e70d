"""Values of the emitted ONNX model as handlers see them: opaque, to be passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from onnx_tflite_plugin.source.model import Array


class ElementType(Protocol):
    """A dtype of ONNX (TensorProto.DataType)."""

    @property
    def name(self) -> str:
        """Return ``FLOAT``, ``INT8``, ..."""

    @property
    def value(self) -> int: ...


class Shape(Protocol):
    """Sizes of a value's axes. An entry that is not an int is a dynamic dimension."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...


class Value(Protocol):
    """An ONNX value: operand and result of ``ctx.ops``.

    Handlers may read only dtype and shape.
    """

    @property
    def dtype(self) -> ElementType | None:
        """Return the dtype; ``None`` if not known yet."""

    @property
    def shape(self) -> Shape | None:
        """Return the shape; ``None`` if not known yet, as for most emitted values.

        For a slot use ``ctx.shape``.
        """


class Graph(Protocol):
    """An inner graph from ``ctx.graph``, to be an attribute of If, Loop or Scan."""

    @property
    def name(self) -> str | None: ...


ValueLike = Value | Array | np.generic | bool | int | float | Sequence[int] | Sequence[float]
"""Operand of ``ctx.ops``: a value or a constant. Python ints become int64, floats float32; arrays keep their dtype."""
