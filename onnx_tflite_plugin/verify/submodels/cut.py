"""The ONNX model cut at every value that holds a TFLite tensor: each is a graph output, and its readers take a graph input."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.metadata import TensorValue, belongs_to, props
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.distance import as_pairs
from onnx_tflite_plugin.verify.comparison.trial import Pairs, dtype_to_restore
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored, is_float
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, producers

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

_GIVEN = ":given"
_LEVEL = "accuracy_level"
"""Attribute of products by stored blocks; 1 is float32."""
_CONFIG = {"session.qdq_matmulnbits_accuracy_level": "1"}  # products of dequantized weights in float32, not int8


class CutModel:
    """An ONNX model whose submodels run on given operands.

    ``values``: those that are compared. ``given``: the graph input that replaces each cut value, by name. ``cut``: the
    tensors that are given, by index. States are carried from run to run as in the whole model.
    """

    def __init__(self, entry: Entry, session: OnnxRuntime, kept: Mapping[int, Array]) -> None:
        self.entry = entry
        self.producers = producers(entry.subgraph)
        self.pairs = Pairs(entry, session)
        graph = session.proto.graph
        infos = {info.name: info for info in (*graph.value_info, *graph.output)}
        self.floats = {name for name, info in infos.items() if is_float(info)}
        computed = {name for node in graph.node for name in node.output}
        self.values = [
            value
            for value in session.tensor_values
            if value.subgraph == entry.subgraph.index
            and value.name in computed
            and value.name in infos
            and value.tensor in kept
            and self._is_comparable(value, kept[value.tensor])
        ]
        lowered = {index for node in graph.node for index in belongs_to(props(node.metadata_props))}
        read = set(_read_names(graph))
        self.given = {
            value.name: value.name + _GIVEN
            for value in self.values
            if value.name in read and not self._is_alias(value, lowered)
        }
        self.cut = {value.tensor for value in self.values if value.name in self.given}
        self._fed = [value for value in self.values if value.name in self.given]
        self.session = OnnxRuntime(
            _cut_graph(session.proto, self.given),
            keep=[value.name for value in self.values],
            config=_CONFIG,
            folder=session.folder,
        )

    def _is_comparable(self, value: TensorValue, array: Array) -> bool:
        """True if a value holds what LiteRT's tensor holds: the quantized values, or floats in both models."""
        tensor = self.entry.subgraph.tensors[value.tensor] if value.tensor < len(self.entry.subgraph.tensors) else None
        if tensor is None or tensor.is_variable or tensor.index not in self.producers:
            return False
        if value.form != "stored" and tensor.quantization is not None:
            return False
        if tensor.dtype.startswith("float") and tensor.quantization is not None:  # LiteRT may compute integers
            return False
        return array.ndim == tensor.rank or (
            not tensor.has_rank and (value.order is None or array.ndim == len(value.order))
        )

    def _is_alias(self, value: TensorValue, lowered: Collection[int]) -> bool:
        """True if a tensor's operator has no nodes, where others have: its value is also that of its operand."""
        producer = self.producers.get(value.tensor)
        return producer is not None and bool(lowered) and producer.index not in lowered

    def reset(self) -> None:
        """Reset the states."""
        self.session.reset()

    def run(self, inputs: Sequence[Array], operands: Mapping[int, Array]) -> dict[str, Array]:
        """Return every compared value by name, as the file stores its tensor; those of another rank are left out.

        Raises OrtError.
        """
        tensors = self.entry.subgraph.tensors
        feeds = self.pairs.feeds(inputs)
        for value in self._fed:
            array = operands[value.tensor]
            fed = as_pairs(array) if array.dtype.kind == "c" else array
            fed = as_float(tensors[value.tensor], fed) if value.name in self.floats else fed
            feeds[self.given[value.name]] = value.apply(fed)
        self.session.run(feeds)
        returned = self.session.values()
        given = {s.input: feeds[self.given[s.output]] for s in self.session.states if s.output in self.given}
        self.session.carry(given)  # as LiteRT assigns what it is given
        results = {}
        for value in self.values:
            tensor, array = tensors[value.tensor], returned[value.name]
            restored = value.restore(array, dtype_to_restore(tensor, array))
            if restored is not None:
                results[value.name] = as_stored(tensor, np.asarray(restored))
        return results


def _read_names(graph: GraphProto) -> Iterator[str]:
    """Yield the names that nodes read, in bodies as well."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _read_names(attribute.g)
                yield from (info.name for info in attribute.g.output)


def _cut_graph(proto: ModelProto, given: Mapping[str, str]) -> ModelProto:
    """Return a copy in which nodes read a graph input, ``given``, instead of each of these values."""
    cut = type(proto)()
    cut.CopyFrom(proto)
    _rename_reads(cut.graph, given)
    for node in cut.graph.node:
        for attribute in node.attribute:
            if attribute.name == _LEVEL:
                attribute.i = 1
    infos = {info.name: info for info in (*cut.graph.value_info, *cut.graph.output)}
    for name, fed in given.items():
        info = cut.graph.input.add()
        info.CopyFrom(infos[name])
        info.name = fed
        del info.metadata_props[:]
    return cut


def _rename_reads(graph: GraphProto, given: Mapping[str, str]) -> None:
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name in given:
                node.input[k] = given[name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_reads(attribute.g, given)
                for info in attribute.g.output:  # a captured value that a body returns
                    info.name = given.get(info.name, info.name)
