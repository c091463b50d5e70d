"""Cut points of both models: the ONNX values that hold TFLite tensors, and the submodels between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.graph.metadata import TensorValue, converted_operators, props
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.comparison.tensors import values_by_tensor
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface
from onnx_tflite_plugin.verify.runtimes.dequantized import is_float
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, operands, producers

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_GIVEN = ":given"
_RECURRENT = {"Loop", "Scan", "If", "LSTM", "GRU", "RNN"}
_FLOAT = 4  # bytes of an element, as weights are dequantized


class Submodel(NamedTuple):
    """The operators that compute a tensor from cut tensors and graph inputs, which are its ``leaves``.

    ``onnx_leaves``: the cut tensors and graph inputs that the ONNX ``value`` is computed from, by nodes of ``onnx_operators``.
    """

    value: TensorValue
    tensor: Tensor
    operators: tuple[Operator, ...]
    leaves: frozenset[int]
    onnx_leaves: frozenset[int]
    onnx_operators: frozenset[int]
    recurrent: bool

    @property
    def is_comparable(self) -> bool:
        """True if the ONNX submodel is no larger, as it is where a tensor has a second value that is not cut."""
        return self.onnx_leaves <= self.leaves and not self.onnx_operators > {op.index for op in self.operators}

    @property
    def last(self) -> int:
        """Return the index of the operator that computes the tensor."""
        return self.operators[-1].index


class CutPoints:
    """Cut of both models at every tensor that an ONNX value holds.

    ``values``: those that are compared. ``given``: the graph input that replaces each cut value, by name. ``cut``: the
    tensors that are given, by index. ``kept``: LiteRT's tensors, if known, which exclude those without memory. ``skipped``:
    tensors that are not compared.
    """

    def __init__(
        self,
        entry: Entry,
        session: OnnxRuntime,
        *,
        kept: Mapping[int, Array] | None = None,
        skipped: Collection[int] = (),
    ) -> None:
        self.entry, self.session = entry, session
        self.producers = producers(entry.subgraph)
        self.interface = MatchedInterface(entry, session)
        graph = session.proto.graph
        self.infos = {info.name: info for info in (*graph.value_info, *graph.output)}
        self.floats = {name for name, info in self.infos.items() if is_float(info)}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.values = [
            value
            for index, values in values_by_tensor(entry, session).items()
            for value in values
            if self._is_computed(entry.subgraph.tensors[index], value)
            and (kept is None or self.is_readable(value, kept))
        ]
        lowered = {index for node in graph.node for index in converted_operators(props(node.metadata_props))}
        self._owners = {value.name: self.producers[value.tensor].index for value in self.values}
        read = {name for node in graph.node for name in self.given_reads(node)}
        self.given = {
            value.name: value.name + _GIVEN
            for value in self.values
            if value.name in read and not self._is_alias(value, lowered)
        }
        self.fed = [value for value in self.values if value.name in self.given]
        self.cut = {value.tensor for value in self.fed}
        self.given_tensors = self.cut | {tensor.index for tensor in entry.inputs}
        self.submodels = sorted(
            (self._submodel(value) for value in self.values if value.tensor not in skipped), key=lambda one: one.last
        )

    def _is_computed(self, tensor: Tensor, value: TensorValue) -> bool:
        """True if both models compute a tensor; of a float tensor with parameters, LiteRT may compute integers."""
        stale = tensor.dtype.startswith("float") and tensor.quantization is not None
        known = value.name in self.makers and value.name in self.infos and tensor.index in self.producers
        return known and not (stale or tensor.is_variable or tensor.dtype in HANDLES)

    def is_readable(self, value: TensorValue, kept: Mapping[int, Array]) -> bool:
        """True if LiteRT has the tensor that a value holds, of the same rank and with its channels."""
        if value.tensor not in kept or not value.can_hold(kept[value.tensor]):
            return False
        tensor, array = self.entry.subgraph.tensors[value.tensor], kept[value.tensor]
        return array.ndim == tensor.rank or (
            not tensor.has_rank and (value.order is None or array.ndim == len(value.order))
        )

    def given_reads(self, node: NodeProto) -> Iterator[str]:
        """Yield the values that a node may read as operands: no result that its own operator computes and keeps as a state."""
        own = converted_operators(props(node.metadata_props))
        for name in read_names(node):
            is_own = self._owners.get(name) in own if own else self.is_own_state(name)
            if not is_own:
                yield name

    def is_own_state(self, value: str) -> bool:
        """True if a value's operator has variable operands, so that a state that it becomes is its own result."""
        producer = self._owners.get(value)
        inputs = () if producer is None else self.entry.subgraph.operators[producer].inputs
        return any(tensor is not None and tensor.is_variable for tensor in inputs)

    def _is_alias(self, value: TensorValue, lowered: Collection[int]) -> bool:
        """True if a tensor's operator has no nodes, where others have: its value is also that of its operand."""
        producer = self.producers.get(value.tensor)
        return producer is not None and bool(lowered) and producer.index not in lowered

    def _submodel(self, value: TensorValue) -> Submodel:
        chosen: dict[int, Operator] = {}
        leaves: set[int] = set()
        waiting = [value.tensor]
        while waiting:
            operator = self.producers.get(waiting.pop())
            if operator is None or operator.index in chosen:
                continue
            chosen[operator.index] = operator
            for tensor in operands(operator):
                if tensor.index in self.cut or tensor.index not in self.producers:
                    leaves.add(tensor.index)
                else:
                    waiting.append(tensor.index)
        operators = tuple(chosen[index] for index in sorted(chosen))
        recurrent = any(
            op.index in self.recurrent or any(t is not None and t.is_variable for t in op.inputs) for op in operators
        )
        tensor = self.entry.subgraph.tensors[value.tensor]
        return Submodel(value, tensor, operators, frozenset(leaves), *self._onnx_sources(value), recurrent)

    def _onnx_sources(self, value: TensorValue) -> tuple[frozenset[int], frozenset[int]]:
        """Return the tensors that a value is computed from in the cut model, and the operators of its nodes."""
        leaves: set[int] = set()
        operators: set[int] = set()
        seen: set[str] = set()
        waiting = [value.name]
        while waiting:
            name = waiting.pop()
            if name in seen or name in self._states:
                continue
            seen.add(name)
            if name in self._held and name != value.name:
                leaves.add(self._held[name])
            elif name in self.makers:
                operators.update(_operators(self.makers[name]))
                waiting += read_names(self.makers[name])
        return frozenset(leaves), frozenset(operators)

    @cached_property
    def recurrent(self) -> Collection[int]:
        """Operators that become loops, branches or recurrent nodes."""
        nodes = self.session.proto.graph.node
        return {
            k for node in nodes if node.op_type in _RECURRENT for k in converted_operators(props(node.metadata_props))
        }

    @cached_property
    def kernel_errors(self) -> Mapping[int, float]:
        """Absolute errors of ONNX Runtime's float kernels, by operator."""
        nodes = [node for node in self.session.proto.graph.node if node.op_type in criteria.KERNELS]
        return {
            k: criteria.KERNELS[node.op_type] for node in nodes for k in converted_operators(props(node.metadata_props))
        }

    def by_index(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Return the inputs of a run by tensor index."""
        return {tensor.index: array for tensor, array in zip(self.entry.inputs, inputs, strict=True)}

    @cached_property
    def _held(self) -> Mapping[str, int]:
        """Tensors by the cut value or the graph input that holds them."""
        entered = zip(self.interface.inputs, self.entry.inputs, strict=True)
        return {value.name: value.tensor for value in self.fed} | {info.name: t.index for info, t in entered}

    @cached_property
    def _states(self) -> Collection[str]:
        return {state.input for state in self.session.states}

    def segments(self, limit: int, shapes: Mapping[int, Sequence[int]]) -> list[list[Submodel]]:
        """Return the submodels in execution order, in groups whose tensors and weights take at most ``limit`` bytes.

        A single submodel may take more. An operand of a group is computed in it or before it. ``shapes``: the actual ones, by
        tensor, where they are known.
        """
        tensors = self.entry.subgraph.tensors
        ready = {
            one.value.name: max([one.last, *(self.producers[k].index for k in one.onnx_leaves if k in self.producers)])
            for one in self.submodels
        }
        groups: list[list[Submodel]] = []
        size = limit + 1
        seen: set[int] = set()
        for one in sorted(self.submodels, key=lambda one: ready[one.value.name]):
            used = {t.index for op in one.operators for t in (*op.inputs, *op.outputs) if t is not None} - seen
            added = sum(_FLOAT * prod(shapes.get(index, tensors[index].shape)) for index in used)
            if size + added > limit:
                groups.append([])
                size = 0
                seen.clear()
            groups[-1].append(one)
            seen |= used
            size += added
        return groups


def read_names(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, with those that its bodies read."""
    yield from (name for name in node.input if name)
    for graph in _bodies(node):
        for inner in graph.node:
            yield from read_names(inner)
        yield from (info.name for info in graph.output)


def _operators(node: NodeProto) -> Iterator[int]:
    """Yield the TFLite operators that a node and those of its bodies belong to."""
    yield from converted_operators(props(node.metadata_props))
    for graph in _bodies(node):
        for inner in graph.node:
            yield from _operators(inner)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def fixed_tensors(operators: Sequence[Operator]) -> set[int]:
    """Return the tensors that are computed from constants alone, which the ONNX model may hold as constants of its own."""
    fixed: set[int] = set()
    for operator in operators:
        taken = [t for t in operator.inputs if t is not None]
        if taken and all(t.is_constant or t.index in fixed for t in taken):
            fixed |= {t.index for t in operator.outputs if t is not None}
    return fixed
