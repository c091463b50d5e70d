"""Cut of the ONNX model at values that hold TFLite tensors.

Each such value becomes a graph output, and the nodes that read it read a new graph input instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.extraction import empty_copy
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.trial import dtype_to_restore
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored, onnx_operand
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.submodels.points import CutPoints, read_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_BOOL = 9  # onnx.TensorProto.BOOL
_ACCURACY_LEVEL = "accuracy_level"
"""Attribute of products with blockwise quantized weights; 1 is float32."""
_CONFIG = {"session.qdq_matmulnbits_accuracy_level": "1"}  # products of dequantized weights in float32, not int8


class CutModel:
    """Session of an ONNX submodel that computes ``values`` from cut tensors.

    By default the submodel is the whole model. States are carried from run to run as in the whole model. ``saturating``:
    use the weights that the model selects on processors whose 8-bit products saturate; results with these weights are exact
    on every processor. Attribute ``selects_weights``: True if the model selects weights by processor.
    """

    def __init__(
        self, points: CutPoints, values: Sequence[TensorValue] | None = None, *, saturating: bool = False
    ) -> None:
        self.points = points
        self.values = points.values if values is None else values
        proto = points.session.proto
        outputs = [value.name for value in self.values]
        if values is None:
            outputs = list(dict.fromkeys([*(info.name for info in proto.graph.output), *outputs]))
        cut_proto = _cut_graph(proto, points, outputs, whole_model=values is None)
        self.selects_weights = any(PROBE in node.output for node in cut_proto.graph.node)
        if saturating:
            _fix_probe(cut_proto.graph)
        self.session = OnnxRuntime(cut_proto, config=_CONFIG, folder=points.session.folder)
        self._input_names = {info.name for info in cut_proto.graph.input}
        self._replaced_values = [
            value for value in points.replaced_values if points.input_names[value.name] in self._input_names
        ]
        cut_values = {value.name: value for value in points.replaced_values if not points.is_own_state(value.name)}
        self._cut_states = [
            (state.input, cut_values[state.output]) for state in self.session.states if state.output in cut_values
        ]

    def reset(self) -> None:
        """Reset the states to their initial values."""
        self.session.reset()

    def run(self, inputs: Sequence[Array], operands: Mapping[int, Array]) -> dict[str, Array]:
        """Return name -> compared value, in the shape and dtype of the TFLite file.

        ``operands``: tensor index -> array. Values whose rank differs from their tensor's are left out. Raises OrtError.
        """
        points, tensors = self.points, self.points.entry.subgraph.tensors
        feeds = {name: array for name, array in points.interface.feeds(inputs).items() if name in self._input_names}
        feeds |= {points.input_names[value.name]: self._feed(value, operands) for value in self._replaced_values}
        self.session.run(feeds)
        onnx_values = self.session.values()
        self.session.set_states({input_name: self._feed(value, operands) for input_name, value in self._cut_states})
        results = {}
        for value in self.values:
            tensor, array = tensors[value.tensor], onnx_values[value.name]
            restored = value.restore(array, dtype_to_restore(tensor, array))
            if restored is not None:
                results[value.name] = as_stored(tensor, np.asarray(restored))
        return results

    def _feed(self, value: TensorValue, operands: Mapping[int, Array]) -> Array:
        """Return LiteRT's tensor of a cut value, in the shape and dtype of the value."""
        tensor = self.points.entry.subgraph.tensors[value.tensor]
        feed = onnx_operand(tensor, operands[value.tensor], is_float=value.name in self.points.float_values)
        return value.apply(feed)


def _cut_graph(proto: ModelProto, points: CutPoints, outputs: Sequence[str], *, whole_model: bool) -> ModelProto:
    """Return the model that computes ``outputs``, with cut values as graph inputs.

    ``whole_model``: keep all inputs of the model.
    """
    graph, input_names = proto.graph, points.input_names
    needed_values, nodes = {*outputs}, []
    read_cut_values: set[str] = set()
    for node in reversed(graph.node):
        if not needed_values.isdisjoint(node.output):
            nodes.append(node)
            operands = {name for name in points.operand_names(node) if name in input_names}
            needed_values |= {*read_names(node)} - operands
            read_cut_values |= operands
    cut_model = empty_copy(proto)
    cut_model.metadata_props.extend(proto.metadata_props)
    cut_model.graph.node.extend(reversed(nodes))
    cut_model.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed_values)
    cut_model.graph.input.extend(info for info in graph.input if whole_model or info.name in needed_values)
    infos = {**{info.name: info for info in graph.input}, **points.infos}
    cut_model.graph.output.extend(infos[name] for name in outputs)
    computed_names = {name for node in nodes for name in node.output}
    cut_model.graph.value_info.extend(info for info in graph.value_info if info.name in computed_names - {*outputs})
    for node in cut_model.graph.node:
        _rename_operands(node, {name: input_names[name] for name in points.operand_names(node) if name in input_names})
        for attribute in node.attribute:
            if attribute.name == _ACCURACY_LEVEL:
                attribute.i = 1
    for name, input_name in input_names.items():
        if name in read_cut_values:
            info = cut_model.graph.input.add()
            info.CopyFrom(infos[name])
            info.name = input_name
            del info.metadata_props[:]
    return cut_model


def _fix_probe(graph: GraphProto) -> None:
    """Replace the test for exact products on this processor with False."""
    for node in [node for node in graph.node if PROBE in node.output]:
        graph.node.remove(node)
    probe = graph.initializer.add()
    probe.name, probe.data_type, probe.raw_data = PROBE, _BOOL, b"\0"


def _rename_operands(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename the values that a node and its subgraphs read, in place."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for subgraph in node_subgraphs(node):
        for inner in subgraph.node:
            _rename_operands(inner, names)
        for info in subgraph.output:  # a captured value that a subgraph returns
            info.name = names.get(info.name, info.name)
