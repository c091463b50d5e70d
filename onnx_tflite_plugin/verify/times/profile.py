"""Profile of a conversion: time of each operator in LiteRT and in ONNX Runtime.

ONNX Runtime profiles its nodes. LiteRT's package has no profiler, so each operator is timed in isolation, as a separate
model on the operands that it has in the whole model. Operators that ONNX Runtime computes in one node are timed
together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.disjoint_sets import DisjointSets
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.runtimes.structure import operands
from onnx_tflite_plugin.verify.times.isolation import isolated_times
from onnx_tflite_plugin.verify.times.nodes import NodeTime, node_times

if TYPE_CHECKING:
    from onnx import ModelProto

_MIN_ROUNDS, _MAX_ROUNDS, _SECONDS = 20, 200, 1.0  # within these limits, rounds take about one second

_NodeTypes = defaultdict[int, set[str]]  # types of an operator's nodes in the converted model, by operator
_Nodes = defaultdict[int, list[NodeTime]]  # timed nodes of an operator
_REORDERS = ("ReorderInput", "ReorderOutput")  # to and from the blocked layout; they compute nothing


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Times of TFLite operators that ONNX Runtime computes together, in seconds.

    Times are per run. ``operators`` and ``codes``: indices and codes of the operators; empty for nodes without an
    operator. ``name``: the name of the last output. ``nodes``: types of the nodes in ONNX Runtime's graph. ``litert``:
    the time, or None if the operators do not run in isolation.
    """

    operators: tuple[int, ...]
    codes: tuple[str, ...]
    name: str
    nodes: tuple[str, ...]
    litert: float | None
    onnxruntime: float

    @property
    def loss(self) -> float:
        """Return how much longer ONNX Runtime takes, in seconds per run."""
        return self.onnxruntime - (self.litert or 0.0)


@dataclass(frozen=True, slots=True)
class KindTime:
    """Sum of times of ``count`` groups of operators with equal codes, in seconds."""

    codes: tuple[str, ...]
    count: int
    litert: float
    onnxruntime: float

    @classmethod
    def of(cls, codes: Sequence[str], rows: Sequence[OperatorTime]) -> KindTime:
        litert = sum(row.litert or 0.0 for row in rows)
        return cls(tuple(codes), len(rows), litert, sum(row.onnxruntime for row in rows))

    @property
    def loss(self) -> float:
        """Return how much longer ONNX Runtime takes, in seconds per run."""
        return self.onnxruntime - self.litert


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that share nodes in ONNX Runtime's graph, and these nodes."""

    operators: tuple[Operator, ...]
    nodes: tuple[NodeTime, ...]

    def time_of(self, litert: float | None) -> OperatorTime:
        """Return the group's times. ``litert``: LiteRT's time of the group."""
        outputs = [tensor for op in self.operators[-1:] for tensor in op.outputs if tensor is not None]
        return OperatorTime(
            tuple(operator.index for operator in self.operators),
            tuple(operator.code for operator in self.operators),
            outputs[0].name if outputs else "",
            tuple(node.op_type for node in self.nodes),
            litert,
            sum(node.seconds for node in self.nodes),
        )


def profile(
    trial: Trial,
    proto: ModelProto,
    arrays: Run,
    feeds: Mapping[str, Array],
    seconds: float,
    progress: Progress,
    *,
    threads: int = 1,
) -> list[OperatorTime]:
    """Return the times of every group of operators; the largest loss comes first.

    ``seconds``: time of a run in ONNX Runtime with ``threads``; with one thread, the times of nodes add up to at most
    this time. LiteRT's times exclude the overhead of a call. Raises LiteRTError or OrtError if a model does not run, and
    VerificationError if the ONNX model does not declare the operators of its nodes.
    """
    if not any(top_level_operators(props(node.metadata_props)) for node in proto.graph.node):
        raise VerificationError(
            "the ONNX model does not record from which operators its nodes were lowered, so operators cannot be timed; "
            "convert the TFLite model again"
        )
    progress("profiling ONNX Runtime")
    rounds = min(_MAX_ROUNDS, max(_MIN_ROUNDS, round(_SECONDS / seconds)))
    times = node_times(proto, feeds, rounds, seconds if threads == 1 else None)
    groups = list(group_operators(trial.entry.subgraph.operators, proto, times))
    litert_session = trial.litert_session("builtin", preserve=True)
    litert_session.run(arrays)
    progress(f"timing {len(groups)} operators in LiteRT")
    graph = trial.entry.subgraph
    litert_times = isolated_times(
        trial.data, [group.operators for group in groups], graph, litert_session.tensors(), rounds
    )
    rows = (group.time_of(litert) for group, litert in zip(groups, litert_times, strict=True))
    return sorted(rows, key=lambda row: -row.loss)


def by_code(rows: Iterable[OperatorTime]) -> list[KindTime]:
    """Return the sums over groups with equal codes; the largest loss comes first."""
    groups: dict[tuple[str, ...], list[OperatorTime]] = defaultdict(list)
    for row in rows:
        groups[tuple(format_names(row.codes))].append(row)
    return sorted((KindTime.of(codes, group) for codes, group in groups.items()), key=lambda kind: -kind.loss)


def format_names(names: Sequence[str]) -> list[str]:
    """Return each name once, in order of first occurrence, with its count."""
    return [name if count == 1 else f"{count} {name}" for name, count in Counter(names).items()]


def group_operators(operators: Sequence[Operator], proto: ModelProto, times: Sequence[NodeTime]) -> Iterator[Group]:
    """Yield the operators of a subgraph in groups that share no node, in order.

    Operators that were lowered to a common node are one group. If ONNX Runtime fused all nodes of an operator into other
    nodes, it joins the group of another operator: the only reader of its result, if the reader now has a node of its
    type; otherwise the producer of its operand.
    """
    node_types: _NodeTypes = defaultdict(set)
    sets = DisjointSets()
    for node in proto.graph.node:
        sources = top_level_operators(props(node.metadata_props))
        for index in sources:
            node_types[index].add(node.op_type)
            sets.join(sources[0], index)
    nodes: _Nodes = defaultdict(list)
    for node in times:
        if node.operator is not None:
            nodes[node.operator].append(node)
    _join_fused(operators, node_types, nodes, sets)
    members: dict[int, list[Operator]] = defaultdict(list)
    for op in operators:
        members[sets.representative(op.index)].append(op)
    if unassigned_nodes := [node for node in times if node.operator is None]:
        yield Group((), tuple(unassigned_nodes))
    for group in members.values():
        yield Group(tuple(group), tuple(node for op in group for node in nodes[op.index]))


def _join_fused(operators: Sequence[Operator], node_types: _NodeTypes, nodes: _Nodes, sets: DisjointSets) -> None:
    """Join operators without a timed node to their reader, or to a producer."""
    timed_groups = {
        sets.representative(k)
        for k, operator_nodes in nodes.items()
        if any(node.op_type not in _REORDERS for node in operator_nodes)
    }
    readers: dict[Tensor, set[int]] = defaultdict(set)
    for op in operators:
        for tensor in operands(op):
            readers[tensor].add(op.index)
    for op in operators:
        if sets.representative(op.index) in timed_groups:
            continue
        users = {user for tensor in op.outputs if tensor is not None for user in readers[tensor]}
        if len(users) == 1 and _has_gained_nodes(node_types[op.index], users, node_types, nodes):
            sets.join(users.pop(), op.index)
            timed_groups.add(sets.representative(op.index))
    producers = {tensor: op.index for op in operators for tensor in op.outputs if tensor is not None}
    for op in operators:
        if sets.representative(op.index) not in timed_groups:
            producer = next((producers[tensor] for tensor in operands(op) if tensor in producers), None)
            if producer is not None:
                sets.join(producer, op.index)


def _has_gained_nodes(op_types: set[str], users: Iterable[int], node_types: _NodeTypes, nodes: _Nodes) -> bool:
    """True if a user has a node of these types only after optimization.

    The type may be part of the node's type: a ``Conv`` may become a ``QLinearConv``.
    """
    return any(
        op_type in node.op_type and not any(op_type in own_type for own_type in node_types[user])
        for user in users
        for node in nodes[user]
        for op_type in op_types
    )
