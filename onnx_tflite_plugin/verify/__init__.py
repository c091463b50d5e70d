"""Comparison of a TFLite model in LiteRT with its ONNX model in ONNX Runtime.

``verify`` makes the whole comparison; ``LiteRT``, ``OnnxRuntime``, ``draw`` and ``compare`` are single steps of it, for tests.
Neither runtime is imported before a model runs.
"""

import sys
from types import ModuleType
from typing import Any

from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.distance import Distance, measure
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.comparison.trial import Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs.random_inputs import draw
from onnx_tflite_plugin.verify.run import verify
from onnx_tflite_plugin.verify.runtimes.litert import KERNEL_SETS, LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.verification import Verification

__all__ = [
    "KERNEL_SETS",
    "Comparison",
    "Distance",
    "Divergence",
    "LiteRT",
    "LiteRTError",
    "OnnxRuntime",
    "OrtError",
    "Tolerance",
    "Trial",
    "Verification",
    "compare",
    "draw",
    "measure",
    "verify",
]


class _Callable(ModuleType):
    """``onnx_tflite_plugin.verify`` is this package, and called it is the function of that name."""

    def __call__(self, *arguments: Any, **options: Any) -> Verification:
        return verify(*arguments, **options)


_Callable.__call__.__doc__ = verify.__doc__
sys.modules[__name__].__class__ = _Callable
