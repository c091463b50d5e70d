"""Points where both models are cut, and the submodels between them.

A point is an ONNX value that holds a TFLite tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import assumed_tensors, top_level_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.comparison.tensors import values_by_tensor
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface
from onnx_tflite_plugin.verify.runtimes.dequantized import is_float
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry, operands, producers

if TYPE_CHECKING:
    from onnx import NodeProto

_INPUT_SUFFIX = ":given"  # of the graph input that replaces a cut value
_RECURRENT = {"Loop", "Scan", "If", "LSTM", "GRU", "RNN"}
_FLOAT_BYTES = 4  # per element, because weights are dequantized


class Submodel(NamedTuple):
    """Operators that compute a tensor from cut tensors and graph inputs.

    ``value``: the ONNX value that holds the tensor. ``leaves``: indices of the cut tensors and graph inputs that the
    operators read. ``onnx_leaves``: indices of the cut tensors and graph inputs that the ONNX nodes of ``value`` read.
    ``onnx_operators``: indices of the operators that these nodes were lowered from. ``is_recurrent``: an operator has
    states, or becomes a loop, branch or recurrent node.
    """

    value: TensorValue
    tensor: Tensor
    operators: tuple[Operator, ...]
    leaves: frozenset[int]
    onnx_leaves: frozenset[int]
    onnx_operators: frozenset[int]
    is_recurrent: bool

    @property
    def is_comparable(self) -> bool:
        """True if the ONNX submodel reads only ``leaves`` and has no further operators.

        It reads other tensors if a tensor has a second ONNX value, which is not cut.
        """
        return self.onnx_leaves <= self.leaves and not self.onnx_operators > {op.index for op in self.operators}

    @property
    def inner_tensors(self) -> list[Tensor]:
        """Return the quantized intermediate tensors."""
        outputs = (t for operator in self.operators for t in operator.outputs if t is not None and t is not self.tensor)
        return [tensor for tensor in outputs if affine(tensor) is not None]

    @property
    def last_operator(self) -> int:
        """Return the index of the operator that computes the tensor."""
        return self.operators[-1].index


class CutPoints:
    """Cut of both models at every tensor that an ONNX value holds.

    Parameters: ``arrays``: tensor index -> array in LiteRT after a run; other tensors have no memory and are excluded. ``skipped``:
    tensors that are not compared.

    Attributes: ``values``: ONNX values that are compared. ``replaced_values``: values that a graph input replaces.
    ``input_names``: value name -> name of this graph input. ``cut_tensors``: indices of the tensors that
    ``replaced_values`` hold. ``input_tensors``: cut tensors and inputs of the model. ``assumed_tensors``: tensors about
    whose values a handler makes an assumption.
    """

    def __init__(
        self,
        entry: Entry,
        session: OnnxRuntime,
        *,
        arrays: Mapping[int, Array] | None = None,
        skipped: Collection[int] = (),
    ) -> None:
        self.entry, self.session = entry, session
        self.producers = producers(entry.subgraph)
        self.interface = MatchedInterface(entry, session)
        graph = session.proto.graph
        self.infos = {info.name: info for info in (*graph.value_info, *graph.output)}
        self.float_values = {name for name, info in self.infos.items() if is_float(info)}
        self.producer_nodes = {name: node for node in graph.node for name in node.output}
        self.values = [
            value
            for index, values in values_by_tensor(entry, session).items()
            for value in values
            if self._is_computed(entry.subgraph.tensors[index], value)
            and (arrays is None or self.is_readable(value, arrays))
        ]
        self.assumed_tensors = {
            index
            for node in graph.node
            for subgraph, index in assumed_tensors(props(node.metadata_props))
            if subgraph == entry.subgraph.index
        }
        lowered_operators = {index for node in graph.node for index in top_level_operators(props(node.metadata_props))}
        self._producing_operators = {value.name: self.producers[value.tensor].index for value in self.values}
        operand_names = {name for node in graph.node for name in self.operand_names(node)}
        operand_names |= {state.output for state in session.states if not self.is_own_state(state.output)}
        self.input_names = {
            value.name: value.name + _INPUT_SUFFIX
            for value in self.values
            if value.name in operand_names and not self._is_alias(value, lowered_operators)
        }
        self.replaced_values = [value for value in self.values if value.name in self.input_names]
        self.cut_tensors = {value.tensor for value in self.replaced_values}
        self.input_tensors = self.cut_tensors | {tensor.index for tensor in entry.inputs}
        self.submodels = sorted(
            (self._submodel(value) for value in self.values if value.tensor not in skipped),
            key=lambda submodel: submodel.last_operator,
        )

    def _is_computed(self, tensor: Tensor, value: TensorValue) -> bool:
        """True if both models compute a tensor.

        A float tensor with quantization parameters is excluded, because LiteRT may compute integers.
        """
        may_be_integer = tensor.dtype.startswith("float") and tensor.quantization is not None
        is_computed = value.name in self.producer_nodes and value.name in self.infos and tensor.index in self.producers
        return is_computed and not (may_be_integer or tensor.is_variable or tensor.dtype in HANDLES)

    def is_readable(self, value: TensorValue, arrays: Mapping[int, Array]) -> bool:
        """True if LiteRT returned the value's tensor with the expected rank and channels."""
        if value.tensor not in arrays or not value.can_hold(arrays[value.tensor]):
            return False
        tensor, array = self.entry.subgraph.tensors[value.tensor], arrays[value.tensor]
        return array.ndim == tensor.rank or (
            not tensor.has_rank and (value.order is None or array.ndim == len(value.order))
        )

    def operand_names(self, node: NodeProto) -> Iterator[str]:
        """Yield the values that a node reads, except new states of its own operator."""
        operators = top_level_operators(props(node.metadata_props))
        for name in read_names(node):
            is_own_result = self._producing_operators.get(name) in operators if operators else self.is_own_state(name)
            if not is_own_result:
                yield name

    def is_own_state(self, value: str) -> bool:
        """True if a value may be the new state of an operator with variable operands."""
        producer = self._producing_operators.get(value)
        inputs = () if producer is None else self.entry.subgraph.operators[producer].inputs
        return any(tensor is not None and tensor.is_variable for tensor in inputs)

    def _is_alias(self, value: TensorValue, lowered_operators: Collection[int]) -> bool:
        """True if a tensor shares its operand's value because its operator has no nodes.

        ``lowered_operators``: indices of operators that have nodes.
        """
        producer = self.producers.get(value.tensor)
        return producer is not None and bool(lowered_operators) and producer.index not in lowered_operators

    def _submodel(self, value: TensorValue) -> Submodel:
        """Return the submodel that computes a value."""
        by_index: dict[int, Operator] = {}
        leaves: set[int] = set()
        pending = [value.tensor]
        while pending:
            operator = self.producers.get(pending.pop())
            if operator is None or operator.index in by_index:
                continue
            by_index[operator.index] = operator
            for tensor in operands(operator):
                if tensor.index in self.cut_tensors or tensor.index not in self.producers:
                    leaves.add(tensor.index)
                else:
                    pending.append(tensor.index)
        operators = tuple(by_index[index] for index in sorted(by_index))
        is_recurrent = any(
            op.index in self.recurrent_operators or any(t is not None and t.is_variable for t in op.inputs)
            for op in operators
        )
        tensor = self.entry.subgraph.tensors[value.tensor]
        return Submodel(value, tensor, operators, frozenset(leaves), *self._onnx_sources(value), is_recurrent)

    def _onnx_sources(self, value: TensorValue) -> tuple[frozenset[int], frozenset[int]]:
        """Return the tensors and operators from which the cut ONNX model computes a value."""
        leaves: set[int] = set()
        operators: set[int] = set()
        visited: set[str] = set()
        pending = [value.name]
        while pending:
            name = pending.pop()
            if name in visited or name in self._states:
                continue
            visited.add(name)
            if name in self._tensors_by_name and name != value.name:
                leaves.add(self._tensors_by_name[name])
            elif name in self.producer_nodes:
                operators.update(_operator_indices(self.producer_nodes[name]))
                pending += read_names(self.producer_nodes[name])
        return frozenset(leaves), frozenset(operators)

    @cached_property
    def recurrent_operators(self) -> Collection[int]:
        """Indices of operators that become loops, branches or recurrent nodes."""
        nodes = self.session.proto.graph.node
        return {
            k for node in nodes if node.op_type in _RECURRENT for k in top_level_operators(props(node.metadata_props))
        }

    @cached_property
    def kernel_errors(self) -> Mapping[int, float]:
        """Operator index -> absolute error of ONNX Runtime's float kernel."""
        nodes = [node for node in self.session.proto.graph.node if node.op_type in criteria.KERNELS]
        return {
            k: criteria.KERNELS[node.op_type] for node in nodes for k in top_level_operators(props(node.metadata_props))
        }

    def inputs_by_index(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Return tensor index -> input of a run."""
        return {tensor.index: array for tensor, array in zip(self.entry.inputs, inputs, strict=True)}

    @cached_property
    def _tensors_by_name(self) -> Mapping[str, int]:
        """Name of each cut value and graph input -> tensor index."""
        graph_inputs = zip(self.interface.inputs, self.entry.inputs, strict=True)
        cut_values = {value.name: value.tensor for value in self.replaced_values}
        return cut_values | {info.name: tensor.index for info, tensor in graph_inputs}

    @cached_property
    def _states(self) -> Collection[str]:
        """Names of the inputs that hold states."""
        return {state.input for state in self.session.states}

    def segments(self, limit: int, shapes: Mapping[int, Sequence[int]]) -> list[list[Submodel]]:
        """Return the submodels in execution order, in groups of at most ``limit`` bytes.

        The limit applies to tensors and weights; a group of one submodel may exceed it. Every operand of a group is
        computed in the group or before it. ``shapes``: tensor index -> actual shape, where it differs from the file.
        """
        tensors = self.entry.subgraph.tensors
        ready_positions = {
            submodel.value.name: max(
                [
                    submodel.last_operator,
                    *(self.producers[k].index for k in submodel.onnx_leaves if k in self.producers),
                ]
            )
            for submodel in self.submodels
        }
        groups: list[list[Submodel]] = []
        group_bytes = limit + 1
        counted_tensors: set[int] = set()
        for submodel in sorted(self.submodels, key=lambda submodel: ready_positions[submodel.value.name]):
            indices = {t.index for op in submodel.operators for t in (*op.inputs, *op.outputs) if t is not None}
            new_tensors = indices - counted_tensors
            new_bytes = sum(_FLOAT_BYTES * prod(shapes.get(index, tensors[index].shape)) for index in new_tensors)
            if group_bytes + new_bytes > limit:
                groups.append([])
                group_bytes = 0
                counted_tensors.clear()
            groups[-1].append(submodel)
            counted_tensors |= new_tensors
            group_bytes += new_bytes
        return groups


def read_names(node: NodeProto) -> Iterator[str]:
    """Yield the names of values that a node and its subgraphs read."""
    yield from (name for name in node.input if name)
    for subgraph in node_subgraphs(node):
        for inner in subgraph.node:
            yield from read_names(inner)
        yield from (info.name for info in subgraph.output)


def _operator_indices(node: NodeProto) -> Iterator[int]:
    """Yield the indices of the TFLite operators of a node and of its subgraphs."""
    yield from top_level_operators(props(node.metadata_props))
    for subgraph in node_subgraphs(node):
        for inner in subgraph.node:
            yield from _operator_indices(inner)
