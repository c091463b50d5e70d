"""The built-in handlers, for packs that change one of them."""

from __future__ import annotations

from onnx_tflite_plugin.api.declarations import Handler


def builtin(code: str) -> Handler:
    """The built-in handler of an operator: ``dataclasses.replace`` makes another of it. Raises LookupError for none.

    Only here is it certain to be found: the modules of ``op_handlers`` are not part of the API.
    """
    from importlib.metadata import distribution  # which takes long to import, and few packs need

    entries = distribution("onnx-tflite-plugin").entry_points
    for entry in entries.select(group="onnx_tflite_plugin.handlers", name=code):
        loaded: Handler = entry.load()
        return loaded
    raise LookupError(f"there is no built-in handler of {code!r}")
