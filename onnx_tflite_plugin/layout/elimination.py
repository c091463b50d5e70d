"""The least of a sum of small tables, exactly: variable elimination (Bertele and Brioschi 1972)."""

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
    """The variables, those that share tables with the fewest others first.

    None if a table would have more than ``limit`` entries, or all together take more than the ``work`` that is left.
    ``sizes``: labels per variable; ``scopes``: the variables of each table.
    """
    around = {variable: {variable} for variable in sizes}
    for scope in scopes:
        if prod(sizes[variable] for variable in scope) > limit:
            return None
        for variable in scope:
            around[variable].update(scope)
    heap = [(len(together), variable) for variable, together in around.items()]
    heapify(heap)
    order: list[int] = []
    total = 0
    while heap:
        degree, variable = heappop(heap)
        if variable not in around or degree != len(around[variable]):
            continue  # it has a newer entry
        together = around.pop(variable)
        entries = prod(sizes[other] for other in together)
        total += 10 * entries * len(together)
        if entries > limit or total > work.left:
            return None
        order.append(variable)
        for other in together - {variable}:
            around[other] |= together
            around[other].discard(variable)
            heappush(heap, (len(around[other]), other))
    work.spend(total)
    return order


def eliminate(sizes: Mapping[int, int], order: Sequence[int], tables: Iterable[Table]) -> dict[int, int]:
    """The label of each variable where the sum of ``tables`` is least; ties go to lower labels, last variable first."""
    turn = {variable: place for place, variable in enumerate(order)}
    waiting: dict[int, list[Table]] = {variable: [] for variable in order}  # for the first of its variables to go
    for table in tables:
        waiting[min(table[0], key=turn.__getitem__)].append(table)
    decisions = []
    for variable in order:
        parts = waiting.pop(variable)
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
            waiting[min(scope, key=turn.__getitem__)].append((scope, least))
    labels: dict[int, int] = {}
    for variable, scope, best in reversed(decisions):
        labels[variable] = best[tuple([labels[other] for other in scope])]
    return labels
