"""Exact minimum of a sum of small tables by variable elimination.

See Bertele and Brioschi 1972.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod

from onnx_tflite_plugin.layout.maxflow import Work

Table = tuple[tuple[int, ...], dict[tuple[int, ...], int]]
"""Variables, and the cost of each combination of their labels."""


def elimination_order(
    sizes: Mapping[int, int], scopes: Iterable[Sequence[int]], limit: int, work: Work
) -> list[int] | None:
    """Return the variables in elimination order: variables with few neighbors first.

    Neighbors share a table. ``sizes``: variable -> number of labels. ``scopes``: the variables of each table. Return
    None if a table would have more than ``limit`` entries, or if the elimination takes more than the remaining
    ``work``.
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
    total_work = 0
    while heap:
        degree, variable = heappop(heap)
        if variable not in neighbors or degree != len(neighbors[variable]):
            continue  # the variable has a newer entry
        clique = neighbors.pop(variable)
        table_size = prod(sizes[neighbor] for neighbor in clique)
        total_work += 10 * table_size * len(clique)
        if table_size > limit or total_work > work.remaining:
            return None
        order.append(variable)
        for neighbor in clique - {variable}:
            neighbors[neighbor] |= clique
            neighbors[neighbor].discard(variable)
            heappush(heap, (len(neighbors[neighbor]), neighbor))
    work.spend(total_work)
    return order


def eliminate(sizes: Mapping[int, int], order: Sequence[int], tables: Iterable[Table]) -> dict[int, int]:
    """Return the labeling that minimizes the sum of ``tables``.

    Among equal sums, lower labels are preferred, beginning with the last variable of ``order``.
    """
    position = {variable: index for index, variable in enumerate(order)}
    # tables by their first variable in the order
    pending: dict[int, list[Table]] = {variable: [] for variable in order}
    for table in tables:
        pending[min(table[0], key=position.__getitem__)].append(table)
    decisions = []
    for variable in order:
        variable_tables = pending.pop(variable)
        scope = tuple(sorted({member for members, _ in variable_tables for member in members} - {variable}))
        index = {member: k for k, member in enumerate((*scope, variable))}
        lookups = [([index[member] for member in members], entries) for members, entries in variable_tables]
        minima, best_labels = {}, {}
        for scope_labels in product(*(range(sizes[member]) for member in scope)):
            totals = []
            for label in range(sizes[variable]):
                choice = (*scope_labels, label)
                totals.append(sum([entries[tuple([choice[k] for k in indices])] for indices, entries in lookups]))
            minima[scope_labels] = min(totals)
            best_labels[scope_labels] = totals.index(minima[scope_labels])
        decisions.append((variable, scope, best_labels))
        if scope:
            pending[min(scope, key=position.__getitem__)].append((scope, minima))
    labels: dict[int, int] = {}
    for variable, scope, best_labels in reversed(decisions):
        labels[variable] = best_labels[tuple([labels[member] for member in scope])]
    return labels
