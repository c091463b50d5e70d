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
            ceiling = max(steps for steps in distance if steps < self.far) + patience
            untried = [0] * len(distance)
            for source in sorted(sources, key=distance.__getitem__):
                self._send(source, distance, ceiling, untried, patience, work)
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

    def _send(
        self, source: int, distance: list[int], ceiling: int, untried: list[int], patience: int, work: Work
    ) -> None:
        """Send what ``source`` has down the distances, until it is empty, cut off or out of patience.

        Flow goes forward along ``path`` as far as it can before it is booked on the way back.
        """
        arcs, head, residual, excess = self.arcs, self.head, self.residual, self.excess
        node, blocked = source, 0
        path: list[int] = []
        left = [excess[source]]  # to send, from each node of the path
        while True:
            if excess[node] < 0:
                amount = min(left[-1], -excess[node])
                excess[node] += amount
                left[-1] -= amount
                blocked = 0
            if left[-1] and blocked < patience:
                out, place, nearer = arcs[node], untried[node], distance[node] - 1
                degree = len(out)
                while place < degree and not (residual[out[place]] and distance[head[out[place]]] == nearer):
                    place += 1
                untried[node] = place
                if place < degree:
                    path.append(out[place])
                    left.append(min(left[-1], residual[out[place]]))
                    node = head[out[place]]
                    continue
                nearest = ceiling
                for arc in out:
                    if residual[arc] and distance[head[arc]] < nearest:
                        nearest = distance[head[arc]]
                distance[node] = nearest + 1
                untried[node] = 0
                blocked += 1
                work.spend(degree)
            if path:
                arc = path.pop()
                unsent = left.pop()
                sent = min(left[-1], residual[arc]) - unsent
                residual[arc] -= sent
                residual[arc ^ 1] += sent
                left[-1] -= sent
                node = head[arc ^ 1]
            elif not left[-1] or blocked >= patience or distance[source] > ceiling:
                break
        excess[source] = left[0]
