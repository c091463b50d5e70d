"""TFLite to ONNX. ``convert(path)`` converts; ``onnx_tflite_plugin.api`` is for authors of op packs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.deferral import install as _install

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion, convert
    from onnx_tflite_plugin.errors import ConversionError

__all__ = ["Conversion", "ConversionError", "convert"]
_install()


def __getattr__(name: str) -> Any:
    """Loaded on first use, so that importing the package (and its api) stays quick."""
    if name == "ConversionError":
        from onnx_tflite_plugin.errors import ConversionError

        return ConversionError
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("onnx_tflite_plugin.conversion"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
