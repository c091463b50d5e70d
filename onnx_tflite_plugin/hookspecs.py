"""The hooks a pack may implement. Entry-point group ``onnx_tflite_plugin.hooks``, one module or object a pack.

Handlers of single operators need none of this: they are entry points of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_tflite_plugin.api.declarations import Decline, Handler
    from onnx_tflite_plugin.source.model import Operator

PROJECT = "onnx_tflite_plugin"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def claim(op: Operator) -> Handler | Decline | None:
    """Take one operator instance: its handler, a reason to decline, or None if it is none of ours."""


@hookspec(historic=True)
def configure(options: Mapping[str, Any]) -> None:
    """The conversion's options, told once to every plugin, also to those loaded later."""


@hookspec
def after_lowering(op: Operator, outputs: tuple[ir.Value | None, ...]) -> None:
    """One operator was lowered to these values, in source order of its outputs."""


@hookspec
def finish(model: ir.Model) -> None:
    """The finished model, before it is checked; may be changed in place."""
