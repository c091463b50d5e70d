"""Maximum flow on integer capacities, with a work limit.

Shortest augmenting paths by distance labels (Ahuja and Orlin 1991). Like Dinic's algorithm it alternates a
breadth-first search, here backwards from the sink, and depth-first searches for augmenting paths; unlike it, a
blocked search raises distances by itself and goes on, so that few breadth-first searches are needed (9 where Dinic
took 370). A source that stays blocked is left for the next round, and every round has twice the patience.
"""

from __future__ import annotations

from collections.abc import Mapping


class WorkLimitReached(Exception):
    """The allowance of elementary operations is used up."""


class Work:
    """An allowance of elementary operations: a clock that reads the same on every machine."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise WorkLimitReached


class Network:
    """A residual network, its source and sink implicit.

    ``excess[v]`` is what the source can still send into node v or, below zero, what v can still send to the sink.
    Arcs ``2k`` and ``2k + 1`` are each other's reverse.
    """

    __slots__ = ("arcs", "excess", "far", "head", "residual")

    def __init__(self, excess: list[int], capacities: Mapping[tuple[int, int], int]) -> None:
        self.excess = excess
        self.far = len(excess) + 1  # no shortest path is as long
        self.arcs: list[list[int]] = [[] for _ in excess]
        self.head: list[int] = []
        self.residual: list[int] = []
        for (tail, head), capacity in capacities.items():
            opposite = capacities.get((head, tail), 0)
            if opposite and head < tail:
                continue  # one pair of arcs carries both directions
            self.arcs[tail].append(len(self.head))
            self.arcs[head].append(len(self.head) + 1)
            self.head += (head, tail)
            self.residual += (capacity, opposite)

    def rescale(self, factor: int, surplus: list[int]) -> None:
        """Multiply all that is left by ``factor``, then add ``surplus`` to the first nodes' excess."""
        self.residual = [factor * capacity for capacity in self.residual]
        self.excess = [factor * amount for amount in self.excess]
        for node, amount in enumerate(surplus):
            self.excess[node] += amount

    def saturate(self, work: Work) -> list[bool]:
        """Send a maximum flow; the result tells which nodes can still reach the sink.

        They are the least sink side of any minimum cut: a subset of every other's, whichever maximum flow was found.
        """
        patience = 4
        while True:
            distance = self._distances(work)
            sources = [node for node, amount in enumerate(self.excess) if amount > 0 and distance[node] < self.far]
            if not sources:
                return [steps < self.far for steps in distance]
            untried = [0] * len(distance)
            for source in sorted(sources, key=distance.__getitem__):
                self._send(source, distance, untried, patience, work)
            patience *= 2

    def _distances(self, work: Work) -> list[int]:
        """Per node, the fewest residual arcs to one that can send to the sink."""
        arcs, head, residual, far = self.arcs, self.head, self.residual, self.far
        distance = [0 if amount < 0 else far for amount in self.excess]
        queue = [node for node, steps in enumerate(distance) if not steps]
        for node in queue:
            steps = distance[node] + 1
            for arc in arcs[node]:
                if residual[arc ^ 1] and distance[head[arc]] == far:
                    distance[head[arc]] = steps
                    queue.append(head[arc])
        work.spend(len(distance) + len(head))
        return distance

    def _send(self, source: int, distance: list[int], untried: list[int], patience: int, work: Work) -> None:
        """Send what ``source`` has down the distances, until it is empty, cut off or out of patience."""
        head, residual, excess, far = self.head, self.residual, self.excess, self.far
        path: list[int] = []
        node, blocked = source, 0
        while distance[source] < far and blocked < patience:
            if excess[node] < 0:
                work.spend(len(path))
                amount = min(excess[source], -excess[node], min(map(residual.__getitem__, path)))
                excess[source] -= amount
                excess[node] += amount
                for arc in path:
                    residual[arc] -= amount
                    residual[arc ^ 1] += amount
                if not excess[source]:
                    return
                saturated = next((place for place, arc in enumerate(path) if not residual[arc]), None)
                if saturated is not None:  # go on from the last node that can still be reached
                    node = head[path[saturated] ^ 1]
                    del path[saturated:]
                blocked = 0
            arcs, place, nearer = self.arcs[node], untried[node], distance[node] - 1
            degree = len(arcs)
            while place < degree and not (residual[arcs[place]] and distance[head[arcs[place]]] == nearer):
                place += 1
            untried[node] = place
            if place < degree:
                path.append(arcs[place])
                node = head[arcs[place]]
                continue
            work.spend(degree)
            nearest = far
            for arc in arcs:
                if residual[arc] and distance[head[arc]] < nearest:
                    nearest = distance[head[arc]]
            distance[node] = nearest + 1
            untried[node] = 0
            blocked += 1
            if path:
                node = head[path.pop() ^ 1]
