"""Values of the ONNX model that is being emitted, as handlers see them: opaque, to be passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from onnx_tflite_plugin.source.model import Array


class ElementType(Protocol):
    """A dtype as ONNX numbers them (TensorProto.DataType)."""

    @property
    def name(self) -> str:
        """``FLOAT``, ``INT8``, ..."""

    @property
    def value(self) -> int: ...


class Shape(Protocol):
    """Sizes of a value's axes; what is no int is unknown until run time."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...


class Value(Protocol):
    """An ONNX value: what ``ctx.ops`` returns and takes. Nothing but these two may be read of it."""

    @property
    def dtype(self) -> ElementType | None:
        """``None`` where it is not known yet."""

    @property
    def shape(self) -> Shape | None:
        """``None`` where it is not known yet: of what was just emitted it seldom is. ``ctx.shape`` is that of a slot."""


class Graph(Protocol):
    """An inner graph, made by ``ctx.graph``; the attribute of If, Loop and Scan that it is given as."""

    @property
    def name(self) -> str | None: ...


ValueLike = Value | Array | np.generic | bool | int | float | Sequence[int] | Sequence[float]
"""What ``ctx.ops`` takes: a value, or a constant. Python's ints are int64, its floats float32; arrays keep their dtype."""
