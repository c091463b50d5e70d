"""Built-in handlers and targets, for packs that change one of them."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import did_you_mean


def builtin(code: str) -> Handler:
    """Return the built-in handler of an operator.

    Change it with ``dataclasses.replace``. Raises LookupError if the operator has no built-in handler. Do not import
    handlers from ``op_handlers``: its modules are not part of the API.
    """
    handler: Handler = _load_entry_point("handlers", code)
    return handler


def builtin_target(name: str) -> Target:
    """Return a built-in target, to change with ``dataclasses.replace``.

    Raises LookupError if there is no built-in target of this name.
    """
    target: Target = _load_entry_point("targets", name)
    return target


def _load_entry_point(group: str, name: str) -> Any:
    from importlib.metadata import distribution  # slow import that few packs need

    entries = distribution("onnx-tflite-plugin").entry_points.select(group=f"onnx_tflite_plugin.{group}")
    for entry in entries.select(name=name):
        return entry.load()
    raise LookupError(f"there is no built-in {group.removesuffix('s')} {name!r}{did_you_mean(name, entries.names)}")
