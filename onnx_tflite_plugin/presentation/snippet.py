"""Python code that runs a converted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_tflite_plugin.presentation.graph_io import GraphValue

_MAX_FEEDS_LENGTH = 42  # maximum length of the inputs on one line, for a terminal of 80 columns
_MAX_LINE_LENGTH = 67  # maximum length of a line after its label
_NUMPY_DTYPES = {"bool": "bool", "string": "object"}


def snippet(path: str, inputs: Sequence[GraphValue], *, states: bool = False, domains: Sequence[str] = ()) -> str:
    """Return Python code that runs the model at ``path`` on zeros.

    A model with states runs in this package's session, which passes the states from run to run. ``domains``: operator
    domains that need a library of kernels.
    """
    arrays = [(repr(graph_value.name), _array_code(graph_value)) for graph_value in inputs]
    feeds = "{" + ", ".join(f"{name}: {array}" for name, array in arrays) + "}"
    if len(feeds) > _MAX_FEEDS_LENGTH and arrays:
        feeds = "{\n" + "".join(_feed_line(name, array) for name, array in arrays) + "}"
    options_code, options_argument = "", ""
    if domains:
        options_code = (
            "options = ort.SessionOptions()\n"
            f"options.register_custom_ops_library('KERNELS.so')  # {', '.join(domains)}\n"
        )
        options_argument = ", options=options"
    if states:
        runtime = "import onnxruntime as ort\n" if domains else ""
        return (
            f"import numpy as np; from onnx_tflite_plugin.runtime import Session\n{runtime}{options_code}"
            f"session = Session({path!r}{options_argument})  # carries the states\n"
            f"out = session.run({feeds})"
        )
    return (
        f"import numpy as np, onnxruntime as ort\n{options_code}"
        f"session = ort.InferenceSession({path!r}{options_argument and ', options'})\n"
        f"out = session.run(None, {feeds})"
    )


def _feed_line(name: str, array: str) -> str:
    """Return an input of a snippet with one input per line.

    The array is on the next line if it does not fit after the name.
    """
    line = f"    {name}: {array},\n"
    return line if len(line) - 1 <= _MAX_LINE_LENGTH else f"    {name}:\n        {array},\n"


def _array_code(graph_value: GraphValue) -> str:
    shape = tuple(size if isinstance(size, int) else 1 for size in graph_value.shape)
    if graph_value.dtype == "string":
        return f"np.full({shape}, '', object)"
    return f"np.zeros({shape}, {_NUMPY_DTYPES.get(graph_value.dtype, 'np.' + graph_value.dtype)})"
