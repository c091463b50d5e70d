"""Declines of select operators without a handler (lite/delegates/flex); they name the operator."""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "CUSTOM.Flex"


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(PREFIX):
        return None
    return Decline(
        f"the operator is TensorFlow's {op.code.removeprefix(PREFIX)}, which LiteRT runs through TensorFlow (a select operator)",
        "export the model with TFLITE_BUILTINS only, or convert it with an op pack: onnx-tflite new-pack; or convert the part of "
        "the model without it: --inputs-at TENSOR or --outputs TENSOR",
    )
