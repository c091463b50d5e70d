"""Exact minimum of a sum of small tables by variable elimination (Bertele and Brioschi 1972)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod

from onnx_tflite_plugin.layout.maxflow import Work

Table = tuple[tuple[int, ...], dict[tuple[int, ...], int]]  # variables; per choice of their labels, a cost


def elimination_order(
    sizes: Mapping[int, int], scopes: Iterable[Sequence[int]], limit: int, work: Work
) -> list[int] | None:
    """Return the variables in elimination order, those that share tables with the fewest others first.

    ``sizes``: labels per variable; ``scopes``: the variables of each table. Returns None if a table would have more than
    ``limit`` entries, or if the elimination takes more than the remaining ``work``.
    """
    neighbors = {variable: {variable} for variable in sizes}
    for scope in scopes:
        if prod(sizes[variable] for variable in scope) > limit:
            return None
        for variable in scope:
            neighbors[variable].update(scope)
    heap = [(len(clique), variable) for variable, clique in neighbors.items()]
    heapify(heap)
    order: list[int] = []
    total = 0
    while heap:
        degree, variable = heappop(heap)
        if variable not in neighbors or degree != len(neighbors[variable]):
            continue  # the variable has a newer entry
        clique = neighbors.pop(variable)
        entries = prod(sizes[other] for other in clique)
        total += 10 * entries * len(clique)
        if entries > limit or total > work.left:
            return None
        order.append(variable)
        for other in clique - {variable}:
            neighbors[other] |= clique
            neighbors[other].discard(variable)
            heappush(heap, (len(neighbors[other]), other))
    work.spend(total)
    return order


def eliminate(sizes: Mapping[int, int], order: Sequence[int], tables: Iterable[Table]) -> dict[int, int]:
    """Return the labeling that minimizes the sum of ``tables``; ties go to lower labels, last variable first."""
    position = {variable: place for place, variable in enumerate(order)}
    pending: dict[int, list[Table]] = {variable: [] for variable in order}  # by the first variable that is eliminated
    for table in tables:
        pending[min(table[0], key=position.__getitem__)].append(table)
    decisions = []
    for variable in order:
        parts = pending.pop(variable)
        scope = tuple(sorted({other for others, _ in parts for other in others} - {variable}))
        place = {other: k for k, other in enumerate((*scope, variable))}
        lookups = [([place[other] for other in others], entries) for others, entries in parts]
        least, best = {}, {}
        for rest in product(*(range(sizes[other]) for other in scope)):
            totals = []
            for label in range(sizes[variable]):
                choice = (*rest, label)
                totals.append(sum([entries[tuple([choice[k] for k in places])] for places, entries in lookups]))
            least[rest] = min(totals)
            best[rest] = totals.index(least[rest])
        decisions.append((variable, scope, best))
        if scope:
            pending[min(scope, key=position.__getitem__)].append((scope, least))
    labels: dict[int, int] = {}
    for variable, scope, best in reversed(decisions):
        labels[variable] = best[tuple([labels[other] for other in scope])]
    return labels
