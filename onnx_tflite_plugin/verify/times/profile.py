"""Find the operators that make a conversion slower than its original: the time of each in LiteRT and in ONNX Runtime.

ONNX Runtime profiles its nodes. LiteRT's package has no profiler, so every operator becomes a model of its own, which is
fed with the values that it meets in the whole and timed alone. What ONNX Runtime computes in one node stays together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.metadata import converted_operators, props
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.runtimes.structure import operands
from onnx_tflite_plugin.verify.times.isolation import isolated_times
from onnx_tflite_plugin.verify.times.nodes import NodeTime, node_times

if TYPE_CHECKING:
    from onnx import ModelProto

_LEAST, _MOST, _TIME = 20, 200, 1.0  # runs, at least and at most, and for how many seconds

_Kinds = defaultdict[int, set[str]]  # of nodes as they were converted, by operator
_Nodes = defaultdict[int, list[NodeTime]]
_MOVES = ("ReorderInput", "ReorderOutput")  # to and from the blocked layout; they compute nothing


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """TFLite operators, by index and code, that ONNX Runtime computes together, in ``nodes`` of its own graph.

    Without operators: the nodes that belong to none.
    ``name``: their last output's. Seconds a run; ``litert`` is None where they do not run by themselves.
    """

    operators: tuple[int, ...]
    codes: tuple[str, ...]
    name: str
    nodes: tuple[str, ...]
    litert: float | None
    onnxruntime: float

    @property
    def loss(self) -> float:
        """Return the seconds that ONNX Runtime takes longer."""
        return self.onnxruntime - (self.litert or 0.0)


@dataclass(frozen=True, slots=True)
class KindTime:
    """The sums of ``number`` groups of operators."""

    codes: tuple[str, ...]
    number: int
    litert: float
    onnxruntime: float

    @classmethod
    def of(cls, codes: Sequence[str], rows: Sequence[OperatorTime]) -> KindTime:
        litert = sum(row.litert or 0.0 for row in rows)
        return cls(tuple(codes), len(rows), litert, sum(row.onnxruntime for row in rows))

    @property
    def loss(self) -> float:
        return self.onnxruntime - self.litert


@dataclass(frozen=True, slots=True)
class Group:
    """Operators whose nodes cannot be told apart, and those nodes."""

    operators: tuple[Operator, ...]
    nodes: tuple[NodeTime, ...]

    def time_of(self, litert: float | None) -> OperatorTime:
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
    trial: Trial, proto: ModelProto, arrays: Run, feeds: Mapping[str, Array], seconds: float, progress: Progress
) -> list[OperatorTime]:
    """Return every group of operators, the one that loses most first; ``seconds`` is the time of a run in ONNX Runtime.

    LiteRT's times are without the cost of a bare call. Raises LiteRTError and OrtError if a model does not run, and
    VerificationError if the ONNX model does not declare the operators of its nodes.
    """
    if not any(converted_operators(props(node.metadata_props)) for node in proto.graph.node):
        raise VerificationError("the ONNX model does not say which operators its nodes were lowered from: no profile")
    progress("profiling ONNX Runtime")
    rounds = min(_MOST, max(_LEAST, round(_TIME / seconds)))
    times = node_times(proto, feeds, rounds)
    groups = list(group_operators(trial.entry.subgraph.operators, proto, times))
    original = trial.litert_session("builtin", preserve=True)
    original.run(arrays)
    progress(f"timing {len(groups)} operators in LiteRT")
    graph = trial.entry.subgraph
    alone = isolated_times(trial.data, [group.operators for group in groups], graph, original.tensors(), rounds)
    rows = (group.time_of(litert) for group, litert in zip(groups, alone, strict=True))
    return sorted(rows, key=lambda row: -row.loss)


def by_code(rows: Iterable[OperatorTime]) -> list[KindTime]:
    """Return the groups of equal codes together, those that lose most first."""
    groups: dict[tuple[str, ...], list[OperatorTime]] = defaultdict(list)
    for row in rows:
        groups[tuple(format_names(row.codes))].append(row)
    return sorted((KindTime.of(codes, group) for codes, group in groups.items()), key=lambda kind: -kind.loss)


def format_names(names: Sequence[str]) -> list[str]:
    """Return each name once, in order of first occurrence, with its count."""
    return [name if count == 1 else f"{count} {name}" for name, count in Counter(names).items()]


def group_operators(operators: Sequence[Operator], proto: ModelProto, times: Sequence[NodeTime]) -> Iterator[Group]:
    """Yield the operators of a subgraph in groups that share no node, in execution order.

    One node may be lowered from several operators. An operator whose nodes ONNX Runtime has fused into others belongs to
    the only reader of its result if that has gained a node of its kind, else to the producer of its operand.
    """
    kinds: _Kinds = defaultdict(set)
    parts = _Parts()
    for node in proto.graph.node:
        sources = converted_operators(props(node.metadata_props))
        for index in sources:
            kinds[index].add(node.op_type)
            parts.join(sources[0], index)
    nodes: _Nodes = defaultdict(list)
    for node in times:
        if node.operator is not None:
            nodes[node.operator].append(node)
    _join_fused(operators, kinds, nodes, parts)
    members: dict[int, list[Operator]] = defaultdict(list)
    for op in operators:
        members[parts.first(op.index)].append(op)
    if loose := [node for node in times if node.operator is None]:
        yield Group((), tuple(loose))
    for group in members.values():
        yield Group(tuple(group), tuple(node for op in group for node in nodes[op.index]))


def _join_fused(operators: Sequence[Operator], kinds: _Kinds, nodes: _Nodes, parts: _Parts) -> None:
    """Join operators without a timed node of their own to their reader, else to the producer of their operand."""
    timed = {parts.first(k) for k, own in nodes.items() if any(node.op_type not in _MOVES for node in own)}
    readers: dict[Tensor, set[int]] = defaultdict(set)
    for op in operators:
        for tensor in operands(op):
            readers[tensor].add(op.index)
    for op in operators:
        if parts.first(op.index) in timed:
            continue
        users = {user for tensor in op.outputs if tensor is not None for user in readers[tensor]}
        if len(users) == 1 and _gained_nodes(kinds[op.index], users, kinds, nodes):
            parts.join(users.pop(), op.index)
            timed.add(parts.first(op.index))
    makers = {tensor: op.index for op in operators for tensor in op.outputs if tensor is not None}
    for op in operators:
        if parts.first(op.index) not in timed:
            before = next((makers[tensor] for tensor in operands(op) if tensor in makers), None)
            if before is not None:
                parts.join(before, op.index)


def _gained_nodes(kinds: set[str], users: Iterable[int], others: _Kinds, nodes: _Nodes) -> bool:
    """True if nodes of the users have one of these types and were not converted so: ``Conv`` may be a ``QLinearConv``."""
    return any(
        kind in node.op_type and not any(kind in own for own in others[user])
        for user in users
        for node in nodes[user]
        for kind in kinds
    )


class _Parts:
    """Disjoint sets of numbers, each told by its least."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def first(self, number: int) -> int:
        while (parent := self._parents.get(number, number)) != number:
            number = parent
        return number

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.first(one), self.first(other)))
        self._parents[high] = low
