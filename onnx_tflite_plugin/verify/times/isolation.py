"""Times of single TFLite operators, on the operands that they have in the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError, start_litert
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.structure import constant_producers, external_operands, operands

_OVERHEAD_SESSIONS = 8  # sessions of the smallest model, whose median time is the overhead of a call


def isolated_times(
    data: bytes, groups: Sequence[Sequence[Operator]], subgraph: Subgraph, tensors: Mapping[int, Array], rounds: int
) -> list[float | None]:
    """Return the processor time of each group of operators, in seconds per run.

    The time is None for a group that does not run in isolation. The overhead of a call is subtracted. ``tensors``:
    tensor index -> LiteRT's value. Groups run in turns, so that weights and values are evicted from the cache
    between two runs of a group, as in the whole model. The result is the median of ``rounds``.
    """
    isolated = _IsolatedOperators(data, subgraph, tensors)
    empty_runs = [_empty_run() for _ in range(_OVERHEAD_SESSIONS)]
    runs = [isolated.run_function(operators) for operators in groups]
    callables = [*empty_runs, *(run for run in runs if run is not None)]
    seconds = np.zeros((rounds, len(callables)))
    for round_seconds in seconds:
        for k, run in enumerate(callables):
            start = time.process_time()
            run()
            round_seconds[k] = time.process_time() - start
    medians = np.median(seconds, axis=0)
    times = iter(np.maximum(medians[_OVERHEAD_SESSIONS:] - np.median(medians[:_OVERHEAD_SESSIONS]), 0).tolist())
    return [None if run is None else next(times) for run in runs]


class _IsolatedOperators:
    """Sessions of groups of operators as separate models."""

    def __init__(self, data: bytes, subgraph: Subgraph, tensors: Mapping[int, Array]) -> None:
        self._subgraph, self._tensors = subgraph, tensors
        self._writer = SubmodelWriter(data, subgraph)
        self._outputs = {tensor.index for tensor in subgraph.outputs}
        self._readers: dict[int, set[int]] = {}
        self._computed_constants = constant_producers(subgraph.operators).keys()
        for operator in subgraph.operators:
            for tensor in operands(operator):
                self._readers.setdefault(tensor.index, set()).add(operator.index)

    def run_function(self, operators: Sequence[Operator]) -> Callable[[], object] | None:
        """Return a function that runs these operators, with XNNPACK or builtin kernels.

        Return None if neither set supports them. Operators that compute constant operands are included, because kernels
        prepare constant weights in advance.
        """
        inputs = [tensor for tensor in external_operands(operators) if tensor.index not in self._computed_constants]
        outputs = self._needed_results(operators)
        if not inputs or not outputs or any(tensor.index not in self._tensors for tensor in inputs):
            return None
        submodel = self._writer.between([tensor.index for tensor in inputs], outputs)
        arrays = [self._tensors[tensor.index] for tensor in inputs]
        try:
            return _invocation(start_litert(submodel, arrays))
        except LiteRTError:
            return None

    def _needed_results(self, operators: Sequence[Operator]) -> list[int]:
        """Return the results that other operators read, and outputs of the subgraph."""
        indices = {operator.index for operator in operators}
        results = (tensor.index for operator in operators for tensor in operator.outputs if tensor is not None)
        return [index for index in results if index in self._outputs or self._readers.get(index, set()) - indices]


def _invocation(session: LiteRT) -> Callable[[], object]:
    """Return LiteRT's own function for one run, without setting inputs."""
    invoke: Callable[[], object] = session.interpreter.invoke
    return invoke


def _empty_run() -> Callable[[], object]:
    """Return a function that runs the smallest model. Raises LiteRTError."""
    session = LiteRT(smallest_model(), "builtin", isolated=False)
    session.run([np.zeros(1, np.float32)])
    return _invocation(session)


def smallest_model() -> bytes:
    """Return a RELU of one float, the smallest model, to time the overhead of a call."""
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
