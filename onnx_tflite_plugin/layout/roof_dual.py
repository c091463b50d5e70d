"""Minimization of a function of Boolean variables by a minimum cut.

The function is a sum of costs. A cost is paid if a literal (a variable or its complement) is true, or if a term
``(a_1 or .. or a_k) and not b`` of literals is true.

Network
    Each literal is a node. True literals are on the source side of an s-t cut. A term adds a node y and arcs
    a_i -> y -> b with the term's cost (Kolmogorov and Zabih 2004), or just the arc a -> b if k is 1. Each term is added
    a second time for the complements: not b -> y' -> not a_i.
Exact result
    If the two copies of the terms have no node in common, each copy is the complete problem, and its minimum cut is a
    minimum of the function. This is the case if all terms are submodular after flipping some variables.
Partial result
    Otherwise, half of the minimum cut of both copies is a lower bound of the function, the roof dual (Boros and Hammer
    2002; QPBO). The cut decides some of the variables. In every minimum these variables have the decided values, and
    setting only them never raises the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from onnx_tflite_plugin.layout.maxflow import Network, Work, WorkLimitReached

FALSE, TRUE = 0, 1
"""Constant literals. Variable k = 1, 2, .. has the literals 2k ("is false") and 2k + 1 ("is true")."""
Terms = dict[tuple[tuple[int, ...], int], int]
"""((a_1 .. a_k), b) -> nonnegative cost of this term. The a_i are sorted literals of different variables."""


def roof_dual(costs: Sequence[int], terms: Terms, ties: Sequence[int], work: Work) -> tuple[list[bool], int]:
    """Return the value of each variable, and a lower bound of the cost.

    The cost of the result equals the bound if the problem is submodular, and is never higher than with all variables
    false. ``costs``: the cost of each literal if it is true. ``ties``: secondary costs that decide between equal costs,
    in total less than ``len(costs) ** 2``. Ties are ignored if considering them takes much longer.
    """
    literals = _literals_with_nodes(len(costs), terms)
    node = [-1] * len(costs)
    for number, literal in enumerate(literals):
        node[literal] = number
    excess = [2 * (costs[literal ^ 1] - costs[literal]) for literal in literals]
    network = Network(excess, _arcs(terms, node, excess))
    demand, work_before = network.demand(), work.remaining
    on_sink_side = network.saturate(work)
    flow = demand - network.demand()
    copies = len(literals) // (len(costs) // 2 - 1)
    bound = costs[TRUE] + sum(map(min, costs[2::2], costs[3::2])) - (-flow // (2 * copies))
    tie_surplus = [ties[literal ^ 1] - ties[literal] for literal in literals]
    if min(tie_surplus) < 0:  # otherwise the smallest sink side already decides the ties
        allowance = min(work.remaining, 10_000 + 4 * (work_before - work.remaining))
        tie_work = Work(allowance)
        network.rescale(len(costs) ** 2, tie_surplus)
        with suppress(WorkLimitReached):
            on_sink_side = network.saturate(tie_work)
        work.spend(allowance - max(tie_work.remaining, 0))
    nodes = zip(node[2::2], node[3::2], strict=True)
    values = [
        on_sink_side[false_node] if false_node >= 0 else not on_sink_side[true_node] for false_node, true_node in nodes
    ]
    return values, bound


def _literals_with_nodes(size: int, terms: Terms) -> list[int]:
    """Return the literals that get a node.

    Each variable has one node, or two if terms connect a literal to its complement.
    """
    members = [(*any_of, none_of) if none_of else any_of for any_of, none_of in terms]
    if all(len({literal & 1 for literal in term}) == 1 for term in members):
        return list(range(2, size, 2))
    parent = list(range(size))
    for first, *others in members:
        for other in others:
            merge_sets(parent, first, other)
            merge_sets(parent, first ^ 1, other ^ 1)
    roots = [find_root(parent, literal) for literal in range(size)]  # complements have complementary or equal roots
    if any(map(int.__eq__, roots[::2], roots[1::2])):
        return list(range(2, size))
    return [literal for literal in range(2, size) if not roots[literal] & 1]


def _arcs(terms: Terms, node: Sequence[int], excess: list[int]) -> dict[tuple[int, int], int]:
    """Return the capacity of each arc, for doubled costs; append nodes to ``excess``."""
    arcs: dict[tuple[int, int], int] = {}
    for (any_of, none_of), cost in terms.items():
        shared = 0
        if none_of and len(any_of) == 2:  # term and complement together mean "not all three equal", a sum over pairs
            shared = min(cost, terms.get(((any_of[0] ^ 1, any_of[1] ^ 1), none_of ^ 1), 0))
        rest = 2 * (cost - shared)
        for mirror in (0, 1):  # 1: the copy for the complements, with complemented literals and reversed arcs
            tails, head = [node[literal ^ mirror] for literal in any_of], node[none_of ^ mirror]
            if tails[0] < 0:
                continue
            links = []
            if shared:
                links = [(tails[0], head, shared), (tails[1], head, shared), (tails[0], tails[1], shared)]
            if rest:
                hub = tails[0]
                if len(tails) > 1:
                    hub = len(excess)
                    excess.append(0)
                    links += [(source, hub, rest) for source in tails]
                if none_of:
                    links.append((hub, head, rest))
                else:
                    excess[hub] += rest if mirror else -rest
            for tail, target, capacity in links:
                arc = (target, tail) if mirror else (tail, target)
                arcs[arc] = arcs.get(arc, 0) + capacity
    return arcs


def find_root(parent: list[int], member: int) -> int:
    """Return the smallest member of a set in a disjoint-set forest."""
    while parent[member] != member:
        parent[member] = member = parent[parent[member]]
    return member


def merge_sets(parent: list[int], first: int, second: int) -> None:
    """Merge the sets of two members in a disjoint-set forest."""
    first, second = find_root(parent, first), find_root(parent, second)
    parent[max(first, second)] = min(first, second)
