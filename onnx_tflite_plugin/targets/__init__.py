"""Built-in targets: the traits of each runtime, as data.

Planners and handlers read traits and never compare names of targets.
"""

from __future__ import annotations

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.targets.generic import GENERIC
from onnx_tflite_plugin.targets.onnxruntime import ONNXRUNTIME
from onnx_tflite_plugin.targets.openvino import OPENVINO
from onnx_tflite_plugin.targets.portable import PORTABLE
from onnx_tflite_plugin.targets.qnn import QNN
from onnx_tflite_plugin.targets.tensorrt import TENSORRT
from onnx_tflite_plugin.targets.tvm import TVM

TARGETS = {target.name: target for target in (ONNXRUNTIME, GENERIC, PORTABLE, OPENVINO, TVM, QNN, TENSORRT)}

PRICED = frozenset(key for target in TARGETS.values() for key in target.prices)
"""Operators with a price along an axis."""


def target_named(name: str) -> Target:
    """Return the target with a name. Raises UnsupportedOption with the existing names."""
    if name not in TARGETS:
        raise UnsupportedOption(f"there is no target {name!r}; choose one of {', '.join(TARGETS)}")
    return TARGETS[name]


__all__ = ["PRICED", "TARGETS", "Target", "target_named"]
