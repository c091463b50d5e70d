"""All that the author of an op pack imports. Neither onnx nor tflite is loaded by it."""

from onnx_tflite_plugin.api.axes import permuted_by, reduced_by, reshape_axes, reshaped, spelled
from onnx_tflite_plugin.api.context import Context, Resource, State, Value
from onnx_tflite_plugin.api.declarations import (
    Along,
    Attribute,
    Decline,
    Dequantized,
    Effects,
    FixedOutputRange,
    Handler,
    Implicit,
    Integer,
    NotQuantizable,
    Raw,
    SameScale,
    Terminate,
    Transparent,
    handler,
    out,
)
from onnx_tflite_plugin.api.padding import conv_pads, transposed_pads
from onnx_tflite_plugin.api.patterns import Call, Fusion, Match, Operand, fusion, operands
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.hookspecs import hookimpl
from onnx_tflite_plugin.source.model import Array, Operator, Options, Quantization, Tensor

__all__ = [
    "Along",
    "Array",
    "Attribute",
    "Call",
    "Context",
    "Decline",
    "Dequantized",
    "Effects",
    "FixedOutputRange",
    "Fusion",
    "Handler",
    "Implicit",
    "Integer",
    "Match",
    "NotQuantizable",
    "Operand",
    "Operator",
    "Options",
    "Quantization",
    "Raw",
    "Refused",
    "Resource",
    "SameScale",
    "State",
    "Tensor",
    "Terminate",
    "Transparent",
    "Value",
    "conv_pads",
    "fusion",
    "handler",
    "hookimpl",
    "operands",
    "out",
    "permuted_by",
    "reduced_by",
    "reshape_axes",
    "reshaped",
    "spelled",
    "transposed_pads",
]
