"""What the passes share: reading constants and quantized units, and writing nodes that carry the metadata of those they replace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.graph.metadata import own, remove_own
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.lowering.emitter import Emitter, Operand
from onnx_tflite_plugin.lowering.schemas import schema_of, signature_of
from onnx_tflite_plugin.source.model import Array

CHANNELS_FIRST, CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
BLOCK = 16  # channels that kernels work on at a time
DIVISOR = 4  # of the channels that go into blocks, or pad_channels sees to it
_DEQUANTIZING = ("Cast", "DequantizeLinear", "Mul", "Sub")  # how stored weights become float, in three nodes at most

_Place = TypeVar("_Place")


# --- reading ----------------------------------------------------------------------------------


def constant(value: ir.Value | None) -> Array | None:
    """A stored constant's numbers; ``None`` for what is computed or fed."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return np.asarray(value.const_value.numpy())


def constant_shape(value: ir.Value | None, depth: int = 3) -> tuple[int, ...] | None:
    """The shape of a constant, stored as it is or dequantized by nodes; ``None`` for what is computed or fed."""
    array, node = constant(value), producer(value, *_DEQUANTIZING)
    if array is not None or node is None or not depth:
        return None if array is None else array.shape
    shapes = [constant_shape(operand, depth - 1) for operand in node.inputs]
    of_constants = [shape for shape in shapes if shape is not None]
    if len(of_constants) < len(shapes):
        return None
    return of_constants[0] if node.op_type == "DequantizeLinear" else np.broadcast_shapes(*of_constants)


def nodes_of(nodes: Iterable[ir.Node], *op_types: str) -> list[ir.Node]:
    """Those that are one of these operators of the standard."""
    return [node for node in nodes if node.domain == "" and node.op_type in op_types]


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes a value, where it is one of these operators of the standard."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def only_user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The one node that uses a value, at one place and in this graph, where it is one of these operators."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    maker = value.producer()
    same_graph = maker is None or node.graph is maker.graph
    return node if same_graph and node.domain == "" and node.op_type in op_types else None


def ints(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return list(default) if attribute is None else list(attribute.as_ints())


def integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def sizes(value: ir.Value | None) -> list[int | None] | None:
    """A value's shape, ``None`` for sizes that are not known; ``None`` where the rank is not."""
    if value is None or value.shape is None:
        same = producer(value, "Clip", "DequantizeLinear", "GlobalAveragePool", "QuantizeLinear", "Relu")
        shape = None if same is None else sizes(same.inputs[0])
        pooled = same is not None and same.op_type == "GlobalAveragePool"
        return [*shape[:2], *[1] * len(shape[2:])] if shape and pooled else shape
    return [size if isinstance(size, int) else None for size in value.shape]


class Affine(NamedTuple):
    """Stored integers of a constant, or the parameters of computed ones (``integers`` is then ``None``)."""

    integers: Array | None
    scale: Array
    zero_point: Array

    @classmethod
    def of(cls, node: ir.Node | None) -> Self | None:
        """What a QuantizeLinear or DequantizeLinear says, where it is constant."""
        if node is None:
            return None
        scale = constant(node.inputs[1])
        point = constant(node.inputs[2]) if len(node.inputs) > 2 else None
        if scale is None or point is None or (scale.ndim and "block_size" in node.attributes):
            return None
        return cls(constant(node.inputs[0]), scale, point)

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1

    def repeated(self, times: int, integers: Array | None = None) -> Affine:
        """A constant several times along its first axis, or other integers with as many channels; parameters per channel too."""
        if integers is None:
            assert self.integers is not None
            integers = np.concatenate([self.integers] * times)
        if self.per_tensor:
            return self._replace(integers=integers)
        return Affine(integers, np.tile(self.scale, times), np.tile(self.zero_point, times))

    @property
    def floats(self) -> Array:
        """The constant dequantized, in float64 (per-tensor parameters only)."""
        assert self.integers is not None
        shifted = self.integers.astype(np.float64) - float(self.zero_point.reshape(-1)[0])
        return np.asarray(shifted * float(self.scale.reshape(-1)[0]))


class QuantizedConv(NamedTuple):
    """DequantizeLinear of data, weights and bias, Conv or ConvTranspose, QuantizeLinear: what could be one integer kernel."""

    data: ir.Node
    conv: ir.Node
    quantize: ir.Node
    weights: Affine
    bias: Affine | None

    @classmethod
    def of(cls, conv: ir.Node) -> Self | None:
        """The unit around a node; ``None`` where a part is missing or not constant."""
        data, weights = (producer(value, "DequantizeLinear") for value in conv.inputs[:2])
        axis = 0 if conv.op_type == "Conv" else 1
        quantize = only_user(conv.outputs[0], "QuantizeLinear")
        with_bias = len(conv.inputs) > 2 and conv.inputs[2] is not None
        bias = Affine.of(producer(conv.inputs[2], "DequantizeLinear")) if with_bias else None
        weight_affine, data_affine, result_affine = Affine.of(weights), Affine.of(data), Affine.of(quantize)
        if data is None or quantize is None or weight_affine is None or data_affine is None or result_affine is None:
            return None
        if weight_affine.integers is None or (with_bias and (bias is None or bias.integers is None)):
            return None
        per_channel = weight_affine.per_tensor or (weights is not None and integer(weights, "axis", 1) == axis)
        whole = data_affine.per_tensor and result_affine.per_tensor and per_channel
        return cls(data, conv, quantize, weight_affine, bias) if whole else None


def label_of(node: ir.Node) -> str:
    """What a node is named after: that of the operator it was lowered from."""
    return (node.name or "").rpartition("/")[0]


def first(nodes: Iterable[ir.Node]) -> ir.Node:
    """The one that stands first in their graph."""
    among = {*nodes}
    (graph,) = {node.graph for node in among}
    assert graph is not None
    return next(node for node in graph if node in among)


# --- writing ----------------------------------------------------------------------------------


class Editor:
    """Writes nodes into a model's main graph."""

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph

    @cached_property
    def emitter(self) -> Emitter:
        """Made where something is emitted: it has to know every name that is taken."""
        return Emitter(self.graph.opset_imports[""], _names(self.model))

    @contextmanager
    def replacing(
        self, node: ir.Node, *, after: bool = False, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Nodes emitted inside stand before ``node`` (or after it), are named as it is, and carry its metadata."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        with self.part_of(node, label, props), self.emitter.nested() as nodes:
            yield
        for new in nodes:
            self.register(new.inputs)
        (graph.insert_after if after else graph.insert_before)(node, nodes)

    def part_of(
        self, node: ir.Node, label: str | None = None, props: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Nodes emitted inside are named as ``node`` is, or after ``label``, and carry its metadata, or ``props``."""
        return self.emitter.within(
            label_of(node) if label is None else label, own(node.metadata_props) if props is None else props
        )

    def emit(self, op_type: str, *inputs: Operand, like: ir.Node | None = None, **attributes: Any) -> ir.Value:
        """A node's only output; ``like`` gives the attributes that are not given."""
        given = {name: a.value for name, a in like.attributes.items()} if like is not None else {}
        return self.emitter.emit(op_type, inputs, {**given, **attributes})[0]

    def register(self, values: Iterable[ir.Value | None]) -> None:
        """Constants that are new join the graph."""
        for value in values:
            if value is not None and value.const_value is not None and value.graph is None:
                self.graph.register_initializer(value)

    def dequantized(self, affine: Affine, axis: int = 0) -> ir.Value:
        """A constant's integers through DequantizeLinear; ``axis`` is that of the channels, where each has its own scale."""
        assert affine.integers is not None
        along = axis if affine.scale.ndim else None
        return self.emit("DequantizeLinear", affine.integers, affine.scale, affine.zero_point, axis=along)

    def stored(self, array: Array, like: ir.Value | None) -> ir.Value:
        """A constant, named after the one it replaces."""
        value = self.emitter.constant(array, "" if like is None else like.name or "")
        self.register([value])
        return value

    def clone_on(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """The same operator on another first operand."""
        clone = self.emit(node.op_type, value, *node.inputs[1:], like=node)
        clone.type = node.outputs[0].type
        return clone

    def replace_value(self, old: ir.Value, new: ir.Value) -> None:
        """``new`` is the same tensor: it gets the name, the metadata, and every user."""
        self.replace_uses(old, new, [(use.node, use.idx) for use in old.uses()])

    def replace_uses(self, old: ir.Value, new: ir.Value, users: Iterable[tuple[ir.Node, int]]) -> None:
        """``new`` is the tensor that ``old`` was: it gets name and metadata, these users, and the place among the outputs."""
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
        """Change constants among a node's operands, and what dequantizes them; ``change`` is told what dequantizes to 0."""
        for slot in slots:
            value = node.inputs[slot]
            if value is not None:
                node.replace_input_with(slot, self._rebuilt(node, value, change))

    def _rebuilt(self, user: ir.Node, value: ir.Value, change: Callable[[Array, float], Array]) -> ir.Value:
        array, node = constant(value), value.producer()
        if array is not None:
            return self.stored(change(array, 0), like=value)
        assert node is not None
        parameters = Affine.of(node) if node.op_type == "DequantizeLinear" else None
        if parameters is None:
            operands = [operand and self._rebuilt(user, operand, change) for operand in node.inputs]
        else:
            assert parameters.integers is not None
            scale, zero_point = parameters.scale, parameters.zero_point
            if not parameters.per_tensor:  # runtimes want a bias's scales to be those of the weights
                scale, zero_point = change(scale, float(scale[0])), change(zero_point, 0)
            integers = change(parameters.integers, float(parameters.zero_point.reshape(-1)[0]))
            names = node.inputs
            operands = [self.stored(a, like=n) for a, n in zip((integers, scale, zero_point), names, strict=True)]
        with self.replacing(user):
            return self.emit(node.op_type, *operands, like=node)

    def tidy(self) -> None:
        """Drop what nothing uses any more."""
        _drop_unused(self.graph)
        constants = self.graph.initializers
        for name, value in list(constants.items()):
            if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                del constants[name]


def rewrite(model: ir.Model, places: Sequence[_Place], change: Callable[[Editor, _Place], bool]) -> int:
    """Try every place; returns how many were changed."""
    if not places:
        return 0
    editor = Editor(model)
    changed = sum(change(editor, place) for place in places)
    if changed:
        editor.tidy()
    return changed


def rewrite_nodes(model: ir.Model, op_type: str, change: Callable[[Editor, ir.Node], bool]) -> int:
    """Try every node of an operator in the main graph; returns how many were changed."""
    return rewrite(model, nodes_of(model.graph, op_type), change)


def rewrite_units(model: ir.Model, op_type: str, change: Callable[[Editor, QuantizedConv], bool]) -> int:
    """Try every quantized unit around an operator; returns how many were changed."""
    units = [unit for node in nodes_of(model.graph, op_type) if (unit := QuantizedConv.of(node))]
    return rewrite(model, units, change)


def forget(value: ir.Value) -> None:
    """Its content is no longer what its metadata says."""
    remove_own(value.metadata_props)


def _drop_unused(graph: ir.Graph) -> None:
    """Nodes whose outputs nothing uses, here and in inner graphs; what only they use comes before them."""
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


def drop_idle_results(graph: ir.Graph, opset: int) -> None:
    """Optional results that nothing uses, here and in inner graphs: the last are left out, others have no name."""
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
                drop_idle_results(attribute.as_graph(), opset)


def _names(model: ir.Model) -> UniqueNames:
    """Every name that is taken."""
    names = UniqueNames()
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        names.unique(node.name or "")
        values += node.outputs
    for value in values:
        names.unique(value.name or "")
    return names
