"""Hooks that a pack may implement.

Entry-point group ``onnx_tflite_plugin.hooks``, one module or object per pack. Handlers of single operators need no
hooks: they have entry points. An implementation declares the arguments that it needs, by name. An implementation that
raises, or leaves an invalid model, is reported with its pack and skipped; the conversion ends if the model uses the
pack.
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
    """Return the handler of one operator, a Decline, or None.

    None means that the pack does not claim the operator. ``opset``: the requested opset, otherwise the highest that the
    target supports.
    """


@hookspec
def configure(options: Mapping[str, Any]) -> None:
    """Receive the conversion's options, once per plugin."""


@hookspec
def after_lowering(op: Operator, outputs: tuple[ir.Value | None, ...]) -> None:
    """Observe the values that one operator was lowered to.

    ``outputs``: one value per TFLite output, in order. The hook must not change the values.
    """


@hookspec
def rename(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Mapping[str, str] | None:
    """Return {old name: new name} for graph inputs and outputs, or None for no change.

    ``--rename`` takes precedence.
    """


@hookspec
def finish(model: ir.Model) -> None:
    """Change the finished model in place, before it is checked.

    Its inputs and outputs must not change.
    """
