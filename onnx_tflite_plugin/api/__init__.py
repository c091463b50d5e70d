"""API for op packs, and the only module that they import. It loads neither onnx nor tflite.

``VERSION`` is the version of the API and of the distribution. A pack that requires an incompatible version
(see CONTRIBUTING.md) is skipped.
"""

from onnx_tflite_plugin.api.activations import (
    ActivationKernel,
    FusedActivation,
    activation_bounds,
    applied_activation,
)
from onnx_tflite_plugin.api.axes import constant_axes, letters, permuted_by, reduced_by, reshape_axes, reshaped, spelled
from onnx_tflite_plugin.api.budget import spend
from onnx_tflite_plugin.api.builtins import builtin, builtin_target
from onnx_tflite_plugin.api.context import Context, Resource, State
from onnx_tflite_plugin.api.declarations import (
    Along,
    Attribute,
    Borders,
    Contents,
    Decline,
    Effects,
    Handler,
    Implicit,
    Instance,
    Kernel,
    Layout,
    Replacement,
    Terminate,
    Transparent,
    Widened,
    handler,
    out,
)
from onnx_tflite_plugin.api.hooks import hookimpl
from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.padding import Padding, conv_pads, padding_attributes, transposed_pads
from onnx_tflite_plugin.api.patterns import Call, Fusion, Match, Operand, Output, Region, Where, fusion, operands
from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.quantization import (
    Arithmetic,
    Behaviour,
    Dequantized,
    FixedOutputRange,
    Integer,
    Lookup,
    NotQuantizable,
    QuantizedOperator,
    Raw,
    SameScale,
)
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.rewriting import Rewriter
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Graph, Value, ValueLike
from onnx_tflite_plugin.source.model import (
    Array,
    BlockwiseQuantization,
    Dims,
    Operator,
    Options,
    Quantization,
    Subgraph,
    Tensor,
)

VERSION = "0.2.0"

__all__ = [
    "VERSION",
    "ActivationKernel",
    "Along",
    "Arithmetic",
    "Array",
    "Attribute",
    "Behaviour",
    "BlockwiseQuantization",
    "Borders",
    "Call",
    "Contents",
    "Context",
    "Decline",
    "Dequantized",
    "Dims",
    "Effects",
    "FixedOutputRange",
    "FusedActivation",
    "Fusion",
    "Graph",
    "Handler",
    "Implicit",
    "Instance",
    "Integer",
    "Kernel",
    "Layout",
    "Lookup",
    "Match",
    "NotQuantizable",
    "Operand",
    "Operator",
    "Ops",
    "Options",
    "Output",
    "Padding",
    "Price",
    "Quantization",
    "QuantizedOperator",
    "Raw",
    "Refused",
    "Region",
    "Replacement",
    "Resource",
    "Rewriter",
    "SameScale",
    "State",
    "Subgraph",
    "Target",
    "Tensor",
    "Terminate",
    "Transparent",
    "Value",
    "ValueLike",
    "Where",
    "Widened",
    "activation_bounds",
    "applied_activation",
    "builtin",
    "builtin_target",
    "constant_axes",
    "conv_pads",
    "fusion",
    "handler",
    "hookimpl",
    "letters",
    "operands",
    "out",
    "padding_attributes",
    "permuted_by",
    "reduced_by",
    "reshape_axes",
    "reshaped",
    "spelled",
    "spend",
    "transposed_pads",
]
