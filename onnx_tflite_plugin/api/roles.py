"""Names of constants and results by their role, such as ``input_weights``."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.source.model import Array

ROLE = "onnx_tflite_plugin.role"
"""Key in the ``meta`` of a value. ``meta`` is not written to the file."""


class NamedArray(np.ndarray[Any, Any]):
    """An array with a role. Arrays that are computed from it have no role."""

    role = ""


@overload
def named(array: Value, role: str) -> Value: ...
@overload
def named(array: Any, role: str) -> Array: ...
def named(array: Any, role: str) -> Value | Array:
    """Return a constant or an intermediate value, with a name for its role.

    ``array``: an array, a NumPy scalar or a value. ``role`` follows the operator's name in a readable graph: in the operator
    ``lstm``, ``named(weights, "input_weights")`` becomes ``lstm/input_weights``.
    """
    if hasattr(array, "meta"):
        value: Value = array
        array.meta[ROLE] = role
        return value
    view = np.asarray(array).view(NamedArray)
    view.role = role
    return view
