"""Comparison of a TFLite model in LiteRT with its ONNX model in ONNX Runtime.

``verify`` is the complete comparison. ``LiteRT``, ``OnnxRuntime``, ``generate_inputs`` and ``compare`` are single steps, for
tests. Neither runtime is imported before a model runs.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from onnx_tflite_plugin.checked import check_keywords
from onnx_tflite_plugin.options import misplaced_keyword_remedies
from onnx_tflite_plugin.renamed import VERIFY, warn_renamed
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.error import ErrorStatistics, measure_error
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.comparison.trial import Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs.random_inputs import generate_inputs
from onnx_tflite_plugin.verify.run import verify
from onnx_tflite_plugin.verify.runtimes.litert import KERNEL_SETS, LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.verification import Verification

__all__ = [
    "KERNEL_SETS",
    "Comparison",
    "Divergence",
    "ErrorStatistics",
    "LiteRT",
    "LiteRTError",
    "OnnxRuntime",
    "OrtError",
    "Tolerance",
    "Trial",
    "Verification",
    "compare",
    "generate_inputs",
    "measure_error",
    "verify",
]


class _CallableModule(ModuleType):
    """Type of this package, so that it can be called like the function ``verify``."""

    def __call__(self, *arguments: Any, **options: Any) -> Verification:
        parameters = inspect.signature(verify).parameters
        check_keywords("verify", options, parameters, misplaced_keyword_remedies("verify", parameters))
        return verify(*arguments, **options)

    def __get__(self, instance: object, owner: object = None) -> _CallableModule:
        """Return the package itself, so that ``help`` lists it among the functions."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Return the replacement of a renamed function, with a DeprecationWarning."""
        if name not in VERIFY:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        warn_renamed(f"{self.__name__}.{name}", VERIFY[name])
        return globals()[VERIFY[name]]


_CallableModule.__call__.__doc__ = verify.__doc__
_module = sys.modules[__name__]
_module.__class__ = _CallableModule
__signature__ = inspect.signature(verify)
_parameters = __signature__.parameters.values()
_plain_signature = inspect.Signature(
    [parameter.replace(annotation=inspect.Parameter.empty) for parameter in _parameters]
)
_module.__doc__ = f"verify{_plain_signature} -> Verification\n\n{inspect.getdoc(verify)}"  # printed by help(verify)
__all__ = []  # names here would make help(verify) print 700 lines of classes after the function
