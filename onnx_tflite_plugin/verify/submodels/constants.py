"""Comparison of weights: what the ONNX model dequantizes must be what the TFLite file stores.

A weight that is off by a few steps may move no result by half a step. Weights are re-encoded (uint8 for int8, channels padded
with zeros, axes permuted), so the values are compared without their order: that is up to the submodels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.extraction import empty_copy
from onnx_tflite_plugin.graph.metadata import converted_operators, props
from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, Stored

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_LIKE = 0.75  # of the values that two arrays share if one is the other with a fault
_FEW = 8  # values below which that says nothing
_DTYPES = ("int8", "uint8")


def compare_constants(entry: Entry, session: OnnxRuntime) -> Iterator[tuple[Operator, Comparison]]:
    """Yield a comparison for each weight that has a counterpart in the ONNX model with another value here and there.

    Raises OrtError if the constants cannot be computed.
    """
    stored = {
        op.index: [(t, values) for t in op.inputs if t is not None and (values := _dequantize(t)) is not None]
        for op in entry.subgraph.operators
    }
    if not any(stored.values()):
        return
    held = _computed_constants(session)
    for op in entry.subgraph.operators:
        for tensor, values in stored[op.index]:
            arrays = held.get(op.index, ())
            whole = [array for array in arrays if array.size == np.prod(tensor.shape)]
            if len(whole) == 1:  # neither padded nor split, so that zeros count, too
                best = _overlap(values, whole[0])
            else:
                best = max((_overlap(_nonzero(values), _nonzero(array)) for array in arrays), default=0.0)
            if _LIKE <= best < 1:
                wrong = f"{1 - best:.1%} of the weights differ from the file"
                yield op, Comparison(f"{tensor.name} of {op.code}", "value", float("inf"), 1 - best, 0.0, problem=wrong)


def _dequantize(tensor: Tensor) -> Array | None:
    """Return the values of a quantized constant; None for other tensors, and for few values."""
    quantization = tensor.quantization
    if not isinstance(tensor.data, Stored) or tensor.dtype not in _DTYPES or not isinstance(quantization, Quantization):
        return None
    integers = tensor.data.numbers(tensor.dtype)
    if integers.size != np.prod(tensor.shape) or integers.size < _FEW:
        return None
    along = [1] * tensor.rank
    if len(quantization.scale) > 1:
        along[quantization.axis] = len(quantization.scale)
    scale = np.asarray(quantization.scale, np.float32).reshape(along)
    points = np.asarray(quantization.zero_point, np.int32).reshape(along if len(quantization.zero_point) > 1 else ())
    return np.asarray((integers.reshape(tensor.shape).astype(np.int32) - points) * scale, np.float32).reshape(-1)


def _nonzero(values: Array) -> Array:
    return np.asarray(values[values != 0])


def _overlap(values: Array, others: Array) -> float:
    """Return the share of values that both arrays have, as often as they have them; 0 for another number of values."""
    if values.size != others.size:  # as where values beyond int8 are split
        return 0.0
    known, inverse = np.unique(np.concatenate([values, others]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(known)) for part in np.split(inverse.reshape(-1), [values.size])]
    return float(np.minimum(*counts).sum()) / max(values.size, 1)


def _computed_constants(session: OnnxRuntime) -> Mapping[int, list[Array]]:
    """Return the float arrays that follow from constants alone and that one operator's nodes read, by operator."""
    graph = session.proto.graph
    fixed = {tensor.name for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    readers: dict[str, set[int]] = {}
    for node in graph.node:
        reads = [*_reads(node)]
        if reads and fixed.issuperset(reads):
            nodes.append(node)
            fixed |= {*node.output}
            continue
        operators = converted_operators(props(node.metadata_props))
        if len(operators) == 1:
            for name in reads:
                readers.setdefault(name, set()).add(operators[0])
    made = {name for node in nodes for name in node.output}
    wanted = [name for name in readers if name in made]
    if not wanted:
        return {}
    results = OnnxRuntime(_part(session.proto, nodes, wanted), folder=session.folder, optimizes=False).run([])
    held: dict[int, list[Array]] = {}
    for name, array in zip(wanted, results, strict=True):
        if array.dtype == np.float32:
            for operator in readers[name]:
                held.setdefault(operator, []).append(array.reshape(-1))
    return held


def _part(proto: ModelProto, nodes: list[NodeProto], outputs: list[str]) -> ModelProto:
    """Return the model of these nodes, which take constants alone."""
    read = {name for node in nodes for name in _reads(node)}
    part = empty_copy(proto)
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(tensor for tensor in proto.graph.initializer if tensor.name in read)
    for name in outputs:
        part.graph.output.add().name = name
    return part


def _reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node and its bodies take from the graph around it."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from _captures(attribute.g)


def _captures(graph: GraphProto) -> Iterator[str]:
    inner = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    inner |= {name for node in graph.node for name in node.output}
    reads = [name for node in graph.node for name in _reads(node)] + [info.name for info in graph.output]
    yield from (name for name in reads if name not in inner)
