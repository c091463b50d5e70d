"""The TFLite file whose operators read given tensors: one interpreter runs all of them on any operands."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.model import Array, Subgraph
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.packages import optional
from onnx_tflite_plugin.verify.submodels.weights import dequantize_weights

_TABLES = 1 << 20  # bytes beside the buffers, at first


class Expanded:
    """LiteRT on the operators of a subgraph, each between tensors that are ``cut`` or computed by its neighbors.

    ``results``: the tensors that are returned. ``floats``: weights of dynamic-range operators are dequantized, so that
    the float kernels run. Raises LiteRTError, or InvalidModel if the file cannot be rewritten.
    """

    def __init__(
        self,
        trial: Trial,
        cut: Collection[int],
        results: Sequence[int],
        kernels: str = "builtin",
        *,
        floats: bool = False,
    ) -> None:
        self.cut, self.results = sorted(cut), list(results)
        data = expand(
            trial.data, trial.entry.subgraph, [t.index for t in trial.entry.inputs], self.cut, results, floats=floats
        )
        self.session = LiteRT(data, kernels)

    def run(self, inputs: Run, operands: Mapping[int, Array]) -> dict[int, Array]:
        """Return the results by tensor index. Raises LiteRTError."""
        returned = self.session.run([*inputs, *(operands[index] for index in self.cut)])
        return dict(zip(self.results, returned, strict=True))


def expand(
    data: bytes,
    subgraph: Subgraph,
    inputs: Sequence[int],
    cut: Sequence[int],
    results: Sequence[int],
    *,
    floats: bool = False,
) -> bytes:
    """Return a file whose first subgraph takes ``inputs`` and a copy of each ``cut`` tensor, and returns ``results``.

    Raises InvalidModel.
    """
    schema = optional("ai_edge_litert.schema_py_generated")
    try:
        model = schema.ModelT.InitFromPackedBuf(data)
    except (struct.error, ValueError, TypeError) as error:
        raise InvalidModel("the file cannot be expanded: an offset is invalid") from error
    for buffer in model.buffers:
        if buffer.data is None and buffer.offset > 1:
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    if floats:
        dequantize_weights(schema, model, subgraph.index)
    graph = model.subgraphs[subgraph.index]
    copies = {index: len(graph.tensors) + k for k, index in enumerate(cut)}
    graph.tensors = [*graph.tensors, *(_copy_of(graph.tensors[index]) for index in cut)]
    for operator in graph.operators:
        if operator.inputs is not None:
            operator.inputs = [copies.get(int(index), int(index)) for index in operator.inputs]
    graph.inputs, graph.outputs = [*inputs, *copies.values()], list(results)
    subgraphs = list(model.subgraphs)
    subgraphs[0], subgraphs[subgraph.index] = subgraphs[subgraph.index], subgraphs[0]
    model.subgraphs, model.signatureDefs = subgraphs, []
    return _pack(model)


def _pack(model: Any) -> bytes:
    """Return the file's content; the buffers of ``model`` are dropped, as there may be gigabytes of them."""
    import flatbuffers

    size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    builder = flatbuffers.Builder(size + _TABLES)  # which copies everything as often as it must grow
    try:
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    except (struct.error, flatbuffers.builder.BuilderSizeError) as error:
        raise InvalidModel("the expanded file would have more than 2 GB") from error
    model.buffers = []
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _copy_of(tensor: Any) -> Any:
    """Return a tensor of the same type that nothing computes."""
    given = copy(tensor)
    given.buffer, given.isVariable = 0, False
    return given
