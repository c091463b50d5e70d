"""A value of the ONNX model as a TFLite tensor: its layout, shift and channels.

Arrays are converted in both directions. ``metadata`` reads and writes the record as text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.source.model import Array

_SHIFTED_DTYPES = {"int8": np.uint8, "uint8": np.int8}


class TensorValue(NamedTuple):
    """A value of the ONNX model that holds a TFLite tensor.

    ``order``: the value is ``numpy.transpose(tensor, order)``, without omitted axes of size 1 and with an added axis
    for each -1. ``shift``: the number added to the quantized values. ``encoding``: "stored" or "float". ``channels``: for
    each channel of the value (axis 1), the tensor's channel, or -1 for an added channel; empty if no channel differs.
    """

    name: str
    subgraph: int
    tensor: int
    order: tuple[int, ...] | None = None
    shift: int = 0
    encoding: str = "stored"
    channels: tuple[int, ...] = ()

    def can_hold(self, array: Array) -> bool:
        """True if the axes and channels of ``array`` match the value.

        A tensor of another file may not match.
        """
        order = range(array.ndim) if self.order is None else self.order
        omitted = {*range(array.ndim)}.difference(order)
        if max(order, default=-1) >= array.ndim or any(array.shape[axis] != 1 for axis in omitted):
            return False
        channels = array.shape[order[1]] if len(order) > 1 and order[1] >= 0 else 1
        return not self.channels or channels == max(self.channels) + 1

    def apply(self, array: Array) -> Array:
        """Return the tensor's array in the layout of the ONNX value; added channels are 0."""
        if self.order is not None:
            axes = [axis for axis in self.order if axis >= 0]
            omitted = [axis for axis in range(array.ndim) if axis not in axes]
            shape = [1 if axis < 0 else array.shape[axis] for axis in self.order]
            array = np.ascontiguousarray(np.transpose(array, [*axes, *omitted]).reshape(shape))
        if self.shift:
            shifted = array.astype(np.int32) + self.shift
            array = shifted.astype(_SHIFTED_DTYPES.get(array.dtype.name, array.dtype))
        if self.channels:
            channels = np.asarray(self.channels)
            array = np.take(array, np.maximum(channels, 0), axis=1)
            array[:, channels < 0] = 0
        return array

    def restore(self, array: Array, dtype: np.dtype[Any]) -> Array | None:
        """Return the tensor's array from the ONNX value.

        Return None if its rank does not match the permutation.
        """
        if self.channels and array.ndim > 1:
            array = np.take(array, [self.channels.index(k) for k in range(max(self.channels) + 1)], axis=1)
        if self.shift:
            array = (array.astype(np.int32) - self.shift).astype(dtype)
        if self.order is not None:
            if len(self.order) != array.ndim:
                return None
            axes = sorted(axis for axis in self.order if axis >= 0)
            array = np.transpose(array, np.argsort(self.order, kind="stable"))
            array = array.reshape(array.shape[array.ndim - len(axes) :])  # without the added axes, which come first
            array = np.expand_dims(array, tuple({*range(max(axes, default=0))} - {*axes}))
        return array
