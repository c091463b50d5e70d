"""The minimum cut of small networks, compared with brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from onnx_tflite_plugin.layout.maxflow import Network, Work, WorkLimitReached


def smallest_sink_side(excess: list[int], capacities: dict[tuple[int, int], int]) -> list[bool]:
    """Return the smallest sink side of all minimum cuts by brute force."""
    cuts = []
    for sink in product((False, True), repeat=len(excess)):
        cost = sum(amount for amount, side in zip(excess, sink, strict=True) if amount > 0 and side)
        cost += sum(-amount for amount, side in zip(excess, sink, strict=True) if amount < 0 and not side)
        cut_capacity = sum(capacity for (tail, head), capacity in capacities.items() if sink[head] and not sink[tail])
        cuts.append((cost + cut_capacity, sum(sink), list(sink)))
    return min(cuts)[2]


@pytest.mark.parametrize("largest", [1, 2, 7])
@pytest.mark.parametrize("seed", range(20))
def test_saturate_returns_the_smallest_sink_side(seed: int, largest: int) -> None:
    """Try one-way and two-way arcs; ``largest`` is the largest excess and capacity."""
    random = np.random.default_rng([seed, largest])
    excess = [int(amount) for amount in random.integers(-largest, largest + 1, 6)]
    arcs = {(int(a), int(b)) for a, b in random.integers(0, 6, (9, 2)) if a != b}
    capacities = {arc: int(random.integers(1, largest + 1)) for arc in sorted(arcs)}
    assert Network([*excess], capacities).saturate(Work(100_000)) == smallest_sink_side(excess, capacities)


def test_flow_passes_a_chain_of_two_way_arcs() -> None:
    network = Network([1, 0, 0, -1], {(0, 1): 1, (1, 0): 1, (1, 2): 1, (2, 1): 1, (2, 3): 1})
    assert network.demand() == 1
    network.saturate(Work(1000))
    assert network.demand() == 0


def test_saturate_may_use_all_of_the_work_limit() -> None:
    work = Work(2)
    work.spend(2)
    assert work.remaining == 0
    with pytest.raises(WorkLimitReached):
        work.spend(1)


def test_saturate_stops_at_the_work_limit() -> None:
    with pytest.raises(WorkLimitReached):
        Network([5, 0, -5], {(0, 1): 3, (1, 2): 4}).saturate(Work(2))
