"""Names of 8-bit weight dtypes, and constants of the processor probe.

The pass that assigns dtypes writes the names into the model. The summary and ``verify`` read them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_tflite_plugin.source.model import Array

ONNX_RUNTIME_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's operators, and the prefix of its other domains."""

INT8 = "int8"  # exact on every processor
CHOSEN = "chosen"  # int8 or uint8, selected at load time
UINT8 = "uint8"
DEPENDENT = "int8, processor-dependent"
SHIFT = 128  # from int8 to uint8
PROBE = "int8_products_are_exact"
"""Name of the value that is True if the processor that loads the model sums 8-bit products in 32 bits."""


def describe_runtime(weights: Collection[str], nodes: Collection[str]) -> str:
    """Describe the runtime that a model requires; "" if any runtime is suitable.

    ``weights``: dtypes of 8-bit weights. ``nodes``: operators with their domains, such as ``com.microsoft.FastGelu``.
    """
    operators = sorted({name.rpartition(".")[2] for name in nodes if name.startswith(ONNX_RUNTIME_DOMAIN)})
    reasons = ["an If selects weights at load time"] if CHOSEN in weights else []
    reasons += [f"the model contains its operators ({', '.join(operators)})"] if operators else []
    return (
        f"for ONNX Runtime: {', and '.join(reasons)}; for other runtimes convert with another --target"
        if reasons
        else ""
    )


def shift_to_uint8(array: Array) -> Array:
    """Return int8 values plus ``SHIFT``, as uint8."""
    import numpy as np

    return (array.astype(np.int16) + SHIFT).astype(np.uint8)


def probe_operands() -> tuple[Array, Array]:
    """Return the probe's operands: matrices of the largest uint8 and int8 values.

    They are large enough for one call of the vectorized kernel.
    """
    import numpy as np  # not needed by the summary, which imports this module

    return np.full((8, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)


EXACT_SUM = 64 * 255 * 127
"""Exact value of each element when the :func:`probe_operands` are multiplied. Saturation lowers it."""
