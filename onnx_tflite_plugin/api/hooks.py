"""The hooks a pack may implement. Entry-point group ``onnx_tflite_plugin.hooks``, one module or object a pack.

Handlers of single operators need none of this: they are entry points of their own. An implementation takes those
arguments it wants, by name. One that raises, or leaves behind what it must not, is named with its pack and left out;
the conversion ends where the model uses the pack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_tflite_plugin.api.declarations import Decline, Handler
    from onnx_tflite_plugin.api.target import Target
    from onnx_tflite_plugin.source.model import Operator

PROJECT = "onnx_tflite_plugin"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def claim(op: Operator, target: Target, opset: int) -> Handler | Decline | None:
    """Take one operator instance: its handler, a reason to decline, or None if it is none of ours.

    ``opset``: the one asked for, else the highest that the target takes.
    """


@hookspec
def configure(options: Mapping[str, Any]) -> None:
    """The conversion's options, told once to every plugin."""


@hookspec
def after_lowering(op: Operator, outputs: tuple[ir.Value | None, ...]) -> None:
    """One operator was lowered to these values, in source order of its outputs; nothing may be changed yet."""


@hookspec
def finish(model: ir.Model) -> None:
    """The finished model, before it is checked; may be changed in place, but for its inputs and outputs."""
