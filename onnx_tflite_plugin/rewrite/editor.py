"""Editor for rewrite rules: emits nodes and replaces values in a finished model."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import onnx_ir as ir

from onnx_tflite_plugin.graph.metadata import converter_entries, remove_converter_entries
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.graph.value_metadata import holds_tensor, read_tensor, write_tensor
from onnx_tflite_plugin.lowering.emitter import Emitter, Operand
from onnx_tflite_plugin.lowering.schemas import schema_of, signature_of
from onnx_tflite_plugin.rewrite.matching import Affine, constant, label_of, sizes
from onnx_tflite_plugin.source.model import Array

_COLLECTION_THRESHOLD = 1 << 27
"""Bytes of replaced constants after which garbage is collected; a collection takes 0.1 s."""


class Editor:
    """Inserts, replaces and removes nodes and constants of a finished model.

    New nodes are inserted at the position of the node that they replace, and get its name and metadata.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self._released_bytes = 0

    @cached_property
    def emitter(self) -> Emitter:
        """The emitter of nodes, created on first use because creation reads all names."""
        return Emitter(self.graph.opset_imports[""], _collect_names(self.model))

    @contextmanager
    def replacing(
        self, node: ir.Node, *, after: bool = False, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Insert nodes emitted inside this context before ``node``, or after it.

        The inserted nodes get the name of ``node`` (or ``label``) and its metadata (or ``props``).
        """
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        with self.within_node(node, label, props), self.emitter.collect_inner_nodes() as nodes:
            yield
        for new_node in nodes:
            self.register(new_node.inputs)
        (graph.insert_after if after else graph.insert_before)(node, nodes)

    def within_node(
        self, node: ir.Node, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Give nodes emitted inside this context the name and metadata of ``node``.

        ``label`` is used instead of the name, and ``props`` instead of the metadata.
        """
        return self.emitter.label_nodes(
            label_of(node) if label is None else label,
            converter_entries(node.metadata_props) if props is None else props,
        )

    def emit(self, op_type: str, *inputs: Operand, like: ir.Node | None = None, **attributes: Any) -> ir.Value:
        """Emit a node and return its only output.

        Attributes that are not passed are copied from ``like``.
        """
        copied = {name: a.value for name, a in like.attributes.items()} if like is not None else {}
        return self.emitter.emit(op_type, inputs, {**copied, **attributes})[0]

    def register(self, values: Iterable[ir.Value | None]) -> None:
        """Add new constants to the initializers of the graph."""
        for value in values:
            if value is not None and value.const_value is not None and value.graph is None:
                self.graph.register_initializer(value)

    def dequantize(self, affine: Affine, axis: int = 0) -> ir.Value:
        """Emit DequantizeLinear of a constant. ``axis``: the axis of per-channel scales."""
        assert affine.integers is not None
        scale_axis = axis if affine.scale.ndim else None
        return self.emit("DequantizeLinear", affine.integers, affine.scale, affine.zero_point, axis=scale_axis)

    def store(self, array: Array, like: ir.Value | None) -> ir.Value:
        """Add a constant to the graph, named after the constant ``like`` that it replaces."""
        value = self.emitter.constant(array, "" if like is None else like.name or "")
        self.register([value])
        return value

    def clone_on(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """Emit a copy of ``node`` with ``value`` as its first operand; return the result."""
        clone = self.emit(node.op_type, value, *node.inputs[1:], like=node)
        clone.type = node.outputs[0].type
        return clone

    def replace_value(self, old: ir.Value, new: ir.Value) -> None:
        """Replace ``old`` with an equal tensor, which gets its name, metadata and users."""
        self.replace_uses(old, new, [(use.node, use.idx) for use in old.uses()])

    def replace_uses(self, old: ir.Value, new: ir.Value, users: Iterable[tuple[ir.Node, int]]) -> None:
        """Replace ``old`` with ``new`` as operand of ``users``, and as graph output.

        ``users``: pairs of node and operand index. ``new`` gets the name and metadata of ``old``.
        """
        new.shape, new.type = old.shape, old.type
        new.metadata_props.update(old.metadata_props)
        for node, slot in users:
            node.replace_input_with(slot, new)
        producer_node = old.producer()
        producer_graph = None if producer_node is None else producer_node.graph
        graph = producer_graph if isinstance(producer_graph, ir.Graph) else self.graph
        for _ in range(graph.outputs.count(old) if old.is_graph_output() else 0):
            graph.outputs[graph.outputs.index(old)] = new
        name, old.name = old.name, new.name
        new.name = name

    def rebuild(self, node: ir.Node, slots: Iterable[int], transform: Callable[[Array, float], Array]) -> None:
        """Replace constant operands of a node with ``transform(array, zero point)``.

        For a dequantized constant, the quantized values, per-channel scales and zero points are transformed.
        """
        for slot in slots:
            value = node.inputs[slot]
            if value is not None:
                node.replace_input_with(slot, self._rebuild(node, value, transform))
                self._release(value)

    def remove(self, node: ir.Node) -> None:
        """Remove a node with unused results, and the constants that only this node used."""
        constants = [value for value in node.inputs if value is not None]
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(node, safe=True)
        for value in constants:
            self._release(value)

    def _release(self, value: ir.Value) -> None:
        """Remove a constant if it is unused.

        If old weights were removed only at the end, old and new weights would be in memory together. Replaced nodes and their
        values form reference cycles, so garbage is collected whenever removed constants exceed ``_COLLECTION_THRESHOLD``.
        """
        constants = self.graph.initializers
        if constants.get(value.name or "") is not value or value.uses() or value.is_graph_input():
            return
        if value.is_graph_output() or value.const_value is None:
            return
        del constants[value.name or ""]
        self._released_bytes += value.const_value.nbytes
        if self._released_bytes > _COLLECTION_THRESHOLD:
            self._released_bytes = 0
            gc.collect()

    def _rebuild(self, user: ir.Node, value: ir.Value, transform: Callable[[Array, float], Array]) -> ir.Value:
        """Store the transformed constant; emit nodes that dequantize it before ``user``."""
        array, node = constant(value), value.producer()
        if array is not None:
            return self.store(transform(array, 0), like=value)
        assert node is not None
        parameters = Affine.of(node) if node.op_type == "DequantizeLinear" else None
        if parameters is None:
            operands = [operand and self._rebuild(user, operand, transform) for operand in node.inputs]
        else:
            assert parameters.integers is not None
            scale, zero_point = parameters.scale, parameters.zero_point
            if not parameters.per_tensor:  # runtimes require a bias to have the weights' scales
                scale, zero_point = transform(scale, float(scale[0])), transform(zero_point, 0)
            integers = transform(parameters.integers, float(parameters.zero_point.reshape(-1)[0]))
            operands = [
                self.store(new_array, like=old_value)
                for new_array, old_value in zip((integers, scale, zero_point), node.inputs, strict=True)
            ]
        with self.replacing(user):
            return self.emit(node.op_type, *operands, like=node)

    def remove_unused(self) -> None:
        """Remove unused nodes and initializers."""
        _remove_unused_nodes(self.graph)
        constants = self.graph.initializers
        for name, value in list(constants.items()):
            if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                del constants[name]


def clear_metadata(value: ir.Value) -> None:
    """Remove the metadata of a value that no longer holds the named tensor."""
    remove_converter_entries(value.metadata_props)


def copy_tensor_metadata(value: ir.Value, shape: Sequence[int | None] | None, reshaped: ir.Value) -> None:
    """Copy tensor metadata from ``reshaped``, if only leading axes of size 1 differ.

    For example, ``value`` has shape [3, 4] and ``reshaped`` [1, 3, 4]. ``shape``: the shape of ``value``, with None or -1 for
    a dynamic dimension.
    """
    tensor, full_shape = read_tensor("", reshaped.metadata_props), sizes(reshaped)
    if tensor is None or full_shape is None or shape is None or holds_tensor(value.metadata_props):
        return
    leading_count = len(full_shape) - len(shape)
    has_leading_ones = leading_count > 0 and full_shape[:leading_count] == [1] * leading_count
    has_same_sizes = all(
        size in (None, -1, full_size) for size, full_size in zip(shape, full_shape[leading_count:], strict=False)
    )
    dynamic_count = sum(size in (None, -1) for size in shape)
    if has_leading_ones and has_same_sizes and dynamic_count < 2:
        perm = ",".join(map(str, (tensor.order or range(len(full_shape)))[leading_count:]))
        write_tensor(
            value.metadata_props,
            tensor.subgraph,
            tensor.tensor,
            encoding=tensor.encoding,
            order=perm,
            shift=tensor.shift,
        )


def _remove_unused_nodes(graph: ir.Graph) -> None:
    """Remove unused nodes of a graph and of its inner graphs, from last to first."""
    unused = []
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            node.resize_inputs(0)
            unused.append(node)
            continue
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _remove_unused_nodes(attribute.as_graph())
    graph.remove(unused)


def remove_unused_outputs(graph: ir.Graph, opset: int) -> None:
    """Remove unused optional outputs of nodes in a graph and its inner graphs.

    Trailing outputs are dropped. Other outputs get an empty name, which omits them in ONNX.
    """
    for node in graph:
        is_unused = [not (value.uses() or value.is_graph_output()) for value in node.outputs]
        schema = schema_of(node.op_type, opset, "") if any(is_unused) and not node.domain else None
        if schema is not None:
            for value, unused, optional in zip(node.outputs, is_unused, signature_of(schema).optional, strict=False):
                if unused and optional:
                    value.name = ""
            node.resize_outputs(max(k for k, value in enumerate(node.outputs, 1) if value.name))
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                remove_unused_outputs(attribute.as_graph(), opset)


def _collect_names(model: ir.Model) -> UniqueNames:
    """Return the names of all nodes and values of a model."""
    names = UniqueNames()
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        names.unique(node.name or "")
        values += node.outputs
    for value in values:
        names.unique(value.name or "")
    return names
