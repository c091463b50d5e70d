"""Declines of select operators without a handler (lite/delegates/flex); they name the operator."""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "CUSTOM.Flex"


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(PREFIX):
        return None
    return Decline(
        f"there is no handler for TensorFlow's {op.code.removeprefix(PREFIX)}, which LiteRT runs through TensorFlow (a select operator)",
        "export the model with TFLITE_BUILTINS only; or write an op pack: onnx-tflite new-pack DIR --op CUSTOM.FlexNAME; or convert "
        "the operators after it with --inputs-at OUTPUT, or those before it with --outputs INPUT",
    )
