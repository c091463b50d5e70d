"""API for op packs. Importing this module loads neither onnx nor tflite.

A pack imports from this module, and for its cases and tests from ``conformance``. Tests may also call
``onnx_tflite_plugin.convert``. Everything else is private.

``VERSION`` is the version of the API and of the distribution. A pack requires it as ``onnx-tflite-plugin~=VERSION``. A
converter whose version does not satisfy this requirement skips the pack.
"""

from typing import Any

from onnx_tflite_plugin.api.activations import (
    ActivationKernel,
    FusedActivation,
    activation_bounds,
    effective_activation,
)
from onnx_tflite_plugin.api.axes import (
    axis_names,
    constant_axes,
    format_axes,
    permutation_axes,
    reduction_axes,
    reshape_axes,
    reshape_axes_of,
)
from onnx_tflite_plugin.api.behavior import Arithmetic, Behavior, QuantizedOperator
from onnx_tflite_plugin.api.budget import spend_budget
from onnx_tflite_plugin.api.builtins import builtin, builtin_target
from onnx_tflite_plugin.api.context import Context, Resource, State
from onnx_tflite_plugin.api.declarations import (
    Decline,
    Effects,
    Handler,
    Instance,
    Kernel,
    ListContents,
    Replacement,
    WidenedConstant,
    handler,
    out,
)
from onnx_tflite_plugin.api.fourier import (
    can_emit_rfft,
    emit_irfft,
    emit_projected_rfft,
    emit_rfft,
    is_projected_rfft_faster,
)
from onnx_tflite_plugin.api.hooks import hookimpl
from onnx_tflite_plugin.api.layouts import (
    Attribute,
    AxisPrice,
    Implicit,
    Layout,
    SubgraphBoundary,
    Terminate,
    Transparent,
)
from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.api.padding import Padding, conv_pads, conv_transpose_pads, padding_attributes
from onnx_tflite_plugin.api.patterns import Call, Check, Fusion, Match, Operand, Output, Region, fusion, operands
from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.quantization import (
    Dequantized,
    FixedOutputRange,
    Integer,
    Lookup,
    NotQuantizable,
    Raw,
    SameScale,
)
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.rewriting import Rewriter
from onnx_tflite_plugin.api.roles import named
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.api.values import Graph, Value, ValueLike
from onnx_tflite_plugin.renamed import EXPORTS, warn_renamed
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
    "Arithmetic",
    "Array",
    "Attribute",
    "AxisPrice",
    "Behavior",
    "BlockwiseQuantization",
    "Call",
    "Check",
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
    "ListContents",
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
    "Refusal",
    "Region",
    "Replacement",
    "Resource",
    "Rewriter",
    "SameScale",
    "State",
    "Subgraph",
    "SubgraphBoundary",
    "Target",
    "Tensor",
    "Terminate",
    "Transparent",
    "Value",
    "ValueLike",
    "WidenedConstant",
    "activation_bounds",
    "axis_names",
    "builtin",
    "builtin_target",
    "can_emit_rfft",
    "constant_axes",
    "conv_pads",
    "conv_transpose_pads",
    "effective_activation",
    "emit_irfft",
    "emit_projected_rfft",
    "emit_rfft",
    "format_axes",
    "fusion",
    "handler",
    "hookimpl",
    "is_projected_rfft_faster",
    "named",
    "operands",
    "out",
    "padding_attributes",
    "permutation_axes",
    "reduction_axes",
    "reshape_axes",
    "reshape_axes_of",
    "spend_budget",
]


def __getattr__(name: str) -> Any:
    """Return the replacement of a renamed export, with a DeprecationWarning.

    Raises AttributeError for any other name.
    """
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.{name}", EXPORTS[name])
    return globals()[EXPORTS[name]]
