"""Known fault of ONNX Runtime's 8-bit products on processors with AMX.

Intel processors have AMX from Sapphire Rapids on. ONNX Runtime 1.21 to 1.24 leaves elements of a product undefined if
it has at least 32 rows, and 17 to 31 columns modulo 32. A convolution with 24 output channels is an example. Measured
with 1.20 to 1.32 on an Intel Xeon with AMX.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from packaging.version import Version

from onnx_tflite_plugin.graph.int8_products import multiply_integers

FIXED_IN = "1.25"
_ROWS, _DEPTH, _COLUMNS = 32, 8, 24
_RUNS = 3
"""Number of runs of the product. In the first run, undefined elements may be right by chance."""


@cache
def describe_int8_fault(onnxruntime: Any) -> str:
    """Return a warning if 8-bit products are wrong on this processor; else ""."""
    version = onnxruntime.__version__
    if Version(version) >= Version(FIXED_IN) or _multiplies_exactly(onnxruntime):
        return ""
    return (
        f"onnxruntime {version} computes 8-bit products wrongly on this processor (AMX), so that quantized models give wrong"
        f" results; upgrade to onnxruntime {FIXED_IN} or later"
    )


def _multiplies_exactly(onnxruntime: Any) -> bool:
    """True if a product of an affected size is right in every run."""
    x = np.arange(_ROWS * _DEPTH).astype(np.uint8).reshape(_ROWS, _DEPTH)
    w = np.arange(_DEPTH * _COLUMNS).astype(np.int8).reshape(_DEPTH, _COLUMNS)
    expected = x.astype(np.int32) @ w.astype(np.int32)
    return all(np.array_equal(product, expected) for product in multiply_integers(onnxruntime, x, w, _RUNS))
