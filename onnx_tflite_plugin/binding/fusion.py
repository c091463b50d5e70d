"""The fusion stage: several bound operators that spell out one become one, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

from onnx_tflite_plugin.api.checked import described
from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.api.patterns import Call, Fusion, Match, Operand, Output
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import At, resolved, types_refused
from onnx_tflite_plugin.guard import Failed, Mismatch, guarded
from onnx_tflite_plugin.source.model import Operator, Options, Subgraph, Tensor
from onnx_tflite_plugin.targets.base import Target


@dataclass
class Fused:
    """What the stage did: names of fusions with how often they applied, and why matches were declined.

    ``failed``: fusions that failed, by name; their operators stay as they are.
    """

    model: BoundModel
    applied: dict[str, int] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)
    failed: dict[str, Failed] = field(default_factory=dict)


def fuse(
    model: BoundModel,
    fusions: Iterable[tuple[str, Fusion]],
    target: Target,
    *,
    opset: int | None = None,
    inexact: bool = False,
) -> Fused:
    """Apply every fusion that ``opset`` can express wherever it matches; later ones see the results of earlier ones.

    ``opset``: the one asked for; None is the target's default. The inexact come last.
    """
    done = Fused(model)
    stage = _Stage(target, opset or target.opsets[1], opset or target.opsets[2], done, model.subgraphs, {})
    for pack, fusion in sorted(fusions, key=lambda item: not item[1].exact):
        wanted = (fusion.exact or inexact) and (not fusion.trait or getattr(target, fusion.trait))
        least = fusion.handler.min_opset
        if wanted and (callable(least) or least <= stage.opset):
            graphs = tuple(_fuse_graph(graph, pack, fusion, stage) for graph in done.model.graphs)
            done.model = BoundModel(model.source, graphs)
    return done


class _Stage(NamedTuple):
    """What fusions must fit: the model's ``opset``, and the ``highest`` that it might be given."""

    target: Target
    opset: int
    highest: int
    done: Fused
    graphs: Sequence[Subgraph]
    finders: dict[BoundGraph, _Finder]

    def finder(self, graph: BoundGraph) -> _Finder:
        """The same for every fusion, until one of them changes the graph."""
        if graph not in self.finders:
            self.finders[graph] = _Finder(graph, self.graphs)
        return self.finders[graph]


def _fuse_graph(graph: BoundGraph, pack: str, fusion: Fusion, stage: _Stage) -> BoundGraph:
    roots = {pattern.code for pattern in fusion.patterns}
    if not any(bound.handler.code in roots for bound in graph.operators):
        return graph
    finder = stage.finder(graph)
    operators = list(graph.operators)
    gone: set[Bound] = set()
    shared: set[Bound] = set()
    applied = stage.done.applied
    for root in reversed(graph.operators):  # the last first: the longest match wins
        if root.handler.code not in roots or root in gone:
            continue
        for pattern in fusion.patterns:
            match = finder.find(pattern, root, gone) if pattern.code == root.handler.code else None
            if match is None:
                continue
            try:
                replaced = _replacement(fusion, pack, pattern, match, root, stage)
            except Failed as failed:
                stage.done.failed[fusion.name] = failed
                stage.done.declined.append(f"{fusion.name} at {root.label}: {failed.reason}")
                return graph.with_operators(_kept(graph, operators, gone, shared))
            if replaced is not None:
                for call, op in match.calls.items():
                    (shared if call.shared else gone).add(finder.bound(op))
                operators[finder.place(pattern, match)] = replaced
                applied[fusion.name] = applied.get(fusion.name, 0) + 1
            break
    return graph.with_operators(_kept(graph, operators, gone, shared)) if gone else graph


def _kept(graph: BoundGraph, operators: Sequence[Bound], gone: set[Bound], shared: set[Bound]) -> tuple[Bound, ...]:
    """What is left: of ``shared`` operators those whose results are still used."""
    kept: list[Bound] = []
    used = set(graph.outputs)
    for bound, before in reversed(list(zip(operators, graph.operators, strict=True))):
        if bound is before and (bound in gone or (bound in shared and used.isdisjoint(bound.op.outputs))):
            continue
        kept.append(bound)
        used.update(tensor for tensor in bound.op.inputs if tensor is not None)
    return tuple(reversed(kept))


def _replacement(fusion: Fusion, pack: str, pattern: Call, match: Match, root: Bound, stage: _Stage) -> Bound | None:
    """The operator in place of a match, its declarations read; None where it is declined, or of a newer opset."""
    options = _typed(fusion, pack, match, root, stage) or _options(fusion, pack, match, root)
    if isinstance(options, Decline):
        if options.reason:
            stage.done.declined.append(f"{fusion.name} at {root.label}: {options.reason}")
        return None
    op = root.op
    members = tuple(sorted({*match.calls.values()}, key=lambda member: member.index))
    results = [tensor for call in (pattern, *pattern.beside) for tensor in match.calls[call].outputs]
    between = [tensor for member in members for tensor in member.intermediates]
    fused = Operator(
        op.subgraph, op.index, fusion.name, fusion.name, 1, Options(fusion.name, options),
        tuple(match.tensors.get(operand) for operand in fusion.inputs), tuple(results), tuple(between),
    )  # fmt: skip
    try:
        bound = resolved(Bound(fused, fusion.handler, pack, members), stage.target, stage.highest)
    except Refused as refusal:
        stage.done.declined.append(f"{fusion.name} at {root.label}: {refusal}")
        return None
    if bound.declared.min_opset > stage.opset:
        stage.done.declined.append(f"{fusion.name} at {root.label}: it needs opset {bound.declared.min_opset}")
        return None
    return bound


def _typed(fusion: Fusion, pack: str, match: Match, root: Bound, stage: _Stage) -> Decline | None:
    """Why the operands' dtypes are none that the fusion takes; a function of them sees no options yet."""
    op = root.op
    operands = tuple(match.tensors.get(operand) for operand in fusion.inputs)
    probe = Operator(op.subgraph, op.index, fusion.name, fusion.name, 1, Options(), operands, op.outputs)
    reason = types_refused(fusion.handler, pack, At(probe, stage.target, stage.highest))
    return Decline(reason) if reason else None


def _options(fusion: Fusion, pack: str, match: Match, root: Bound) -> Mapping[str, Any] | Decline:
    """What ``where`` says of a match; a refusal declines. Raises Failed where it fails."""
    with guarded(f"where of fusion {fusion.name}", pack, fusion.where, root.label):
        try:
            options = fusion.where(match)
        except Refused as refusal:
            return Decline(str(refusal))
        if not isinstance(options, Mapping | Decline):
            raise Mismatch(f"it returned {described(options)}, not a mapping of options or a Decline")
        return options


class _Finder:
    """Looks for patterns upwards from a root."""

    def __init__(self, graph: BoundGraph, graphs: Sequence[Subgraph]) -> None:
        self.graphs = graphs
        self.makers = {t: bound for bound in graph.operators for t in bound.op.outputs if t is not None}
        self.by_op = {bound.op: bound for bound in graph.operators}
        self.positions = {bound.op: position for position, bound in enumerate(graph.operators)}
        self.users: dict[Tensor, list[Operator]] = {}
        self.outputs = set(graph.outputs)
        for bound in graph.operators:
            for tensor in bound.op.inputs:
                if tensor is not None:
                    self.users.setdefault(tensor, []).append(bound.op)

    def bound(self, op: Operator) -> Bound:
        return self.by_op[op]

    def find(self, pattern: Call, root: Bound, gone: set[Bound]) -> Match | None:
        """The first match whose last operator is ``root`` and of which nothing inside is used outside, unless shared."""
        matches = self._beside(pattern.beside, self._call(pattern, root, Match({}, {}, self.graphs)))
        return next((match for match in matches if self._closed(pattern, match, gone)), None)

    def _beside(self, calls: Sequence[Call], matches: Iterator[Match]) -> Iterator[Match]:
        """Matches that hold further calls too, wherever these are."""
        if not calls:
            yield from matches
            return
        for match in matches:
            for bound in self.by_op.values():
                yield from self._beside(calls[1:], self._call(calls[0], bound, match))

    def _closed(self, pattern: Call, match: Match, gone: set[Bound]) -> bool:
        members, ends = {*match.calls.values()}, self._ends(pattern, match)
        within = {op for call, op in match.calls.items() if op not in ends and not call.shared}
        inside = {tensor for op in within for tensor in op.outputs if tensor is not None}
        users = {user for tensor in inside for user in self.users.get(tensor, ())}
        return (
            users <= members
            and self.outputs.isdisjoint(inside)
            and not any(self.by_op[op] in gone for op in members)
            and not any(user in members for op in ends for user in self._users(op) if len(ends) > 1)
            and self.place(pattern, match) >= 0
        )

    def _ends(self, pattern: Call, match: Match) -> set[Operator]:
        return {match.calls[call] for call in (pattern, *pattern.beside)}

    def _users(self, op: Operator) -> Iterator[Operator]:
        return (user for tensor in op.outputs if tensor is not None for user in self.users.get(tensor, ()))

    def place(self, pattern: Call, match: Match) -> int:
        """The position of one of the last operators that all others may move to; -1 where there is none."""
        ends = self._ends(pattern, match)
        makers = (self.makers[tensor].op for tensor in match.tensors.values() if tensor in self.makers)
        earliest = max((self.positions[maker] for maker in makers), default=-1)
        latest = min((self.positions[user] for op in ends for user in self._users(op)), default=len(self.positions))
        fitting = (self.positions[op] for op in ends if earliest < self.positions[op] < latest)
        return max(fitting, default=-1)

    def _call(self, pattern: Call, bound: Bound, match: Match) -> Iterator[Match]:
        """Every way in which the operator is the pattern, given what is known so far."""
        op = bound.op
        seen = match.calls.get(pattern)
        if seen is not None:
            yield from (match,) if seen is op else ()
            return
        if bound.handler.code != pattern.code:
            return
        present = [t for t in op.inputs if t is not None]
        if not _feeding(pattern) <= {maker.handler.code for t in present if (maker := self.makers.get(t)) is not None}:
            return
        if len(present) != len(pattern.operands) or op in match.calls.values():
            return
        if any(op.options.get(name) != value for name, value in pattern.options.items()):
            return
        match = Match(match.tensors, {**match.calls, pattern: op}, match.graphs)
        orders = (
            permutations(range(len(pattern.operands))) if pattern.commutes else [tuple(range(len(pattern.operands)))]
        )
        for order in orders:
            yield from self._operands(
                [(operand, present[k]) for operand, k in zip(pattern.operands, order, strict=True)], match
            )

    def _operands(self, pairs: Sequence[tuple[Call | Output | Operand, Tensor]], match: Match) -> Iterator[Match]:
        if not pairs:
            yield match
            return
        for partial in self._operand(*pairs[0], match):
            yield from self._operands(pairs[1:], partial)

    def _operand(self, pattern: Call | Output | Operand, tensor: Tensor, match: Match) -> Iterator[Match]:
        if not isinstance(pattern, Operand):
            call, k = (pattern, 0) if isinstance(pattern, Call) else (pattern.call, pattern.k)
            maker = self.makers.get(tensor)
            if maker is not None and maker.op.tensor(~k) is tensor:
                yield from self._call(call, maker, match)
            return
        seen = match.tensors.get(pattern)
        if pattern.constant and not tensor.constant:
            return
        if seen is None:
            yield Match({**match.tensors, pattern: tensor}, match.calls, match.graphs)
        elif seen is tensor or _same_constant(seen, tensor):
            yield match


@cache
def _feeding(pattern: Call) -> frozenset[str]:
    """The operators that make an operator's operands, as far as the pattern says."""
    calls = (part.call if isinstance(part, Output) else part for part in pattern.operands)
    return frozenset(call.code for call in calls if isinstance(call, Call))


def _same_constant(a: Tensor, b: Tensor) -> bool:
    return (
        a.constant
        and b.constant
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.array.tobytes() == b.array.tobytes()
    )
