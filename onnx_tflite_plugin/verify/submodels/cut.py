"""The ONNX model cut at values that hold TFLite tensors: each is a graph output, and its readers take a graph input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.extraction import empty_copy
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.distance import as_pairs
from onnx_tflite_plugin.verify.comparison.trial import dtype_to_restore
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.submodels.points import CutPoints, read_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_BOOL = 9  # onnx.TensorProto.BOOL
_LEVEL = "accuracy_level"
"""Attribute of products by stored blocks; 1 is float32."""
_CONFIG = {"session.qdq_matmulnbits_accuracy_level": "1"}  # products of dequantized weights in float32, not int8


class CutModel:
    """The part of an ONNX model that computes ``values`` from given operands, or all of it.

    States are carried from run to run as in the whole model. ``elsewhere``: with the weights that it selects on processors
    whose 8-bit products saturate; these are exact everywhere. ``selects``: it selects weights by processor.
    """

    def __init__(
        self, points: CutPoints, values: Sequence[TensorValue] | None = None, *, elsewhere: bool = False
    ) -> None:
        self.points = points
        self.values = points.values if values is None else values
        proto = points.session.proto
        outputs = [value.name for value in self.values]
        if values is None:
            outputs = list(dict.fromkeys([*(info.name for info in proto.graph.output), *outputs]))
        part = _cut_graph(proto, points, outputs, whole=values is None)
        self.selects = any(PROBE in node.output for node in part.graph.node)
        if elsewhere:
            _fix_probe(part.graph)
        self.session = OnnxRuntime(part, config=_CONFIG, folder=points.session.folder)
        self._taken = {info.name for info in part.graph.input}
        self._fed = [value for value in points.fed if points.given[value.name] in self._taken]

    def reset(self) -> None:
        """Reset the states."""
        self.session.reset()

    def run(self, inputs: Sequence[Array], operands: Mapping[int, Array]) -> dict[str, Array]:
        """Return every compared value by name, as the file stores its tensor; those of another rank are left out.

        Raises OrtError.
        """
        points, tensors = self.points, self.points.entry.subgraph.tensors
        feeds = {name: array for name, array in points.interface.feeds(inputs).items() if name in self._taken}
        for value in self._fed:
            array = operands[value.tensor]
            fed = as_pairs(array) if array.dtype.kind == "c" else array
            fed = as_float(tensors[value.tensor], fed) if value.name in points.floats else fed
            feeds[points.given[value.name]] = value.apply(fed)
        self.session.run(feeds)
        returned = self.session.values()
        assigned = [s for s in self.session.states if s.output in points.given and not points.is_own_state(s.output)]
        self.session.set_states({s.input: feeds[points.given[s.output]] for s in assigned})
        results = {}
        for value in self.values:
            tensor, array = tensors[value.tensor], returned[value.name]
            restored = value.restore(array, dtype_to_restore(tensor, array))
            if restored is not None:
                results[value.name] = as_stored(tensor, np.asarray(restored))
        return results


def _cut_graph(proto: ModelProto, points: CutPoints, outputs: Sequence[str], *, whole: bool) -> ModelProto:
    """Return the model that computes ``outputs``, in which nodes read a graph input instead of each value that is given.

    ``whole``: with all inputs of the model.
    """
    graph, given = proto.graph, points.given
    needed, nodes = {*outputs}, []
    fed: set[str] = set()
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            operands = {name for name in points.given_reads(node) if name in given}
            needed |= {*read_names(node)} - operands
            fed |= operands
    cut = empty_copy(proto)
    cut.metadata_props.extend(proto.metadata_props)
    cut.graph.node.extend(reversed(nodes))
    cut.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    cut.graph.input.extend(info for info in graph.input if whole or info.name in needed)
    infos = {**{info.name: info for info in graph.input}, **points.infos}
    cut.graph.output.extend(infos[name] for name in outputs)
    computed = {name for node in nodes for name in node.output}
    cut.graph.value_info.extend(info for info in graph.value_info if info.name in computed - {*outputs})
    for node in cut.graph.node:
        _rename_reads(node, {name: given[name] for name in points.given_reads(node) if name in given})
        for attribute in node.attribute:
            if attribute.name == _LEVEL:
                attribute.i = 1
    for name, replaced in given.items():
        if name in fed:
            info = cut.graph.input.add()
            info.CopyFrom(infos[name])
            info.name = replaced
            del info.metadata_props[:]
    return cut


def _fix_probe(graph: GraphProto) -> None:
    """Replace the value that says whether products are exact on this processor by False."""
    for node in [node for node in graph.node if PROBE in node.output]:
        graph.node.remove(node)
    probe = graph.initializer.add()
    probe.name, probe.data_type, probe.raw_data = PROBE, _BOOL, b"\0"


def _rename_reads(node: NodeProto, given: Mapping[str, str]) -> None:
    node.input[:] = [given.get(name, name) for name in node.input]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename_reads(inner, given)
            for info in attribute.g.output:  # a captured value that a body returns
                info.name = given.get(info.name, info.name)
