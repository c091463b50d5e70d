"""What a runtime wants of a model: data that planners and handlers read, never a name they compare."""

from __future__ import annotations

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.targets.generic import GENERIC
from onnx_tflite_plugin.targets.onnxruntime import ONNXRUNTIME
from onnx_tflite_plugin.targets.openvino import OPENVINO
from onnx_tflite_plugin.targets.tensorrt import TENSORRT
from onnx_tflite_plugin.targets.tvm import TVM

TARGETS = {target.name: target for target in (ONNXRUNTIME, GENERIC, OPENVINO, TVM, TENSORRT)}

PRICED = frozenset(key for target in TARGETS.values() for key in target.prices)
"""What operators may say they run along an axis of."""


def target_named(name: str) -> Target:
    """The target of that name. Raises UnsupportedOption naming those that exist."""
    if name not in TARGETS:
        raise UnsupportedOption(f"there is no target {name!r}; choose one of {', '.join(TARGETS)}")
    return TARGETS[name]


__all__ = ["PRICED", "TARGETS", "Target", "target_named"]
