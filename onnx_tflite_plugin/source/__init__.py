"""Reading of TFLite files: ``read`` and the immutable objects that it returns."""

from onnx_tflite_plugin.source.content import Member, Section
from onnx_tflite_plugin.source.model import (
    BlockwiseQuantization,
    Data,
    Model,
    MultiAxisQuantization,
    Operator,
    Options,
    Quantization,
    Signature,
    Subgraph,
    Tensor,
)
from onnx_tflite_plugin.source.opening import Source, read_bytes, resolve_source
from onnx_tflite_plugin.source.reader import check_format, check_source, read

__all__ = [
    "BlockwiseQuantization",
    "Data",
    "Member",
    "Model",
    "MultiAxisQuantization",
    "Operator",
    "Options",
    "Quantization",
    "Section",
    "Signature",
    "Source",
    "Subgraph",
    "Tensor",
    "check_format",
    "check_source",
    "read",
    "read_bytes",
    "resolve_source",
]
