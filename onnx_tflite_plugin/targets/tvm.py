"""TVM's Relax, through its ONNX front end, as measured with version 0.27."""

from dataclasses import replace

from onnx_tflite_plugin.targets.base import INTEGERS
from onnx_tflite_plugin.targets.generic import GENERIC

_NARROW = frozenset({"int4", "uint4", "int2", "uint2"})

TVM = replace(
    GENERIC,
    name="tvm",
    opsets=(13, 19, 23),
    quantizes=INTEGERS - _NARROW,
    weights={"int4": ("int8", 0), "int2": ("int8", 0)},
)
