"""Comparison of dequantized weights between the ONNX model and the TFLite file.

A weight that is off by a few steps may change every result by less than half a step, so submodels do not detect it. The
ONNX model may store weights in another form (uint8 for int8, channels padded with zeros, axes permuted). Values are
therefore compared without their order; submodels check the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.extraction import empty_copy, operand_names
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, StoredConstant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_MIN_OVERLAP = 0.75  # an array with at least this fraction of a weight's values is a copy, though a wrong one
_MIN_VALUES = 8  # for a meaningful overlap
_DTYPES = ("int8", "uint8")


def compare_constants(entry: Entry, session: OnnxRuntime) -> Iterator[tuple[Operator, Comparison]]:
    """Yield a comparison for each weight with values that differ in the ONNX model.

    Raises OrtError if ONNX Runtime cannot compute the constants.
    """
    weights = {
        op.index: [(t, values) for t in op.inputs if t is not None and (values := _dequantize(t)) is not None]
        for op in entry.subgraph.operators
    }
    if not any(weights.values()):
        return
    computed_arrays = _computed_constants(session)
    for op in entry.subgraph.operators:
        for tensor, values in weights[op.index]:
            arrays = computed_arrays.get(op.index, ())
            arrays_of_size = [array for array in arrays if array.size == np.prod(tensor.shape)]
            if len(arrays_of_size) == 1:  # neither padded nor split, so zeros can be compared too
                overlap = _overlap(values, arrays_of_size[0])
            else:
                overlap = max((_overlap(_nonzero(values), _nonzero(array)) for array in arrays), default=0.0)
            if _MIN_OVERLAP <= overlap < 1:
                problem = f"{1 - overlap:.1%} of the weights differ from the file"
                name = f"{tensor.name} of {op.code}"
                yield op, Comparison(name, "value", float("inf"), 1 - overlap, 0.0, problem=problem)


def _dequantize(tensor: Tensor) -> Array | None:
    """Return the dequantized values of a constant; None for others, or too few values."""
    quantization = tensor.quantization
    if (
        not isinstance(tensor.data, StoredConstant)
        or tensor.dtype not in _DTYPES
        or not isinstance(quantization, Quantization)
    ):
        return None
    integers = tensor.data.numbers(tensor.dtype)
    if integers.size != np.prod(tensor.shape) or integers.size < _MIN_VALUES:
        return None
    scale_shape = [1] * tensor.rank
    if len(quantization.scale) > 1:
        scale_shape[quantization.axis] = len(quantization.scale)
    scale = np.asarray(quantization.scale, np.float32).reshape(scale_shape)
    zero_points = np.asarray(quantization.zero_point, np.int32).reshape(
        scale_shape if len(quantization.zero_point) > 1 else ()
    )
    return np.asarray((integers.reshape(tensor.shape).astype(np.int32) - zero_points) * scale, np.float32).reshape(-1)


def _nonzero(values: Array) -> Array:
    return np.asarray(values[values != 0])


def _overlap(values: Array, other_values: Array) -> float:
    """Return the fraction of common values of two arrays; 0 for different sizes."""
    if values.size != other_values.size:  # for example because values beyond int8 are split
        return 0.0
    distinct_values, inverse = np.unique(np.concatenate([values, other_values]), return_inverse=True)
    counts = [
        np.bincount(bins, minlength=len(distinct_values)) for bins in np.split(inverse.reshape(-1), [values.size])
    ]
    return float(np.minimum(*counts).sum()) / max(values.size, 1)


def _computed_constants(session: OnnxRuntime) -> Mapping[int, list[Array]]:
    """Return the flattened float arrays that nodes compute from constants.

    Keys: indices of the TFLite operators whose nodes read the arrays.
    """
    graph = session.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    constant_nodes: list[NodeProto] = []
    readers: dict[str, set[int]] = {}
    for node in graph.node:
        operands = [*operand_names(node)]
        if operands and constants.issuperset(operands):
            constant_nodes.append(node)
            constants |= {*node.output}
            continue
        operators = top_level_operators(props(node.metadata_props))
        if len(operators) == 1:
            for name in operands:
                readers.setdefault(name, set()).add(operators[0])
    computed_names = {name for node in constant_nodes for name in node.output}
    names = [name for name in readers if name in computed_names]
    if not names:
        return {}
    submodel = _constant_submodel(session.proto, constant_nodes, names)
    results = OnnxRuntime(submodel, folder=session.folder, optimizes=False).run([])
    by_operator: dict[int, list[Array]] = {}
    for name, array in zip(names, results, strict=True):
        if array.dtype == np.float32:
            for operator in readers[name]:
                by_operator.setdefault(operator, []).append(array.reshape(-1))
    return by_operator


def _constant_submodel(proto: ModelProto, nodes: list[NodeProto], outputs: list[str]) -> ModelProto:
    """Return the model of these nodes, which depend only on constants."""
    operands = {name for node in nodes for name in operand_names(node)}
    submodel = empty_copy(proto)
    submodel.graph.node.extend(nodes)
    submodel.graph.initializer.extend(tensor for tensor in proto.graph.initializer if tensor.name in operands)
    for name in outputs:
        submodel.graph.output.add().name = name
    return submodel
