"""The lines of Python that run a converted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_tflite_plugin.telling.edges import Edge

_FITS = 42  # characters of the inputs on one line, at a terminal of 80 columns
_NUMPY = {"bool": "bool", "string": "object"}


def snippet(path: str, inputs: Sequence[Edge], *, states: bool = False) -> str:
    """Three statements that run the model at ``path`` on arrays of the right dtypes and shapes, zeros to be replaced.

    A model with states is run by this package's session, which carries them.
    """
    fed = [f"{edge.name!r}: {_array(edge)}" for edge in inputs]
    feeds = "{" + ", ".join(fed) + "}"
    if len(feeds) > _FITS and fed:
        feeds = "{\n" + "".join(f"    {item},\n" for item in fed) + "}"
    if states:
        return (
            "import numpy as np; from onnx_tflite_plugin.runtime import Session\n"
            f"session = Session({path!r})  # carries the states from run to run\n"
            f"out = session.run({feeds})"
        )
    return (
        "import numpy as np, onnxruntime as ort\n"
        f"session = ort.InferenceSession({path!r})\n"
        f"out = session.run(None, {feeds})"
    )


def _array(edge: Edge) -> str:
    shape = tuple(size if isinstance(size, int) else 1 for size in edge.shape)
    if edge.dtype == "string":
        return f"np.full({shape}, '', object)"
    return f"np.zeros({shape}, {_NUMPY.get(edge.dtype, 'np.' + edge.dtype)})"
