"""Names of constants by their role in an operator, such as ``input_weights``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.source.model import Array


class NamedArray(np.ndarray[Any, Any]):
    """An array with a role. Arrays computed from it have none."""

    role = ""


def named(array: Any, role: str) -> Array:
    """Return an array, or a NumPy scalar, with the name that the constant has in a readable graph.

    The name begins with that of the operator: ``named(weights, "input_weights")`` becomes ``lstm/input_weights``.
    """
    view = np.asarray(array).view(NamedArray)
    view.role = role
    return view
