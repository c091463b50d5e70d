"""Nodes that take one matrix each of a tensor (T, B, I), as the time steps of an unrolled recurrent layer do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, integer, producer, sizes

_Taken = TypeVar("_Taken")


def row_of(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The tensor that a matrix is taken of, and its place along axis 0."""
    gather = producer(value, "Gather")
    if gather is None:
        return None
    source, index = gather.inputs[0], constant(gather.inputs[1])
    if source is None or index is None or index.ndim or integer(gather, "axis", 0):
        return None
    return source, int(index)


def every(source: ir.Value, by_index: Mapping[int, _Taken]) -> list[_Taken]:
    """What takes each matrix of a tensor, in their order; nothing where one is missing or a size is not known."""
    shape = sizes(source)
    whole = shape and len(shape) == 3 and None not in shape and sorted(by_index) == list(range(shape[0] or 0))
    return [by_index[k] for k in sorted(by_index)] if whole else []


def parted(editor: Editor, joined: ir.Value, count: int, length: int) -> Sequence[ir.Value]:
    """As many parts of a length, one behind the other along axis 0."""
    return editor.emitter.emit("Split", [joined, np.full(count, length, np.int64)], {"axis": 0}, outputs=count)
