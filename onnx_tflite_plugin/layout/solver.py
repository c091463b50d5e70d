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

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod

from onnx_tflite_plugin.layout.maxflow import Network, Work, WorkLimitReached

METHODS = ("cut", "elimination", "fusion", "greedy")  # from strongest to weakest
EXACT = frozenset(METHODS[:2])
FALSE, TRUE = 0, 1  # literals; those of the k-th variable of a move are 2k (keep) and 2k + 1 (change)
Terms = dict[tuple[tuple[int, ...], int], int]  # (consumers' literals, producer's): weight
Table = tuple[tuple[int, ...], dict[tuple[int, ...], int]]  # variables, and per choice of their labels a cost


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


def _half(size: int, terms: Terms) -> list[int]:
    """The literals that need a node: one of each variable, or both where some literal hangs with its complement."""
    if all(len({literal & 1 for literal in (*consumers, producer or consumers[0])}) == 1 for consumers, producer in terms):
        return list(range(2, size, 2))
    parent = list(range(size))
    for consumers, producer in terms:
        for other in (*consumers[1:], producer or consumers[0]):
            _join(parent, consumers[0], other)
            _join(parent, consumers[0] ^ 1, other ^ 1)
    roots = [_root(parent, literal) for literal in range(size)]
    if any(map(int.__eq__, roots[::2], roots[1::2])):
        return list(range(2, size))
    return [literal for literal in range(2, size) if not roots[literal] & 1]  # complements have complementary roots


def _arcs(terms: Terms, node: Sequence[int], excess: list[int]) -> dict[tuple[int, int], int]:
    """The capacities of twice the terms. Adds auxiliary nodes, and what terms without producer send, to ``excess``."""
    arcs: dict[tuple[int, int], int] = {}
    for (consumers, producer), weight in terms.items():
        shared = 0
        if producer and len(consumers) == 2:  # "not all three equal" with its complement: three pairs, no node
            shared = min(weight, terms.get(((consumers[0] ^ 1, consumers[1] ^ 1), producer ^ 1), 0))
        rest = 2 * (weight - shared)
        for mirror in (0, 1):
            ends = [node[literal ^ mirror] for literal in consumers]
            hub = ends[0]
            if hub < 0:
                continue
            joints = []
            if shared:
                made = node[producer ^ mirror]
                joints = [(ends[0], made, shared), (ends[1], made, shared), (ends[0], ends[1], shared)]
            if rest and len(ends) > 1:
                hub = len(excess)
                excess.append(0)
                joints += [(end, hub, rest) for end in ends]
            if rest and producer:
                joints.append((hub, node[producer ^ mirror], rest))
            elif rest:
                excess[hub] += rest if mirror else -rest
            for tail, head, capacity in joints:
                arc = (head, tail) if mirror else (tail, head)
                arcs[arc] = arcs.get(arc, 0) + capacity
    return arcs


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

    # --- one binary choice per variable: keep or change ---------------------------------------

    def fuse(self, labels: list[int], proposal: dict[int, int], wires: Iterable[Wire], work: Work) -> tuple[bool, int]:
        """Change what of ``proposal`` (labels other than the present) lowers the cost.

        Returns whether that was anything, and what the proposal's variables and ``wires``, all that touch them,
        cost at least in any blend.
        """
        costs, terms = self._terms(labels, proposal, wires)
        work.spend(len(costs) + len(terms))
        kept = _half(len(costs), terms)
        node = [-1] * len(costs)
        for place, literal in enumerate(kept):
            node[literal] = place
        excess = [2 * (costs[literal ^ 1] - costs[literal]) for literal in kept]
        network = Network(excess, _arcs(terms, node, excess))
        supply = sum(amount for amount in excess if amount > 0)
        sink_side = network.saturate(work)
        flow = supply - sum(amount for amount in excess if amount > 0)
        copies = 2 * len(kept) // len(proposal)  # twice the cost, of each copy
        bound = costs[TRUE] + sum(map(min, costs[2::2], costs[3::2])) - (-flow // copies)
        dearer = [0, 0]  # per literal, what breaks ties against it: labels other than 0, then changes
        for variable, label in proposal.items():
            step = ((label > 0) - (labels[variable] > 0)) * len(costs) + 1
            dearer += (-step, step)
        if any(dearer[literal] > 0 for literal in kept):  # the least sink side may not be the best of equal cuts
            network.rescale(len(costs) ** 2, [-dearer[literal] for literal in kept])
            with suppress(WorkLimitReached):
                sink_side = network.saturate(work)
        changed = False
        for (variable, label), low in zip(proposal.items(), range(2, len(costs), 2), strict=True):
            if sink_side[node[low]] if node[low] >= 0 else not sink_side[node[low + 1]]:
                labels[variable] = label
                changed = True
        return changed, bound

    def _terms(self, labels: list[int], proposal: dict[int, int], wires: Iterable[Wire]) -> tuple[list[int], Terms]:
        """What a move costs: per literal, when it is true; and per term, when it holds."""
        literal = {variable: 2 * place for place, variable in enumerate(proposal, 1)}
        costs = [0, 0]
        for variable, label in proposal.items():
            costs += (self.prices[variable][labels[variable]], self.prices[variable][label])
        terms: Terms = {}

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

    # --- exact, where few variables hang together at a time -----------------------------------

    def eliminate(self, labels: list[int], limit: int, work: Work) -> bool:
        """Minimize variable after variable out of the sum of tables (Bertele and Brioschi 1972), if all stay small."""
        order = self._order(limit, work)
        turn = {variable: place for place, variable in enumerate(order)}
        if not order:
            return False
        ranges = {variable: range(len(self.prices[variable])) for variable in order}
        scale = len(order) + 1  # a table's unit: one more label other than 0
        tables: dict[int, list[Table]] = {variable: [] for variable in order}  # by the first variable to go
        for wire in self.wires:
            scope = self._scope(wire)
            entries = {}
            for choice in product(*map(ranges.__getitem__, scope)):
                for variable, label in zip(scope, choice, strict=True):
                    labels[variable] = label
                entries[choice] = scale * _wiring((wire,), labels)
            tables[min(scope, key=turn.__getitem__)].append((scope, entries))
        decisions = []
        for variable in order:
            scope = tuple(sorted({other for others, _ in tables[variable] for other in others} - {variable}))
            place = {other: k for k, other in enumerate((*scope, variable))}
            parts = [([place[other] for other in others], entries) for others, entries in tables[variable]]
            least: dict[tuple[int, ...], int] = {}
            best: dict[tuple[int, ...], int] = {}
            for rest in product(*map(ranges.__getitem__, scope)):
                totals = []
                for label, price in enumerate(self.prices[variable]):
                    choice = (*rest, label)
                    known = sum([entries[tuple([choice[k] for k in places])] for places, entries in parts])
                    totals.append(known + scale * price + (label > 0))
                least[rest] = min(totals)
                best[rest] = totals.index(least[rest])
            decisions.append((variable, scope, best))
            if scope:
                tables[min(scope, key=turn.__getitem__)].append((scope, least))
        for variable, scope, best in reversed(decisions):
            labels[variable] = best[tuple([labels[other] for other in scope])]
        return True

    def _scope(self, wire: Wire) -> tuple[int, ...]:
        ends = (pin.variable for pin in (wire.producer, *wire.consumers))
        return tuple(sorted({end for end in ends if end is not None and len(self.prices[end]) > 1}))

    def _order(self, limit: int, work: Work) -> list[int]:
        """All variables, least degree first; none at all where that takes a table over the limit."""
        around: dict[int, set[int]] = {variable: {variable} for variable in self.variables}
        for scope in map(self._scope, self.wires):
            if self._entries(scope, work) > limit:
                return []
            for variable in scope:
                around[variable].update(scope)
        heap = [(len(scope), variable) for variable, scope in around.items()]
        heapify(heap)
        order: list[int] = []
        while heap:
            degree, variable = heappop(heap)
            if variable in around and degree == len(around[variable]):
                together = around.pop(variable)
                if self._entries(together, work) > limit:
                    return []
                order.append(variable)
                for other in together - {variable}:
                    around[other] |= together
                    around[other].discard(variable)
                    heappush(heap, (len(around[other]), other))
        return order

    def _entries(self, scope: Collection[int], work: Work) -> int:
        entries = prod(len(self.prices[variable]) for variable in scope)
        return entries

    # --- heuristics ---------------------------------------------------------------------------

    def improve(self, labels: list[int], work: Work) -> None:
        self.index()
        changed = True
        while changed:
            changed = False
            for proposal in self.proposals(work):
                move = {v: l for v, l in proposal.items() if l != labels[v]}
                if move:
                    got, _ = self.fuse(labels, move, self.touching(move), work)
                    changed = changed or got

    def index(self) -> None:
        self.ends: dict[int, list[tuple[int, Pin]]] = {v: [] for v in self.variables}
        for k, wire in enumerate(self.wires):
            for pin in (wire.producer, *wire.consumers):
                if pin.variable in self.ends:
                    self.ends[pin.variable].append((k, pin))

    def touching(self, variables: Iterable[int]) -> list[Wire]:
        return [self.wires[k] for k in sorted({k for v in variables for k, _ in self.ends[v]})]

    def proposals(self, work: Work) -> Iterator[dict[int, int]]:
        seen: set[tuple[int, int]] = set()
        for seed in self.variables:
            for label in range(len(self.prices[seed])):
                if (seed, label) in seen:
                    continue
                proposal = {seed: label}
                queue = [seed]
                spread: set[tuple[int, Hashable]] = set()
                for variable in queue:
                    for k, end in self.ends[variable]:
                        key = end.keys[proposal[variable]]
                        if (k, key) in spread:
                            continue
                        spread.add((k, key))
                        wire = self.wires[k]
                        for pin in (wire.producer, *wire.consumers):
                            if pin.variable in self.ends and pin.variable not in proposal and key in pin.keys:
                                proposal[pin.variable] = pin.keys.index(key)
                                queue.append(pin.variable)
                seen.update(proposal.items())
                yield proposal

    def descend(self, labels: list[int], work: Work) -> None:
        pass
