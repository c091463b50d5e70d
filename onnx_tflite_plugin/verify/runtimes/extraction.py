"""Submodels of a TFLite file, written as TFLite files that LiteRT runs."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.normalize.cutting import operators_between
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.weights import dequantize_weights

_MAX_BYTES = 2_000_000_000  # of constants; the limit of a FlatBuffer is 2 GiB
_TABLE_BYTES = 1 << 20  # initial estimate of the bytes other than constants
_SUBGRAPH_FIELD = re.compile("subgraph", re.IGNORECASE)
"""Fields of an operator's options that name subgraphs: branches, a loop's body, a comparison, a decomposition."""


def cut_file(data: bytes, subgraph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return a TFLite file that computes tensors ``outputs`` from tensors ``inputs``.

    Tensors are indices in ``subgraph``. The subgraph becomes subgraph 0 of the new file. Unused content and signatures
    are left out. Raises InvalidModel beyond 2 GB.
    """
    return SubmodelWriter(data, subgraph).between(inputs, outputs)


class SubmodelWriter:
    """Writer of submodels of one subgraph of a file.

    Raises InvalidModel if the file cannot be unpacked.
    """

    def __init__(self, data: bytes, subgraph: Subgraph) -> None:
        self._schema = import_optional("ai_edge_litert.schema_py_generated")
        self._data, self._subgraph = data, subgraph

    @cached_property
    def _model(self) -> Any:
        try:
            return self._schema.ModelT.InitFromPackedBuf(self._data)
        except (struct.error, ValueError, TypeError) as error:  # unpacking reads offsets that were not checked before
            raise InvalidModel("no submodel can be cut out of the file: an offset is invalid") from error

    def between(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return a TFLite file that computes ``outputs`` from ``inputs``.

        See :func:`cut_file`.
        """
        tensors = self._subgraph.tensors
        operators = operators_between(self._subgraph, [tensors[k] for k in inputs], [tensors[k] for k in outputs])
        return self.write([*operators], inputs, outputs)

    def write(
        self,
        operators: Sequence[Operator],
        inputs: Sequence[int],
        outputs: Sequence[int],
        extra_inputs: Sequence[int] = (),
        *,
        floats: bool = False,
    ) -> bytes:
        """Return a TFLite file with these operators.

        Unused tensors keep their index, but have no content. ``extra_inputs``: tensors that the operators read from
        additional inputs, even if one of the operators computes the tensor. ``floats``: dequantize weights of
        dynamic-range operators, so that float kernels run. Raises InvalidModel beyond 2 GB.
        """
        model, index = copy(self._model), self._subgraph.index
        submodel = copy(model.subgraphs[index])
        submodel.operators = [copy(submodel.operators[operator.index]) for operator in operators]
        copy_indices = {tensor: len(submodel.tensors) + k for k, tensor in enumerate(extra_inputs)}
        submodel.tensors = [*submodel.tensors, *(_as_input(submodel.tensors[tensor]) for tensor in extra_inputs)]
        for operator in submodel.operators:
            if operator.inputs is not None:
                operator.inputs = [copy_indices.get(int(tensor), int(tensor)) for tensor in operator.inputs]
        submodel.inputs, submodel.outputs = [*inputs, *copy_indices.values()], list(outputs)
        callees = _called_subgraphs(model.subgraphs, submodel)
        subgraphs = [
            _copy_graph(subgraph) if k in callees else self._empty_subgraph()
            for k, subgraph in enumerate(model.subgraphs)
        ]
        subgraphs[index], subgraphs[0] = subgraphs[0], submodel
        model.subgraphs, model.signatureDefs = subgraphs, []
        used_tensors = _used_tensors(submodel)
        submodel.tensors = [
            tensor if k in used_tensors else self._schema.TensorT() for k, tensor in enumerate(submodel.tensors)
        ]
        buffers, empty = _used_buffers(model), self._schema.BufferT()
        model.buffers = [self._content(buffer) if k in buffers else empty for k, buffer in enumerate(model.buffers)]
        if floats:
            dequantize_weights(self._schema, model)
        return pack_model(model)

    def structure(self, inputs: Sequence[int], outputs: Sequence[int], extra_inputs: Sequence[int]) -> Model:
        """Return the structure, without operators, of the file that ``write`` returns."""
        tensors = self._subgraph.tensors
        copies = [
            replace(tensors[index], index=len(tensors) + k, is_variable=False) for k, index in enumerate(extra_inputs)
        ]
        inputs_and_copies = (*(tensors[index] for index in inputs), *copies)
        returned_tensors = tuple(tensors[index] for index in outputs)
        return Model((Subgraph(0, "", (*tensors, *copies), inputs_and_copies, returned_tensors, ()),), (), size=0)

    def _empty_subgraph(self) -> Any:
        """Return an empty subgraph, as a placeholder for an unused subgraph."""
        graph = self._schema.SubGraphT()
        graph.tensors, graph.inputs, graph.outputs, graph.operators = [], [], [], []
        return graph

    def _content(self, buffer: Any) -> Any:
        """Return the buffer with its content. Large files store it after the FlatBuffer."""
        if buffer.data is not None or buffer.offset <= 1:
            return buffer
        buffer_with_data = self._schema.BufferT()
        buffer_with_data.data = np.frombuffer(self._data, np.uint8, buffer.size, buffer.offset)
        return buffer_with_data


def pack_model(model: Any) -> bytes:
    """Return the model as a FlatBuffer. Raises InvalidModel beyond 2 GB."""
    import flatbuffers

    size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    if size > _MAX_BYTES:
        raise InvalidModel("the submodel holds more than 2 GB, the limit of a FlatBuffer")
    builder = flatbuffers.Builder(size + _TABLE_BYTES)  # copies everything whenever it grows
    try:
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    except (struct.error, flatbuffers.builder.BuilderSizeError) as error:
        raise InvalidModel("the submodel would have more than 2 GB, the limit of a FlatBuffer") from error
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _copy_graph(graph: Any) -> Any:
    """Return a copy with copied operators, so that their inputs may be changed."""
    graph_copy = copy(graph)
    graph_copy.operators = [copy(operator) for operator in graph.operators or ()]
    return graph_copy


def _as_input(tensor: Any) -> Any:
    """Return a copy of a tensor without content, for an additional input."""
    tensor_copy = copy(tensor)
    tensor_copy.buffer, tensor_copy.isVariable = 0, False
    return tensor_copy


def _called_subgraphs(subgraphs: Sequence[Any], caller: Any) -> Collection[int]:
    """Return the indices of the subgraphs that ``caller`` calls, even indirectly."""
    called: set[int] = set()
    pending = [caller]
    while pending:
        for operator in pending.pop().operators or ():
            for index in _callees(operator):
                if index not in called and 0 <= index < len(subgraphs):
                    called.add(index)
                    pending.append(subgraphs[index])
    return called


def _callees(operator: Any) -> Iterator[int]:
    """Yield the indices of the subgraphs that an operator calls."""
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name, value in vars(options).items() if options is not None else ():
            if _SUBGRAPH_FIELD.search(name) and value is not None:
                yield from (int(index) for index in np.atleast_1d(value))


def _used_tensors(graph: Any) -> Collection[int]:
    """Return the tensors of a subgraph: operands, results, and blockwise scales.

    The subgraph's inputs and outputs are included. Tensors are indices.
    """
    index_lists = [graph.inputs, graph.outputs]
    for operator in graph.operators or ():
        index_lists += [operator.inputs, operator.outputs, operator.intermediates]
    tensors = {int(k) for indices in index_lists if indices is not None for k in indices if k >= 0}
    return tensors | {scales for k in tensors for scales in _scale_tensors(graph.tensors[k])}


def _used_buffers(model: Any) -> Collection[int]:
    """Return the buffers of metadata and of the used tensors."""
    buffers = {entry.buffer for entry in model.metadata or ()}
    for subgraph in model.subgraphs:
        buffers |= {subgraph.tensors[k].buffer for k in _used_tensors(subgraph)}
    return buffers


def _scale_tensors(tensor: Any) -> list[int]:
    """Return the tensors of scales and zero points of a blockwise quantized tensor.

    Index 0 in the file means that there are no zero points.
    """
    details = None if tensor.quantization is None else tensor.quantization.details
    if details is None or not hasattr(details, "scales"):
        return []
    return [details.scales, *([details.zeroPoints] if details.zeroPoints > 0 else [])]
