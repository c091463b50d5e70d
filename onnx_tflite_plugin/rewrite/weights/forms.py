"""The dtypes that weights of 8-bit products may have, and the product that tells processors apart.

What :mod:`weights` writes into a model, the summary and ``verify`` read: all three take it from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_tflite_plugin.source.model import Array

INT8 = "int8"  # exact on every processor
CHOSEN = "chosen"  # int8 or uint8, as the model loads
UINT8 = "uint8"
DEPENDENT = "int8, processor-dependent"

PROBE = "int8_products_are_exact"
"""The value that says, as a model loads, whether the processor adds products in 32 bits."""


def factors() -> tuple[Array, Array]:
    """The largest uint8 and int8 numbers, in as many rows and columns as kernels take at a time."""
    import numpy as np  # which the summary's text does without

    return np.full((8, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)


EXACT = 64 * 255 * 127
"""Every sum of their product, where nothing saturates; where something does, a sum is less."""
