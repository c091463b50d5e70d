"""Least-cost labelling of variables joined by wires.

    minimize   sum_i prices[i][x_i]  +  sum_wires weight * |{key of each consumer} - {key of the producer}|

Per key v, a wire is the term ``weight * [some consumer has key v] * [the producer has not]``. Where every variable
chooses between two labels, "this pin has key v" is a literal x, not x, true or false, and a term is a hyperedge
``(a_1 or .. or a_k) and not b``. In an s-t cut with true literals on the source side it is one auxiliary node y with
arcs a_i -> y -> b of the term's weight (Kolmogorov and Zabih 2004; with one consumer, just the arc a -> b). The same
term read backwards, not b -> y' -> not a_i, gives every literal's complement its place in a mirror image. Where the
image is apart from the original (all terms submodular after flipping some variables) half of it is the problem, and
a minimum cut its optimum. Where they hang together, the cut of both is the roof dual (Boros and Hammer 2002; QPBO):
half its value bounds the cost from below, and labels it decides lower the cost whatever the others are.

Each connected component is solved on its own, the smallest first, by the first of these that ends within the work
limit. ``cut`` and ``elimination`` are exact.

- ``cut``: one fusion of all-0 with all-1, kept where the bound proves it least.
- ``elimination``: variables are minimized out one by one, while the tables this takes stay small.
- ``fusion``: fusion moves (Lempitsky et al. 2010), which are alpha-expansion where labels mean the same everywhere:
  the best blend of the labelling with a proposal, a label spread over the wires by equal keys.
- ``greedy``: proposals taken as a whole where they help, then variables one by one.

Of plans at equal cost, the exact methods return one with the fewest labels other than 0, the others prefer such.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod

from onnx_tflite_plugin.layout.maxflow import Network, Work, WorkLimitReached

METHODS = ("cut", "elimination", "fusion", "greedy")  # from strongest to weakest
EXACT = frozenset(METHODS[:2])
FALSE, TRUE = 0, 1  # literals; those of the k-th variable of a move are 2k (keep) and 2k + 1 (change)
Score = tuple[int, int]  # cost, number of labels other than 0


@dataclass(frozen=True, slots=True)
class Pin:
    """One end of a wire: a key per label of the variable, or exactly one where there is no variable."""

    variable: int | None
    keys: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """A tensor: ``weight`` (not negative) is paid for each key that consumers have and the producer has not."""

    weight: int
    producer: Pin
    consumers: tuple[Pin, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """``prices[i][x]`` is what label x costs variable i by itself; every variable has a label."""

    prices: tuple[tuple[int, ...], ...]
    wires: tuple[Wire, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """``exact``: provably least. ``components``: how many took which method; ``method``: the weakest of these."""

    labels: tuple[int, ...]
    cost: int
    exact: bool
    method: str
    components: Mapping[str, int]


def cost(problem: Problem, labels: Sequence[int]) -> int:
    return sum(map(tuple.__getitem__, problem.prices, labels)) + _wiring(problem.wires, labels)


def solve(problem: Problem, *, work_limit: int = 20_000_000, table_limit: int = 4096) -> Solution:
    """The cheapest labelling found. ``work_limit`` counts elementary operations, ``table_limit`` entries of a table."""
    labels = [0] * len(problem.prices)
    work, spare = Work(work_limit), Work(work_limit)
    components = dict.fromkeys(METHODS, 0)
    for variables, wires in _components(problem):
        component = _Component(problem.prices, variables, wires)
        components[component.solve(labels, work, spare, table_limit)] += 1
    method = next((name for name in reversed(METHODS) if components[name]), METHODS[0])
    return Solution(tuple(labels), cost(problem, labels), method in EXACT, method, components)


def _wiring(wires: Iterable[Wire], labels: Sequence[int]) -> int:
    total = 0
    for wire in wires:
        keys = {pin.keys[0 if pin.variable is None else labels[pin.variable]] for pin in wire.consumers}
        held = wire.producer
        keys.discard(held.keys[0 if held.variable is None else labels[held.variable]])
        total += wire.weight * len(keys)
    return total


def _root(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = node = parent[parent[node]]
    return node


def _join(parent: list[int], one: int, other: int) -> None:
    one, other = _root(parent, one), _root(parent, other)
    parent[max(one, other)] = min(one, other)


def _components(problem: Problem) -> list[tuple[list[int], list[Wire]]]:
    """Variables with a choice, and the wires that touch them; the smallest component first."""
    free = [len(prices) > 1 for prices in problem.prices]
    parent = list(range(len(free)))
    touching: list[tuple[int, Wire]] = []
    for wire in problem.wires:
        ends = [p.variable for p in (wire.producer, *wire.consumers) if p.variable is not None and free[p.variable]]
        if ends and wire.weight:
            touching.append((ends[0], wire))
            for other in ends[1:]:
                _join(parent, ends[0], other)
    found: dict[int, tuple[list[int], list[Wire]]] = {}
    for variable, choice in enumerate(free):
        if choice:
            found.setdefault(_root(parent, variable), ([], []))[0].append(variable)
    for end, wire in touching:
        found[_root(parent, end)][1].append(wire)
    return sorted(found.values(), key=lambda component: len(component[0]) + len(component[1]))


class _Component:
    """Connected variables. Methods change ``labels``, the whole problem's, in place."""

    def __init__(self, prices: Sequence[Sequence[int]], variables: list[int], wires: list[Wire]) -> None:
        self.prices, self.variables, self.wires = prices, variables, wires

    def solve(self, labels: list[int], work: Work, spare: Work, table_limit: int) -> str:
        try:
            if all(len(self.prices[variable]) == 2 for variable in self.variables):
                _, bound = self.fuse(labels, dict.fromkeys(self.variables, 1), self.wires, work)
                if self.cost(labels, self.variables, self.wires) == bound:
                    return "cut"
            if self.eliminate(labels, table_limit, work):
                return "elimination"
            self.improve(labels, work)
            return "fusion"
        except WorkLimitReached:
            with suppress(WorkLimitReached):
                self.descend(labels, spare)
            return "greedy"

    def cost(self, labels: Sequence[int], variables: Iterable[int], wires: Iterable[Wire]) -> int:
        return sum(self.prices[variable][labels[variable]] for variable in variables) + _wiring(wires, labels)

    # --- one binary choice: keep or change ----------------------------------------------------

    def fuse(self, labels: list[int], proposal: dict[int, int], wires: Iterable[Wire], work: Work) -> tuple[bool, int]:
        """Blend in the part of ``proposal`` (labels other than the present) that lowers the cost.

        Returns whether anything changed, and a lower bound of what the proposal's variables and ``wires``, all
        that touch them, cost in any blend.
        """
        costs, terms = self._terms(labels, proposal, wires)
        work.spend(len(costs) + len(terms))
        parent = list(range(len(costs)))
        for consumers, producer in terms:
            first, *others = (*consumers, producer) if producer else consumers
            for other in others:
                _join(parent, first, other)
                _join(parent, first ^ 1, other ^ 1)
        roots = [_root(parent, literal) for literal in range(len(costs))]
        both = any(map(int.__eq__, roots[::2], roots[1::2]))  # a literal hangs together with its complement
        kept = [literal for literal in range(2, len(costs)) if both or not roots[literal] & 1]
        node = dict(zip(kept, range(len(kept)), strict=True))
        excess = [costs[literal ^ 1] - costs[literal] for literal in kept]
        arcs: dict[tuple[int, int], int] = {}
        for (consumers, producer), weight in terms.items():
            for mirror in (0, 1):
                ends = [node[literal ^ mirror] for literal in consumers if literal ^ mirror in node]
                if not ends:
                    continue
                hub, joints = ends[0], []
                if len(ends) > 1:
                    hub = len(excess)
                    excess.append(0)
                    joints = [(end, hub) for end in ends]
                if producer:
                    joints.append((hub, node[producer ^ mirror]))
                else:
                    excess[hub] += weight if mirror else -weight
                for joint in joints:
                    joint = joint[::-1] if mirror else joint
                    arcs[joint] = arcs.get(joint, 0) + weight
        network = Network(excess, arcs)
        supply = sum(amount for amount in excess if amount > 0)
        sink_side = network.saturate(work)
        flow = supply - sum(amount for amount in excess if amount > 0)
        bound = costs[TRUE] + sum(map(min, costs[2::2], costs[3::2])) + (-(-flow // 2) if both else flow)
        # FIXME ties
        changed = False
        for place, (variable, label) in enumerate(proposal.items(), 1):
            low = 2 * place
            if sink_side[node[low]] if low in node else not sink_side[node[low + 1]]:
                labels[variable] = label
                changed = True
        return changed, bound

    def _terms(
        self, labels: Sequence[int], proposal: Mapping[int, int], wires: Iterable[Wire]
    ) -> tuple[list[int], dict[tuple[tuple[int, ...], int], int]]:
        """The cost of a move: per literal, when it is true; per term (consumers' literals, producer's), its weight."""
        literal = {variable: 2 * place for place, variable in enumerate(proposal, 1)}
        costs = [0, 0]
        for variable, label in proposal.items():
            costs += (self.prices[variable][labels[variable]], self.prices[variable][label])
        terms: dict[tuple[tuple[int, ...], int], int] = {}

        def ends(pin: Pin) -> tuple[tuple[Hashable, int], ...]:
            variable, keys = pin.variable, pin.keys
            if variable is None:
                return ((keys[0], TRUE),)
            now = keys[labels[variable]]
            if variable not in literal:
                return ((now, TRUE),)
            then, low = keys[proposal[variable]], literal[variable]
            return ((now, TRUE),) if now == then else ((now, low), (then, low + 1))

        for wire in wires:
            wanted: dict[Hashable, set[int]] = {}
            for pin in wire.consumers:
                for key, wants in ends(pin):
                    wanted.setdefault(key, set()).add(wants)
            held = dict(ends(wire.producer))
            for key, consumers in wanted.items():
                producer = held.get(key, FALSE)
                consumers.discard(producer)
                if producer == TRUE or not consumers:
                    continue
                if TRUE in consumers or producer ^ 1 in consumers or len({c >> 1 for c in consumers}) < len(consumers):
                    costs[producer ^ 1] += wire.weight
                elif len(consumers) == 1 and producer == FALSE:
                    costs[consumers.pop()] += wire.weight
                else:
                    term = tuple(sorted(consumers)), producer
                    terms[term] = terms.get(term, 0) + wire.weight
        return costs, terms
