"""Minimum-cost labeling of variables connected by wires.

    minimize  sum over variables of prices[i][x_i]
            + sum over wires of weight * |{key of each consumer} - {key of the producer}|

A variable is an operator, a label is one of its layouts, and a wire is a tensor. The key of a pin is the layout in
which its operator reads or writes the tensor. A wire costs its weight for each key of a consumer that differs from the
producer's, because the tensor is transposed once per such layout.

In a *move*, every variable either keeps its label or takes a proposed label. Whether a pin has a key is then a Boolean
literal, and a minimum cut (:mod:`.roof_dual`) finds the best move or a part of it.

Each connected component is solved by the first of these methods that ends within the work limit:

- ``cut``: one move from label 0 to label 1, if there are two labels and the lower bound proves the result minimal.
- ``elimination``: minimizes over the variables one by one, if the tables are small enough.
- ``fusion``: moves toward proposals (Lempitsky et al. 2010). A proposal is one label, propagated along wires by equal
  keys. If labels have the same meaning everywhere, this is alpha-expansion.
- ``greedy``: accepts complete proposals that lower the cost, then changes variables one by one.

``cut`` and ``elimination`` are exact. Among labelings of equal cost, the one with more labels 0 is preferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count, product
from typing import NamedTuple

from onnx_tflite_plugin.layout.elimination import Table, eliminate, elimination_order
from onnx_tflite_plugin.layout.labeling import LabelingProblem, Pin, Wire, cost, wire_cost
from onnx_tflite_plugin.layout.maxflow import Work, WorkLimitReached
from onnx_tflite_plugin.layout.roof_dual import FALSE, TRUE, Terms, find_root, merge_sets, roof_dual

METHODS = ("cut", "elimination", "fusion", "greedy")  # strongest first
EXACT = METHODS[:2]


class Solution(NamedTuple):
    """A labeling and its cost.

    ``exact``: the cost is proven minimal. ``components``: number of components by method. ``method``: the weakest
    method that was used.
    """

    labels: tuple[int, ...]
    cost: int
    exact: bool
    method: str
    components: Mapping[str, int]


_ProposalWithWork = tuple[dict[int, int], int]
"""A proposal (label by variable), and the number of operations to compute it."""


def solve(problem: LabelingProblem, *, work_limit: int = 20_000_000, table_limit: int = 4096) -> Solution:
    """Return the cheapest labeling found within the limits.

    ``work_limit``: maximum number of operations. ``table_limit``: maximum number of entries in a table. Small
    components are solved first, so that a hard component does not use up the work limit.
    """
    labels = [0] * len(problem.prices)
    work, greedy_work = Work(work_limit), Work(work_limit)
    components = dict.fromkeys(METHODS, 0)
    for component in _components(problem):
        try:
            method = component.solve(labels, work, table_limit)
        except WorkLimitReached:
            method = "greedy"
            with suppress(WorkLimitReached):
                component.descend(labels, greedy_work)
        components[method] += 1
    method = next((name for name in reversed(METHODS) if components[name]), METHODS[0])
    return Solution(tuple(labels), cost(problem, labels), method in EXACT, method, components)


def _components(problem: LabelingProblem) -> list[_Component]:
    """Return the connected components, smallest first, without fixed variables."""
    has_choice = [len(prices) > 1 for prices in problem.prices]
    parent = list(range(len(has_choice)))
    wires_by_end: list[tuple[int, Wire]] = []
    for wire in problem.wires:
        ends = [
            p.variable for p in (wire.producer, *wire.consumers) if p.variable is not None and has_choice[p.variable]
        ]
        if ends and wire.weight:
            wires_by_end.append((ends[0], wire))
            for end in ends[1:]:
                merge_sets(parent, ends[0], end)
    components: dict[int, _Component] = {}
    for variable, is_free in enumerate(has_choice):
        if is_free:
            first = find_root(parent, variable)
            if first == variable:
                components[first] = _Component(problem.prices, [], [])
            components[first].variables.append(variable)
    for end, wire in wires_by_end:
        components[find_root(parent, end)].wires.append(wire)
    return sorted(components.values(), key=lambda component: len(component.variables) + len(component.wires))


@dataclass(frozen=True)
class _Component:
    """Connected variables and their wires.

    The methods change ``labels``, which has the labels of the whole problem, in place.
    """

    prices: Sequence[Sequence[int]]
    variables: list[int]
    wires: list[Wire]

    def solve(self, labels: list[int], work: Work, table_limit: int) -> str:
        """Set the labels by the first method that ends; return the method's name.

        The greedy method is not tried. Raises WorkLimitReached at the work limit; the labels found so far remain.
        """
        if all(len(self.prices[variable]) == 2 for variable in self.variables):
            _, bound = self._fuse(labels, dict.fromkeys(self.variables, 1), self.wires, work)
            if self._score(labels, self.variables, self.wires)[0] == bound:
                return "cut"
        if self._eliminate(labels, table_limit, work):
            return "elimination"
        self._improve(labels, work)
        return "fusion"

    def descend(self, labels: list[int], work: Work) -> None:
        """Run the greedy method.

        Raises WorkLimitReached at the work limit; the labels found so far remain.
        """
        for proposal in self._proposals(work):
            self._adopt(labels, proposal, work)
        self._sweep(labels, work)

    def _score(self, labels: Sequence[int], variables: Iterable[int], wires: Iterable[Wire]) -> tuple[int, int]:
        """Return the cost, then the number of labels other than 0."""
        total_price = nonzero_count = 0
        for variable in variables:
            total_price += self.prices[variable][labels[variable]]
            nonzero_count += labels[variable] > 0
        return total_price + wire_cost(wires, labels), nonzero_count

    # --- moves: the best combination of the labels and a proposal ------------------------------

    def _fuse(self, labels: list[int], proposal: dict[int, int], wires: Iterable[Wire], work: Work) -> tuple[bool, int]:
        """Adopt the labels of ``proposal`` that lower the cost.

        All labels in the proposal differ from the current ones. ``wires``: all wires of the proposal's variables.
        Return True if a label changed, and a lower bound of the cost of these variables and wires after any move.
        """
        costs, terms = self._move_terms(labels, proposal, wires)
        work.spend(20 * (len(costs) + len(terms)))
        ties = [0, 0]  # prefer the fewest labels other than 0, then the fewest changes
        for variable, label in proposal.items():
            ties += (0, ((label > 0) - (labels[variable] > 0)) * len(costs) + 1)
        adopted, bound = roof_dual(costs, terms, ties, work)
        for variable in compress(proposal, adopted):
            labels[variable] = proposal[variable]
        return any(adopted), bound

    def _move_terms(
        self, labels: list[int], proposal: dict[int, int], wires: Iterable[Wire]
    ) -> tuple[list[int], Terms]:
        """Return the costs of literals and of terms with several literals."""
        unchanged_literal = {variable: 2 * number for number, variable in enumerate(proposal, 1)}
        costs = [0, 0]
        for variable, label in proposal.items():
            costs += (self.prices[variable][labels[variable]], self.prices[variable][label])
        terms: Terms = {}

        def literals_by_key(pin: Pin) -> tuple[tuple[Hashable, int], ...]:
            """Return pairs of a key and the literal that is true if the pin has the key."""
            variable, keys = pin.variable, pin.keys
            if variable is None:
                return ((keys[0], TRUE),)
            current = keys[labels[variable]]
            if variable not in unchanged_literal:
                return ((current, TRUE),)
            proposed, unchanged = keys[proposal[variable]], unchanged_literal[variable]
            return ((current, TRUE),) if current == proposed else ((current, unchanged), (proposed, unchanged + 1))

        for wire in wires:
            consumers_by_key: dict[Hashable, set[int]] = {}
            for pin in wire.consumers:
                for key, consumer in literals_by_key(pin):
                    consumers_by_key.setdefault(key, set()).add(consumer)
            produced = dict(literals_by_key(wire.producer))
            for key, consumers in consumers_by_key.items():
                producer = produced.get(key, FALSE)
                consumers.discard(producer)
                if producer == TRUE or not consumers:
                    continue
                has_complements = len({literal >> 1 for literal in consumers}) < len(consumers)
                if TRUE in consumers or producer ^ 1 in consumers or has_complements:
                    costs[producer ^ 1] += wire.weight  # a consumer always has the key if the producer lacks it
                elif producer == FALSE and len(consumers) == 1:
                    costs[consumers.pop()] += wire.weight
                else:
                    term = tuple(sorted(consumers)), producer
                    terms[term] = terms.get(term, 0) + wire.weight
        return costs, terms

    # --- tables: exact, if few variables are connected at a time ------------------------------

    def _eliminate(self, labels: list[int], limit: int, work: Work) -> bool:
        """Label all variables at minimum cost; return False if a table is too large."""
        sizes = {variable: len(self.prices[variable]) for variable in self.variables}
        scopes = [
            tuple(sorted({pin.variable for pin in (wire.producer, *wire.consumers) if pin.variable in sizes}))
            for wire in self.wires
        ]
        order = elimination_order(sizes, scopes, limit, work)
        if order is None:
            return False
        unit = len(order) + 1  # scales the costs, so that the number of labels other than 0 only breaks ties
        tables: list[Table] = []
        for variable in order:
            prices = self.prices[variable]
            tables.append(((variable,), {(label,): unit * price + (label > 0) for label, price in enumerate(prices)}))
        trial = defaultdict[int, int](int)
        for wire, scope in zip(self.wires, scopes, strict=True):
            entries = {}
            for choice in product(*(range(sizes[variable]) for variable in scope)):
                work.spend(1 + len(wire.consumers))
                for variable, label in zip(scope, choice, strict=True):
                    trial[variable] = label
                entries[choice] = unit * wire_cost((wire,), trial)
            tables.append((scope, entries))
        for variable, label in eliminate(sizes, order, tables).items():
            labels[variable] = label
        return True

    # --- heuristics ---------------------------------------------------------------------------

    def _improve(self, labels: list[int], work: Work) -> None:
        """Make moves until none lowers the cost, then try other heuristics.

        A tenth of the work is reserved for changes of single variables and for other initial labels.
        """
        start = list(labels)
        self._climb(labels, work)
        search_work = Work(work.remaining // 10)
        work.spend(search_work.remaining)
        with suppress(WorkLimitReached):
            self._sweep(labels, search_work)
            for proposal in self._proposals(search_work):
                search_work.spend(len(start))
                trial = list(start)
                for variable, label in proposal.items():
                    trial[variable] = label
                self._climb(trial, search_work)
                self._adopt(labels, {variable: trial[variable] for variable in self.variables}, search_work)

    def _climb(self, labels: list[int], work: Work) -> None:
        """Move toward proposals until none lowers the cost."""
        changed = True
        while changed:
            changed = False
            for proposal in self._proposals(work):
                move = {variable: label for variable, label in proposal.items() if label != labels[variable]}
                if move:
                    changed = self._fuse(labels, move, self._wires_of(move, work), work)[0] or changed

    def _sweep(self, labels: list[int], work: Work) -> None:
        """Change single variables until none lowers the cost."""
        changed = True
        while changed:
            changed = False
            for variable in self.variables:
                for label in range(len(self.prices[variable])):
                    changed = self._adopt(labels, {variable: label}, work) or changed

    def _adopt(self, labels: list[int], proposal: dict[int, int], work: Work) -> bool:
        """Adopt the labels of ``proposal`` if the score falls; return True if so."""
        if all(labels[variable] == label for variable, label in proposal.items()):
            return False
        wires = self._wires_of(proposal, work)
        previous_labels = {variable: labels[variable] for variable in proposal}
        score = self._score(labels, proposal, wires)
        for variable, label in proposal.items():
            labels[variable] = label
        if self._score(labels, proposal, wires) < score:
            return True
        for variable, label in previous_labels.items():
            labels[variable] = label
        return False

    @cached_property
    def _pins_by_variable(self) -> dict[int, list[tuple[int, Pin]]]:
        """Return the wire numbers and pins of each variable."""
        pins: dict[int, list[tuple[int, Pin]]] = {variable: [] for variable in self.variables}
        for number, wire in enumerate(self.wires):
            for pin in (wire.producer, *wire.consumers):
                if pin.variable in pins:
                    pins[pin.variable].append((number, pin))
        return pins

    def _wires_of(self, variables: Iterable[int], work: Work) -> list[Wire]:
        """Return the wires that touch the variables."""
        numbers = sorted({number for variable in variables for number, _ in self._pins_by_variable[variable]})
        work.spend(20 * sum(1 + len(self.wires[number].consumers) for number in numbers))
        return [self.wires[number] for number in numbers]

    def _proposals(self, work: Work) -> Iterator[dict[int, int]]:
        """Yield labelings of some variables: one label, and the labels that fit it.

        Labels fit if their keys along a wire are equal. Together the proposals contain every label. Proposals do not depend on
        the current labels, so they are cached; their work is counted every time.
        """
        computed, remaining = self._lazy_proposals
        for index in count():
            if index == len(computed):
                next_proposal = next(remaining, None)
                if next_proposal is None:
                    return
                computed.append(next_proposal)
            proposal, proposal_work = computed[index]
            work.spend(proposal_work)
            yield proposal

    @cached_property
    def _lazy_proposals(self) -> tuple[list[_ProposalWithWork], Iterator[_ProposalWithWork]]:
        """Return the computed proposals, and the generator of the remaining proposals."""
        return [], self._generate_proposals()

    def _generate_proposals(self) -> Iterator[_ProposalWithWork]:
        """Yield each proposal and the work of computing it."""
        by_key = [self._labels_by_key(wire) for wire in self.wires]
        seen: set[tuple[int, int]] = set()
        for seed in ((variable, label) for variable in self.variables for label in range(len(self.prices[variable]))):
            if seed in seen:
                continue
            proposal, queue, reached, proposal_work = dict([seed]), [seed[0]], set[tuple[int, Hashable]](), 0
            for variable in queue:
                for number, pin in self._pins_by_variable[variable]:
                    key = pin.keys[proposal[variable]]
                    if (number, key) in reached:
                        continue
                    reached.add((number, key))
                    proposal_work += 20 * (1 + len(self.wires[number].consumers))
                    for neighbor, label in by_key[number][key]:
                        if neighbor not in proposal:
                            proposal[neighbor] = label
                            queue.append(neighbor)
            seen.update(proposal.items())
            yield proposal, proposal_work

    def _labels_by_key(self, wire: Wire) -> dict[Hashable, list[tuple[int, int]]]:
        """Return the variables that have each key of a wire, with their first such label."""
        by_key = defaultdict[Hashable, list[tuple[int, int]]](list)
        for variable, keys in (wire.producer, *wire.consumers):
            if variable in self._pins_by_variable:
                for key in dict.fromkeys(keys):
                    by_key[key].append((variable, keys.index(key)))
        return by_key
