"""The fusion stage: several bound operators that spell out one become one, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from onnx_tflite_plugin.api.declarations import Decline, resolve
from onnx_tflite_plugin.api.patterns import Call, Fusion, Match, Operand
from onnx_tflite_plugin.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.source.model import Operator, Options, Tensor
from onnx_tflite_plugin.targets.base import Target


@dataclass
class Fused:
    """What the stage did: names of fusions with how often they applied, and why matches were declined."""

    model: BoundModel
    applied: dict[str, int] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)


def fuse(
    model: BoundModel, fusions: Iterable[tuple[str, Fusion]], target: Target, *, opset: int, inexact: bool = False
) -> Fused:
    """Apply every fusion that ``opset`` can express wherever it matches; later ones see the results of earlier ones.

    The inexact come last.
    """
    done = Fused(model)
    for pack, fusion in sorted(fusions, key=lambda item: not item[1].exact):
        wanted = (fusion.exact or inexact) and (not fusion.trait or getattr(target, fusion.trait))
        if wanted and resolve(fusion.handler.min_opset) <= opset:
            graphs = tuple(_fuse_graph(graph, pack, fusion, done) for graph in done.model.graphs)
            done.model = BoundModel(model.source, graphs)
    return done


def _fuse_graph(graph: BoundGraph, pack: str, fusion: Fusion, done: Fused) -> BoundGraph:
    roots = {pattern.code for pattern in fusion.patterns}
    if not any(bound.handler.code in roots for bound in graph.operators):
        return graph
    finder = _Finder(graph)
    operators = list(graph.operators)
    gone: set[Bound] = set()
    for position, root in reversed(list(enumerate(graph.operators))):  # the last first: the longest match wins
        if root.handler.code not in roots or root in gone:
            continue
        for pattern in fusion.patterns:
            found = finder.find(pattern, root, gone)
            if found is None:
                continue
            replaced = _replacement(fusion, pack, found, root, done)
            if replaced is not None:
                gone.update(finder.bound(op) for op in found.calls.values())
                operators[position] = replaced
                done.applied[fusion.name] = done.applied.get(fusion.name, 0) + 1
            break
    kept = [
        bound
        for bound, before in zip(operators, graph.operators, strict=True)
        if bound is not before or bound not in gone
    ]
    return graph.with_operators(tuple(kept))


def _replacement(fusion: Fusion, pack: str, match: Match, root: Bound, done: Fused) -> Bound | None:
    options = fusion.where(match)
    if isinstance(options, Decline):
        if options.reason:
            done.declined.append(f"{fusion.name} at {root.label}: {options.reason}")
        return None
    op = root.op
    members = tuple(sorted({*match.calls.values()}, key=lambda member: member.index))
    fused = Operator(
        op.subgraph, op.index, fusion.name, fusion.name, 1, Options(fusion.name, options),
        tuple(match.tensors.get(operand) for operand in fusion.inputs), op.outputs,
    )  # fmt: skip
    return Bound(fused, fusion.handler, pack, members)


class _Finder:
    """Looks for patterns upwards from a root."""

    def __init__(self, graph: BoundGraph) -> None:
        self.makers = {t: bound for bound in graph.operators for t in bound.op.outputs if t is not None}
        self.by_op = {bound.op: bound for bound in graph.operators}
        self.users: dict[Tensor, list[Operator]] = {}
        self.outputs = set(graph.outputs)
        for bound in graph.operators:
            for tensor in bound.op.inputs:
                if tensor is not None:
                    self.users.setdefault(tensor, []).append(bound.op)

    def bound(self, op: Operator) -> Bound:
        return self.by_op[op]

    def find(self, pattern: Call, root: Bound, gone: set[Bound]) -> Match | None:
        """The first match whose last operator is ``root`` and of which nothing inside is used outside."""
        matches = self._call(pattern, root, Match({}, {}))
        return next((match for match in matches if self._closed({*match.calls.values()}, root.op, gone)), None)

    def _closed(self, members: set[Operator], root: Operator, gone: set[Bound]) -> bool:
        inside = {tensor for op in members - {root} for tensor in op.outputs if tensor is not None}
        users = {user for tensor in inside for user in self.users.get(tensor, ())}
        return (
            users <= members and self.outputs.isdisjoint(inside) and not any(self.by_op[op] in gone for op in members)
        )

    def _call(self, pattern: Call, bound: Bound, match: Match) -> Iterator[Match]:
        """Every way in which the operator is the pattern, given what is known so far."""
        op = bound.op
        seen = match.calls.get(pattern)
        if seen is not None:
            yield from (match,) if seen is op else ()
            return
        present = [t for t in op.inputs if t is not None]
        if bound.handler.code != pattern.code or len(present) != len(pattern.operands) or op in match.calls.values():
            return
        if any(op.options.get(name) != value for name, value in pattern.options.items()):
            return
        match = Match(match.tensors, {**match.calls, pattern: op})
        orders = (
            permutations(range(len(pattern.operands))) if pattern.commutes else [tuple(range(len(pattern.operands)))]
        )
        for order in orders:
            yield from self._operands(
                [(operand, present[k]) for operand, k in zip(pattern.operands, order, strict=True)], match
            )

    def _operands(self, pairs: Sequence[tuple[Call | Operand, Tensor]], match: Match) -> Iterator[Match]:
        if not pairs:
            yield match
            return
        for found in self._operand(*pairs[0], match):
            yield from self._operands(pairs[1:], found)

    def _operand(self, pattern: Call | Operand, tensor: Tensor, match: Match) -> Iterator[Match]:
        if isinstance(pattern, Call):
            maker = self.makers.get(tensor)
            yield from () if maker is None else self._call(pattern, maker, match)
            return
        seen = match.tensors.get(pattern)
        if pattern.constant and not tensor.constant:
            return
        if seen is None:
            yield Match({**match.tensors, pattern: tensor}, match.calls)
        elif seen is tensor or _same_constant(seen, tensor):
            yield match


def _same_constant(a: Tensor, b: Tensor) -> bool:
    return (
        a.constant
        and b.constant
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.array.tobytes() == b.array.tobytes()
    )
