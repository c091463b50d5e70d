"""Times of TFLite operators in isolation: each runs as a model of its own, on the operands that it has in the whole model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError, start_litert
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.structure import external_operands, operands

_CALLS = 8  # sessions of the smallest model, whose median time is the cost of a call


def isolated_times(
    data: bytes, groups: Sequence[Sequence[Operator]], subgraph: Subgraph, tensors: Mapping[int, Array], rounds: int
) -> list[float | None]:
    """Return processor time per run of each group of operators, less the cost of a call; None if it does not run in isolation.

    ``tensors``: values of LiteRT's tensors by index. Groups run in turns: as in the whole model, weights and values are then no
    longer in the cache from the previous run of the same operator. The result is the median of ``rounds``.
    """
    alone = _IsolatedOperators(data, subgraph, tensors)
    calls = [_call() for _ in range(_CALLS)]
    runs = [alone.run(operators) for operators in groups]
    ready = [*calls, *(run for run in runs if run is not None)]
    seconds = np.zeros((rounds, len(ready)))
    for row in seconds:
        for k, run in enumerate(ready):
            start = time.process_time()
            run()
            row[k] = time.process_time() - start
    medians = np.median(seconds, axis=0)
    times = iter(np.maximum(medians[_CALLS:] - np.median(medians[:_CALLS]), 0).tolist())
    return [None if run is None else next(times) for run in runs]


class _IsolatedOperators:
    def __init__(self, data: bytes, subgraph: Subgraph, tensors: Mapping[int, Array]) -> None:
        self._subgraph, self._tensors = subgraph, tensors
        self._writer = SubmodelWriter(data, subgraph)
        self._ends = {tensor.index for tensor in subgraph.outputs}
        self._readers: dict[int, set[int]] = {}
        self._stored: dict[int, Operator] = {}
        for operator in subgraph.operators:
            computed = [tensor for tensor in operands(operator) if tensor.index not in self._stored]
            if not computed and operator.inputs:
                self._stored |= {tensor.index: operator for tensor in operator.outputs if tensor is not None}
            for tensor in operands(operator):
                self._readers.setdefault(tensor.index, set()).add(operator.index)

    def run(self, operators: Sequence[Operator]) -> Callable[[], object] | None:
        """Return a function that runs these operators, with XNNPACK or builtin kernels; None if neither supports them.

        Operators that compute their constant operands are included, because kernels prepare constant weights in advance.
        """
        inputs = [tensor for tensor in external_operands(operators) if tensor.index not in self._stored]
        outputs = self._read_outside(operators)
        if not inputs or not outputs or any(tensor.index not in self._tensors for tensor in inputs):
            return None
        part = self._writer.between([tensor.index for tensor in inputs], outputs)
        arrays = [self._tensors[tensor.index] for tensor in inputs]
        try:
            return _invocation(start_litert(part, arrays))
        except LiteRTError:
            return None

    def _read_outside(self, operators: Sequence[Operator]) -> list[int]:
        """Return the results of a group that other operators need, and outputs of the subgraph."""
        inside = {operator.index for operator in operators}
        results = (tensor.index for operator in operators for tensor in operator.outputs if tensor is not None)
        return [index for index in results if index in self._ends or self._readers.get(index, set()) - inside]


def _invocation(session: LiteRT) -> Callable[[], object]:
    invoke: Callable[[], object] = session.interpreter.invoke
    return invoke


def _call() -> Callable[[], object]:
    """Return an invocation of the smallest model. Raises LiteRTError."""
    session = LiteRT(smallest_model(), "builtin", isolated=False)
    session.run([np.zeros(1, np.float32)])
    return _invocation(session)


def smallest_model() -> bytes:
    """Return the smallest model, RELU of one float, which takes the time of a bare call."""
    import flatbuffers

    schema = import_optional("ai_edge_litert.schema_py_generated")
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    tensors = [schema.TensorT() for _ in range(2)]
    for tensor in tensors:
        tensor.shape = [1]
    relu = schema.OperatorT()
    relu.inputs, relu.outputs = [0], [1]
    graph = schema.SubGraphT()
    graph.tensors, graph.inputs, graph.outputs, graph.operators = tensors, [0], [1], [relu]
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
