"""Parts of a TFLite file as files of their own, which LiteRT runs."""

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

_LARGEST = 2_000_000_000  # bytes of constants; a FlatBuffer's limit is 2 GiB
_TABLES = 1 << 20  # bytes beside the constants, at first
_CALLED = re.compile("subgraph", re.IGNORECASE)
"""Fields of an operator's options that name subgraphs: branches, a loop's body, a comparison, a decomposition."""


def cut_file(data: bytes, subgraph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return the model whose ``subgraph`` only computes tensors ``outputs`` from tensors ``inputs``, by index.

    It becomes subgraph 0 of the new file. Unused content and signatures are left out.
    """
    return SubmodelWriter(data, subgraph).between(inputs, outputs)


class SubmodelWriter:
    """Writes parts of one subgraph of a file; the file is unpacked once, if needed. Raises InvalidModel if that fails."""

    def __init__(self, data: bytes, subgraph: Subgraph) -> None:
        self._schema = import_optional("ai_edge_litert.schema_py_generated")
        self._data, self._subgraph = data, subgraph

    @cached_property
    def _model(self) -> Any:
        try:
            return self._schema.ModelT.InitFromPackedBuf(self._data)
        except (struct.error, ValueError, TypeError) as error:  # reads offsets that nothing else reads
            raise InvalidModel("no submodel can be cut out of the file: an offset is invalid") from error

    def between(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the same as :func:`cut_file`. Raises InvalidModel for a part of more than 2 GB."""
        tensors = self._subgraph.tensors
        operators = operators_between(self._subgraph, [tensors[k] for k in inputs], [tensors[k] for k in outputs])
        return self.write([*operators], inputs, outputs)

    def write(
        self,
        operators: Sequence[Operator],
        inputs: Sequence[int],
        outputs: Sequence[int],
        given: Sequence[int] = (),
        *,
        floats: bool = False,
    ) -> bytes:
        """Return the file of these operators. Unused tensors keep their index, but have no content.

        ``given``: tensors that the operators read from further inputs, even if one of them computes the tensor. ``floats``:
        weights of dynamic-range operators are dequantized, so that the float kernels run. Raises InvalidModel beyond 2 GB.
        """
        model, index = copy(self._model), self._subgraph.index
        part = copy(model.subgraphs[index])
        part.operators = [copy(part.operators[operator.index]) for operator in operators]
        copies = {tensor: len(part.tensors) + k for k, tensor in enumerate(given)}
        part.tensors = [*part.tensors, *(_copy_of(part.tensors[tensor]) for tensor in given)]
        for operator in part.operators:
            if operator.inputs is not None:
                operator.inputs = [copies.get(int(tensor), int(tensor)) for tensor in operator.inputs]
        part.inputs, part.outputs = [*inputs, *copies.values()], list(outputs)
        called = _called_subgraphs(model.subgraphs, part)
        subgraphs = [_copy_graph(one) if k in called else self._nothing() for k, one in enumerate(model.subgraphs)]
        subgraphs[index], subgraphs[0] = subgraphs[0], part
        model.subgraphs, model.signatureDefs = subgraphs, []
        used = _slots(part)
        part.tensors = [tensor if k in used else self._schema.TensorT() for k, tensor in enumerate(part.tensors)]
        buffers, empty = _buffers(model), self._schema.BufferT()
        model.buffers = [self._content(buffer) if k in buffers else empty for k, buffer in enumerate(model.buffers)]
        if floats:
            dequantize_weights(self._schema, model)
        return _pack(model)

    def structure(self, inputs: Sequence[int], outputs: Sequence[int], given: Sequence[int]) -> Model:
        """Return the tensors of the file that ``write`` returns for the same arguments, without its operators."""
        tensors = self._subgraph.tensors
        copies = [replace(tensors[index], index=len(tensors) + k, is_variable=False) for k, index in enumerate(given)]
        entering = (*(tensors[index] for index in inputs), *copies)
        returned = tuple(tensors[index] for index in outputs)
        return Model((Subgraph(0, "", (*tensors, *copies), entering, returned, ()),), (), size=0)

    def _nothing(self) -> Any:
        """Return a subgraph that computes nothing, in place of one that no operator calls."""
        graph = self._schema.SubGraphT()
        graph.tensors, graph.inputs, graph.outputs, graph.operators = [], [], [], []
        return graph

    def _content(self, buffer: Any) -> Any:
        """Return the buffer with content that a file of more than 2 GB stores after the FlatBuffer."""
        if buffer.data is not None or buffer.offset <= 1:
            return buffer
        inside = self._schema.BufferT()
        inside.data = np.frombuffer(self._data, np.uint8, buffer.size, buffer.offset)
        return inside


def _pack(model: Any) -> bytes:
    import flatbuffers

    size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    if size > _LARGEST:
        raise InvalidModel("the submodel holds more than 2 GB, the limit of a FlatBuffer")
    builder = flatbuffers.Builder(size + _TABLES)  # which copies everything as often as it must grow
    try:
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    except (struct.error, flatbuffers.builder.BuilderSizeError) as error:
        raise InvalidModel("the submodel would have more than 2 GB, the limit of a FlatBuffer") from error
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _copy_graph(graph: Any) -> Any:
    """Return a copy whose operators may get other inputs."""
    copied = copy(graph)
    copied.operators = [copy(operator) for operator in graph.operators or ()]
    return copied


def _copy_of(tensor: Any) -> Any:
    """Return a tensor of the same type that nothing computes."""
    given = copy(tensor)
    given.buffer, given.isVariable = 0, False
    return given


def _called_subgraphs(subgraphs: Sequence[Any], part: Any) -> Collection[int]:
    """Return the indices of the subgraphs that operators of ``part`` call, directly or through others."""
    called: set[int] = set()
    waiting = [part]
    while waiting:
        for operator in waiting.pop().operators or ():
            for index in _callees(operator):
                if index not in called and 0 <= index < len(subgraphs):
                    called.add(index)
                    waiting.append(subgraphs[index])
    return called


def _callees(operator: Any) -> Iterator[int]:
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name, value in vars(options).items() if options is not None else ():
            if _CALLED.search(name) and value is not None:
                yield from (int(index) for index in np.atleast_1d(value))


def _slots(graph: Any) -> Collection[int]:
    """Return the tensors that an operator or a subgraph boundary names, and those that hold their scales."""
    lists = [graph.inputs, graph.outputs]
    for operator in graph.operators or ():
        lists += [operator.inputs, operator.outputs, operator.intermediates]
    slots = {int(k) for listed in lists if listed is not None for k in listed if k >= 0}
    return slots | {scales for k in slots for scales in _scales(graph.tensors[k])}


def _buffers(model: Any) -> Collection[int]:
    """Return the buffers of metadata and of the tensors that ``_slots`` returns."""
    used = {entry.buffer for entry in model.metadata or ()}
    for subgraph in model.subgraphs:
        used |= {subgraph.tensors[k].buffer for k in _slots(subgraph)}
    return used


def _scales(tensor: Any) -> list[int]:
    """Return the tensors of scales and zero points of a blockwise quantized tensor; index 0 means no zero points."""
    details = None if tensor.quantization is None else tensor.quantization.details
    if details is None or not hasattr(details, "scales"):
        return []
    return [details.scales, *([details.zeroPoints] if details.zeroPoints > 0 else [])]
