"""Declines of select operators without a handler (lite/delegates/flex)."""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "CUSTOM.Flex"


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(PREFIX):
        return None
    return Decline(
        f"TensorFlow's {op.code.removeprefix(PREFIX)} has no handler; LiteRT runs it through TensorFlow (a select operator)"
    )
