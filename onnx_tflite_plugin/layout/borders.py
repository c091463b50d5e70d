"""Borders of subgraphs: what is one value on both sides lies in one order, whichever the plan chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Tensor

Slot = tuple[Bound, int]
Place = Slot | Tensor  # an operand or result of an operator, or an input or output of a subgraph

REPEATED = 8  # how often a loop is taken to run


@dataclass(frozen=True, eq=False)
class Border:
    """One value. ``perms``: whole axes in the orders that it may have, the file's first."""

    places: tuple[Place, ...]
    perms: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor_at(place) for place in self.places]


def tensor_at(place: Place) -> Tensor:
    return place if isinstance(place, Tensor) else place[0].op[place[1]]


def borders(model: BoundModel) -> list[Border]:
    """Values that operators pass to their subgraphs and back, of three axes and more.

    Those of one rank only, and of subgraphs that nobody else calls.
    """
    same: dict[Place, list[Place]] = {}
    for bound in model.operators():
        for one, other in _passed(model, bound):
            joined = same.setdefault(one, [one])
            others = same.setdefault(other, [other])
            if joined is not others:
                joined.extend(others)
                same.update(dict.fromkeys(others, joined))
    elsewhere = _elsewhere(model)
    groups = {id(places): Border(tuple(places)) for places in same.values()}
    free_borders = [border for border in groups.values() if _free(border, elsewhere)]
    for border in free_borders:
        border.perms.append(tuple(range(border.tensors[0].rank)))
    return free_borders


def _passed(model: BoundModel, bound: Bound) -> Iterator[tuple[Place, Place]]:
    """Places at which an operator and its subgraphs, or two steps of a loop, have the same value."""
    passed, op = bound.declared.borders, bound.op
    if passed is None:
        return
    called = [model.graphs[index] for index in bound.declared.subgraphs]
    for graph in called:
        for k, tensor in enumerate(graph.inputs):
            if op.tensor(passed.first + k) is not None:
                yield (bound, passed.first + k), tensor
    for graph in called[-1:] if passed.loops else called:
        for k, tensor in enumerate(graph.outputs):
            if op.tensor(~k) is not None:
                yield (bound, ~k), tensor
                if passed.loops and op.tensor(passed.first + k) is not None:
                    yield (bound, ~k), (bound, passed.first + k)


def _elsewhere(model: BoundModel) -> set[int]:
    """Subgraphs that are entered in the file's order: the main one, and those that operators without borders call."""
    others = [bound for bound in model.operators() if bound.declared.borders is None]
    return {model.source.root, *(index for bound in others for index in bound.declared.subgraphs)}


def _free(border: Border, elsewhere: set[int]) -> bool:
    tensors = border.tensors
    entered = any(isinstance(place, Tensor) and place.subgraph in elsewhere for place in border.places)
    plain = all(tensor.has_rank and tensor.dtype not in HANDLES for tensor in tensors)
    return plain and not entered and len({tensor.rank for tensor in tensors}) == 1 and tensors[0].rank > 2


def by_tensor(all_borders: Sequence[Border]) -> Mapping[Tensor, list[Border]]:
    at: dict[Tensor, list[Border]] = {}
    for border in all_borders:
        for tensor in dict.fromkeys(border.tensors):
            at.setdefault(tensor, []).append(border)
    return at


def times(model: BoundModel) -> Mapping[int, int]:
    """How often each subgraph counts, by index: what a loop repeats counts for more."""
    counted = {model.source.root: 1}
    waiting = [model.source.root]
    while waiting:
        index = waiting.pop()
        for bound in model.graphs[index].operators:
            passed = bound.declared.borders
            often = counted[index] * (REPEATED if passed is not None and passed.loops else 1)
            for called in bound.declared.subgraphs:
                if counted.get(called, 0) < often:
                    counted[called] = often
                    waiting.append(called)
    return counted
