"""TFLite to ONNX, without TensorFlow.

    import onnx_tflite_plugin as otp

    conversion = otp.convert("model.tflite")        # a path or bytes
    conversion.save("model.onnx")
    conversion.report.inputs                        # names, dtypes, shapes, quantization, metadata
    otp.inspect("model.tflite")                     # the content of a file, and the handler of each operator
    otp.verify("model.tflite", "model.onnx")        # compares LiteRT and ONNX Runtime
    otp.Session("model.onnx").run({"x": array})     # a session that passes the states from run to run

``help(otp.convert)`` lists the options. Every refusal is a ``ConversionError``; a comparison that fails is the subclass
``VerificationError``.

Op packs import only ``onnx_tflite_plugin.api``. Stages and warnings are logged under "onnx_tflite_plugin".
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.deferral import install as _install

if TYPE_CHECKING:
    from onnx_tflite_plugin.api import VERSION as __version__
    from onnx_tflite_plugin.conversion import Conversion, convert
    from onnx_tflite_plugin.errors import (
        ConversionError,
        InvalidInputs,
        InvalidModel,
        InvalidOnnx,
        MismatchedModels,
        MissingExtra,
        UnsupportedOperator,
        UnsupportedOption,
        VerificationError,
    )
    from onnx_tflite_plugin.inspection import inspect
    from onnx_tflite_plugin.options import ConvertOptions, VerifyOptions
    from onnx_tflite_plugin.presentation.graph_io import GraphValue
    from onnx_tflite_plugin.report import Report
    from onnx_tflite_plugin.runtime import Session
    from onnx_tflite_plugin.source.bundle import bundle_parts
    from onnx_tflite_plugin.source.content import Member
    from onnx_tflite_plugin.verify import Verification, verify

__all__ = [
    "Conversion",
    "ConversionError",
    "ConvertOptions",
    "GraphValue",
    "InvalidInputs",
    "InvalidModel",
    "InvalidOnnx",
    "Member",
    "MismatchedModels",
    "MissingExtra",
    "Report",
    "Session",
    "UnsupportedOperator",
    "UnsupportedOption",
    "Verification",
    "VerificationError",
    "VerifyOptions",
    "__version__",
    "bundle_parts",
    "convert",
    "inspect",
    "verify",
]

_ERRORS = (
    "ConversionError",
    "InvalidInputs",
    "InvalidModel",
    "InvalidOnnx",
    "MismatchedModels",
    "MissingExtra",
    "UnsupportedOperator",
    "UnsupportedOption",
    "VerificationError",
)
_MODULES = {
    "Conversion": "conversion",
    **dict.fromkeys(_ERRORS, "errors"),
    "ConvertOptions": "keywords",
    "Member": "source.content",
    "GraphValue": "presentation.graph_io",
    "Report": "report",
    "Session": "runtime",
    "Verification": "verify",
    "VerifyOptions": "keywords",
    "bundle_parts": "source.bundle",
    "convert": "conversion",
    "inspect": "inspection",
}

_install()


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that the package is imported fast."""
    if name == "__version__":
        from onnx_tflite_plugin.api import VERSION

        return VERSION
    if name == "verify":  # a callable package
        return import_module("onnx_tflite_plugin.verify")
    if name in _MODULES:
        return getattr(import_module(f"onnx_tflite_plugin.{_MODULES[name]}"), name)
    from onnx_tflite_plugin.checked import did_you_mean

    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return __all__
