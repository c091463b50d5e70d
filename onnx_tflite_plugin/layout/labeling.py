"""Labeling problems: variables with prices, connected by wires."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple


class Pin(NamedTuple):
    """One end of a wire, with a key for each label of the variable.

    Layouts that need no conversion between them have equal keys. A pin without a variable has exactly one key.
    """

    variable: int | None
    keys: tuple[Hashable, ...]


class Wire(NamedTuple):
    """A tensor between its producer and its consumers.

    The wire costs ``weight`` (nonnegative) for each key of a consumer that differs from the producer's key.
    """

    weight: int
    producer: Pin
    consumers: tuple[Pin, ...]


class LabelingProblem(NamedTuple):
    """Labeling problem. ``prices[i][x]``: the own cost of label x at variable i."""

    prices: tuple[tuple[int, ...], ...]
    wires: tuple[Wire, ...]


def cost(problem: LabelingProblem, labels: Sequence[int]) -> int:
    """Return the cost of a labeling."""
    label_costs = sum(prices[label] for prices, label in zip(problem.prices, labels, strict=True))
    return label_costs + wire_cost(problem.wires, labels)


def wire_cost(wires: Iterable[Wire], labels: Sequence[int] | Mapping[int, int]) -> int:
    """Return the cost of the wires under the labels."""
    total = 0
    for weight, (variable, producer_keys), consumers in wires:
        consumer_keys = {
            keys_by_label[0 if consumer is None else labels[consumer]] for consumer, keys_by_label in consumers
        }
        consumer_keys.discard(producer_keys[0 if variable is None else labels[variable]])
        total += weight * len(consumer_keys)
    return total
