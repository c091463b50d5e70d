"""The editor: writes nodes that carry the names and metadata of those that they replace."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import onnx_ir as ir

from onnx_tflite_plugin.graph.metadata import holds_tensor, own, read_tensor, remove_own, write_tensor
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.lowering.emitter import Emitter, Operand
from onnx_tflite_plugin.lowering.schemas import schema_of, signature_of
from onnx_tflite_plugin.rewrite.matching import Affine, constant, label_of, sizes
from onnx_tflite_plugin.source.model import Array

_MOST_RELEASED = 1 << 27
"""Bytes of replaced constants after which garbage is collected; a collection takes 0.1 s for that many weights."""


class Editor:
    """Writer of nodes into a model, in its main graph unless a node of another graph is replaced."""

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self._released = 0

    @cached_property
    def emitter(self) -> Emitter:
        """The emitter, created on first use: it collects every name of the model."""
        return Emitter(self.graph.opset_imports[""], _names(self.model))

    @contextmanager
    def replacing(
        self, node: ir.Node, *, after: bool = False, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Insert nodes emitted inside before ``node`` (or after it), with its name and metadata."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        with self.within_node(node, label, props), self.emitter.collect_inner_nodes() as nodes:
            yield
        for new in nodes:
            self.register(new.inputs)
        (graph.insert_after if after else graph.insert_before)(node, nodes)

    def within_node(
        self, node: ir.Node, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Give nodes that are emitted inside this context the name (or ``label``) and the metadata (or ``props``) of
        ``node``.
        """
        return self.emitter.label_nodes(
            label_of(node) if label is None else label, own(node.metadata_props) if props is None else props
        )

    def emit(self, op_type: str, *inputs: Operand, like: ir.Node | None = None, **attributes: Any) -> ir.Value:
        """Emit a node and return its only output; missing attributes are copied from ``like``."""
        given = {name: a.value for name, a in like.attributes.items()} if like is not None else {}
        return self.emitter.emit(op_type, inputs, {**given, **attributes})[0]

    def register(self, values: Iterable[ir.Value | None]) -> None:
        """Add new constants to the initializers of the graph."""
        for value in values:
            if value is not None and value.const_value is not None and value.graph is None:
                self.graph.register_initializer(value)

    def dequantize(self, affine: Affine, axis: int = 0) -> ir.Value:
        """Emit DequantizeLinear of a constant; ``axis``: the axis of per-channel scales."""
        assert affine.integers is not None
        along = axis if affine.scale.ndim else None
        return self.emit("DequantizeLinear", affine.integers, affine.scale, affine.zero_point, axis=along)

    def store(self, array: Array, like: ir.Value | None) -> ir.Value:
        """Add a constant, named after the one it replaces."""
        value = self.emitter.constant(array, "" if like is None else like.name or "")
        self.register([value])
        return value

    def clone_on(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """Emit the same operator with another first operand."""
        clone = self.emit(node.op_type, value, *node.inputs[1:], like=node)
        clone.type = node.outputs[0].type
        return clone

    def replace_value(self, old: ir.Value, new: ir.Value) -> None:
        """Replace a value by ``new``, the same tensor: it takes over name, metadata and all users."""
        self.replace_uses(old, new, [(use.node, use.idx) for use in old.uses()])

    def replace_uses(self, old: ir.Value, new: ir.Value, users: Iterable[tuple[ir.Node, int]]) -> None:
        """Replace a value for some users and among the graph outputs; ``new`` takes over its name and metadata."""
        new.shape, new.type = old.shape, old.type
        new.metadata_props.update(old.metadata_props)
        for node, slot in users:
            node.replace_input_with(slot, new)
        maker = old.producer()
        graph = self.graph if maker is None or not isinstance(maker.graph, ir.Graph) else maker.graph
        for _ in range(graph.outputs.count(old) if old.is_graph_output() else 0):
            graph.outputs[graph.outputs.index(old)] = new
        name, old.name = old.name, new.name
        new.name = name

    def rebuild(self, node: ir.Node, slots: Iterable[int], change: Callable[[Array, float], Array]) -> None:
        """Change the constants of some operands, stored or dequantized; ``change`` gets an array and its zero point."""
        for slot in slots:
            value = node.inputs[slot]
            if value is not None:
                node.replace_input_with(slot, self._rebuild(node, value, change))
                self._release(value)

    def remove(self, node: ir.Node) -> None:
        """Remove a node whose results are unused, and constants that only it used."""
        constants = [value for value in node.inputs if value is not None]
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(node, safe=True)
        for value in constants:
            self._release(value)

    def _release(self, value: ir.Value) -> None:
        """Remove a constant that is no longer used; otherwise old and new weights would be in memory together.

        Replaced nodes and their values form reference cycles, which are collected once they hold a lot of memory.
        """
        constants = self.graph.initializers
        if constants.get(value.name or "") is not value or value.uses() or value.is_graph_input():
            return
        if value.is_graph_output() or value.const_value is None:
            return
        del constants[value.name or ""]
        self._released += value.const_value.nbytes
        if self._released > _MOST_RELEASED:
            self._released = 0
            gc.collect()

    def _rebuild(self, user: ir.Node, value: ir.Value, change: Callable[[Array, float], Array]) -> ir.Value:
        array, node = constant(value), value.producer()
        if array is not None:
            return self.store(change(array, 0), like=value)
        assert node is not None
        parameters = Affine.of(node) if node.op_type == "DequantizeLinear" else None
        if parameters is None:
            operands = [operand and self._rebuild(user, operand, change) for operand in node.inputs]
        else:
            assert parameters.integers is not None
            scale, zero_point = parameters.scale, parameters.zero_point
            if not parameters.per_tensor:  # runtimes require a bias to have the weights' scales
                scale, zero_point = change(scale, float(scale[0])), change(zero_point, 0)
            integers = change(parameters.integers, float(parameters.zero_point.reshape(-1)[0]))
            names = node.inputs
            operands = [self.store(a, like=n) for a, n in zip((integers, scale, zero_point), names, strict=True)]
        with self.replacing(user):
            return self.emit(node.op_type, *operands, like=node)

    def remove_unused(self) -> None:
        """Remove unused nodes and initializers."""
        _drop_unused(self.graph)
        constants = self.graph.initializers
        for name, value in list(constants.items()):
            if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                del constants[name]


def clear_metadata(value: ir.Value) -> None:
    """Remove the metadata of a value whose content has changed."""
    remove_own(value.metadata_props)


def keep_tensor(value: ir.Value, shape: Sequence[int | None] | None, reshaped: ir.Value) -> None:
    """Copy the tensor metadata of ``reshaped`` to ``value``, which is the same without leading unit axes.

    ``shape``: the value's shape, with None or -1 for one unknown size.
    """
    held, whole = read_tensor("", reshaped.metadata_props), sizes(reshaped)
    if held is None or whole is None or shape is None or holds_tensor(value.metadata_props):
        return
    added = len(whole) - len(shape)
    unknown = [size in (None, -1) for size in shape]
    fits = all(
        is_unknown or size == given for is_unknown, size, given in zip(unknown, shape, whole[added:], strict=False)
    )
    if added > 0 and whole[:added] == [1] * added and fits and sum(unknown) < 2:
        order = ",".join(map(str, (held.order or range(len(whole)))[added:]))
        write_tensor(value.metadata_props, held.subgraph, held.tensor, form=held.form, order=order, shift=held.shift)


def _drop_unused(graph: ir.Graph) -> None:
    """Remove unused nodes, last first, here and in inner graphs."""
    unused = []
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            node.resize_inputs(0)
            unused.append(node)
            continue
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _drop_unused(attribute.as_graph())
    graph.remove(unused)


def remove_unused_outputs(graph: ir.Graph, opset: int) -> None:
    """Remove unused optional outputs, here and in inner graphs: trailing ones are left out, others lose their name."""
    for node in graph:
        idle = [not (value.uses() or value.is_graph_output()) for value in node.outputs]
        schema = schema_of(node.op_type, opset, "") if any(idle) and not node.domain else None
        if schema is not None:
            for value, unused, optional in zip(node.outputs, idle, signature_of(schema).optional, strict=False):
                if unused and optional:
                    value.name = ""
            node.resize_outputs(max(k for k, value in enumerate(node.outputs, 1) if value.name))
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                remove_unused_outputs(attribute.as_graph(), opset)


def _names(model: ir.Model) -> UniqueNames:
    """Return a register of all names of a model."""
    names = UniqueNames()
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        names.unique(node.name or "")
        values += node.outputs
    for value in values:
        names.unique(value.name or "")
    return names
