"""Search for fusion patterns in a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations

from onnx_tflite_plugin.api.patterns import Call, Match, Operand, Output
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph
from onnx_tflite_plugin.source.model import Operator, Subgraph, Tensor


def reads_computed_variable(operators: Iterable[Operator], producers: Mapping[Tensor, Bound]) -> bool:
    """True if an operator reads a variable that an operator computes.

    Such a variable holds the value of the previous run until an operator computes it. Operators that read it cannot be
    moved.
    """
    operands = (tensor for op in operators for tensor in op.inputs)
    return any(tensor is not None and tensor.is_variable and tensor in producers for tensor in operands)


class Finder:
    """Search for patterns in one graph, from the last operator of a match upstream."""

    def __init__(self, graph: BoundGraph, graphs: Sequence[Subgraph]) -> None:
        self.graphs = graphs
        self.producers = {t: bound for bound in graph.operators for t in bound.op.outputs if t is not None}
        self.by_op = {bound.op: bound for bound in graph.operators}
        self.positions = {bound.op: position for position, bound in enumerate(graph.operators)}
        self.users: dict[Tensor, list[Operator]] = {}
        self.outputs = set(graph.outputs)
        for bound in graph.operators:
            for tensor in bound.op.inputs:
                if tensor is not None:
                    self.users.setdefault(tensor, []).append(bound.op)

    def bound_of(self, op: Operator) -> Bound:
        return self.by_op[op]

    def find(self, pattern: Call, root: Bound, unavailable: set[Bound]) -> Match | None:
        """Return the first match whose last operator is ``root``; None if there is none.

        A match must not contain ``unavailable`` operators. Except for shared calls, no operator outside the match may use a
        result inside it.
        """
        matches = self._extend_matches(pattern.siblings, self._match_call(pattern, root, Match({}, {}, self.graphs)))
        return next((match for match in matches if self._is_closed(pattern, match, unavailable)), None)

    def _extend_matches(self, calls: Sequence[Call], matches: Iterator[Match]) -> Iterator[Match]:
        """Yield the matches extended by ``calls``, each of which may match any operator."""
        if not calls:
            yield from matches
            return
        for match in matches:
            for candidate in self.by_op.values():
                yield from self._extend_matches(calls[1:], self._match_call(calls[0], candidate, match))

    def _is_closed(self, pattern: Call, match: Match, unavailable: set[Bound]) -> bool:
        """True if no inner result of the match is used elsewhere."""
        members, ends = {*match.calls.values()}, self._ends(pattern, match)
        inner_operators = {op for call, op in match.calls.items() if op not in ends and not call.shared}
        inner_results = {tensor for op in inner_operators for tensor in op.outputs if tensor is not None}
        users = {user for tensor in inner_results for user in self.users.get(tensor, ())}
        # With siblings, the result of one end must not be an operand of another.
        is_cyclic = len(ends) > 1 and any(user in members for op in ends for user in self._users(op))
        return (
            users <= members
            and not reads_computed_variable(members, self.producers)
            and self.outputs.isdisjoint(inner_results)
            and not any(self.by_op[op] in unavailable for op in members)
            and not is_cyclic
            and self.insertion_index(pattern, match) >= 0
        )

    def reusable_members(self, match: Match) -> set[Bound]:
        """Return the operators of a match that other matches may contain too.

        They compute the results of shared calls.
        """
        reusable: set[Bound] = set()
        pending = [call for call in match.calls if call.shared]
        while pending:
            call = pending.pop()
            reusable.add(self.by_op[match.calls[call]])
            operands = (operand.call if isinstance(operand, Output) else operand for operand in call.operands)
            pending += [operand for operand in operands if isinstance(operand, Call)]
        return reusable

    def _ends(self, pattern: Call, match: Match) -> set[Operator]:
        """Return the operators that compute the results of the match."""
        return {match.calls[call] for call in (pattern, *pattern.siblings)}

    def _users(self, op: Operator) -> Iterator[Operator]:
        return (user for tensor in op.outputs if tensor is not None for user in self.users.get(tensor, ()))

    def insertion_index(self, pattern: Call, match: Match) -> int:
        """Return the position at which one operator can replace the match, or -1.

        It is the position of an end of the match, after all producers of operands and before all users of results.
        """
        ends = self._ends(pattern, match)
        producers = (self.producers[tensor].op for tensor in match.tensors.values() if tensor in self.producers)
        last_producer = max((self.positions[producer] for producer in producers), default=-1)
        first_user = min((self.positions[user] for op in ends for user in self._users(op)), default=len(self.positions))
        valid_positions = (self.positions[op] for op in ends if last_producer < self.positions[op] < first_user)
        return max(valid_positions, default=-1)

    def _match_call(self, pattern: Call, bound: Bound, match: Match) -> Iterator[Match]:
        """Yield the extensions of the match in which ``pattern`` matches the operator."""
        op = bound.op
        matched_operator = match.calls.get(pattern)
        if matched_operator is not None:
            yield from (match,) if matched_operator is op else ()
            return
        if bound.handler.code != pattern.code:
            return
        present = [t for t in op.inputs if t is not None]
        if not _operand_codes(pattern) <= {
            producer.handler.code for t in present if (producer := self.producers.get(t)) is not None
        }:
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
            yield from self._match_operands(
                [(operand, present[k]) for operand, k in zip(pattern.operands, order, strict=True)], match
            )

    def _match_operands(self, pairs: Sequence[tuple[Call | Output | Operand, Tensor]], match: Match) -> Iterator[Match]:
        if not pairs:
            yield match
            return
        for partial in self._match_operand(*pairs[0], match):
            yield from self._match_operands(pairs[1:], partial)

    def _match_operand(self, pattern: Call | Output | Operand, tensor: Tensor, match: Match) -> Iterator[Match]:
        if not isinstance(pattern, Operand):
            call, k = (pattern, 0) if isinstance(pattern, Call) else (pattern.call, pattern.k)
            producer = self.producers.get(tensor)
            if producer is not None and producer.op.tensor(~k) is tensor:
                yield from self._match_call(call, producer, match)
            return
        matched_tensor = match.tensors.get(pattern)
        if pattern.constant and not tensor.is_constant:
            return
        if matched_tensor is None:
            yield Match({**match.tensors, pattern: tensor}, match.calls, match.graphs)
        elif matched_tensor is tensor or _are_same_constant(matched_tensor, tensor):
            yield match


@cache
def _operand_codes(pattern: Call) -> frozenset[str]:
    """Return the codes of the operators that must compute operands of the pattern."""
    calls = (operand.call if isinstance(operand, Output) else operand for operand in pattern.operands)
    return frozenset(call.code for call in calls if isinstance(call, Call))


def _are_same_constant(a: Tensor, b: Tensor) -> bool:
    return (
        a.is_constant
        and b.is_constant
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.array.tobytes() == b.array.tobytes()
    )
