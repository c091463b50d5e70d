"""Extraction of a submodel from a TFLite file, for comparison with the ONNX model of the same operators."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from copy import copy
from typing import Any

import numpy as np

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.normalize.cutting import operators_between
from onnx_tflite_plugin.source.model import Subgraph
from onnx_tflite_plugin.verify.runtimes.packages import optional

_LARGEST = 2_000_000_000  # bytes of constants; a FlatBuffer's limit is 2 GiB


def cut_file(data: bytes, subgraph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return the model whose ``subgraph`` only computes tensors ``outputs`` from tensors ``inputs``, by index.

    It becomes subgraph 0 of the new file. Unused content and signatures are left out.
    """
    return Cutter(data, subgraph).part(inputs, outputs)


class Cutter:
    """Extracts submodels from one file, which is unpacked once."""

    def __init__(self, data: bytes, subgraph: Subgraph) -> None:
        self._schema = optional("ai_edge_litert.schema_py_generated")
        try:
            self._model = self._schema.ModelT.InitFromPackedBuf(data)
        except (struct.error, ValueError, TypeError) as error:  # reads offsets that nothing else reads
            raise InvalidModel("no submodel can be cut out of the file: an offset is invalid") from error
        self._data, self._subgraph = data, subgraph

    def part(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the same as :func:`cut_file`; an unused tensor or buffer keeps its index but has no content.

        Raises InvalidModel for a part of more than 2 GB.
        """
        import flatbuffers

        tensors, index = self._subgraph.tensors, self._subgraph.index
        operators = operators_between(self._subgraph, [tensors[k] for k in inputs], [tensors[k] for k in outputs])
        model, part = copy(self._model), copy(self._model.subgraphs[index])
        part.inputs, part.outputs = list(inputs), list(outputs)
        part.operators = [part.operators[operator.index] for operator in operators]
        model.subgraphs = list(model.subgraphs)
        model.subgraphs[index], model.subgraphs[0] = model.subgraphs[0], part
        model.signatureDefs = []
        nothing = self._schema.TensorT()
        used = _slots(part)
        part.tensors = [tensor if k in used else nothing for k, tensor in enumerate(part.tensors)]
        empty = self._schema.BufferT()
        buffers = _buffers(model)
        model.buffers = [self._inside(buffer) if k in buffers else empty for k, buffer in enumerate(model.buffers)]
        if sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None) > _LARGEST:
            raise InvalidModel("the submodel holds more than 2 GB, the limit of a FlatBuffer")
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _inside(self, buffer: Any) -> Any:
        """Return the buffer with content that a file of more than 2 GB stores after the FlatBuffer."""
        if buffer.data is not None or buffer.offset <= 1:
            return buffer
        inside = self._schema.BufferT()
        inside.data = np.frombuffer(self._data, np.uint8, buffer.size, buffer.offset)
        return inside


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
