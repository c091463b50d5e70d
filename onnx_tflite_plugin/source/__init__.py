"""Read TFLite files: ``read`` and the immutable objects it returns."""

from onnx_tflite_plugin.source.content import Section, Source, read_bytes
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
from onnx_tflite_plugin.source.reader import check_source, read

__all__ = [
    "BlockwiseQuantization",
    "Data",
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
    "check_source",
    "read",
    "read_bytes",
]
