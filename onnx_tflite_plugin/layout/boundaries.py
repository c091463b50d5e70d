"""Subgraph boundaries: a value that an operator passes to its subgraph has one layout on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Tensor

Slot = tuple[Bound, int]
Place = Slot | Tensor  # an operand or result of an operator, or an input or output of a subgraph

LOOP_ITERATIONS = 8  # heuristic: assumed number of iterations of a loop


@dataclass(frozen=True, eq=False)
class BoundaryValue:
    """One value at all places where it crosses a subgraph boundary.

    ``perms``: candidate permutations of whole axes, the file's first.
    """

    places: tuple[Place, ...]
    perms: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def tensors(self) -> list[Tensor]:
        """Return the tensor at each place."""
        return [tensor_at(place) for place in self.places]


def tensor_at(place: Place) -> Tensor:
    """Return the tensor at a place."""
    return place if isinstance(place, Tensor) else place[0].op[place[1]]


def boundary_values(model: BoundModel) -> list[BoundaryValue]:
    """Return values of rank 3 or more with a flexible layout that operators pass to their subgraphs and back.

    Excluded are values with tensors of different ranks and subgraphs that are also called without declared boundaries.
    """
    same: dict[Place, list[Place]] = {}
    for bound in model.operators():
        for one, other in _place_pairs(model, bound):
            joined = same.setdefault(one, [one])
            others = same.setdefault(other, [other])
            if joined is not others:
                joined.extend(others)
                same.update(dict.fromkeys(others, joined))
    fixed = _file_layout_subgraphs(model)
    groups = {id(places): BoundaryValue(tuple(places)) for places in same.values()}
    free_values = [value for value in groups.values() if _is_free(value, fixed)]
    for value in free_values:
        value.perms.append(tuple(range(value.tensors[0].rank)))
    return free_values


def _place_pairs(model: BoundModel, bound: Bound) -> Iterator[tuple[Place, Place]]:
    """Yield pairs of places with the same value: in an operator and its subgraph, or in two steps of a loop."""
    passed, op = bound.declared.boundary, bound.op
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


def _file_layout_subgraphs(model: BoundModel) -> set[int]:
    """Return subgraphs that are called in the file's layout: the root, and subgraphs of operators without declared
    boundaries.
    """
    others = [bound for bound in model.operators() if bound.declared.boundary is None]
    return {model.source.root, *(index for bound in others for index in bound.declared.subgraphs)}


def _is_free(value: BoundaryValue, fixed: set[int]) -> bool:
    """Return True if the value may have another layout than the file's."""
    tensors = value.tensors
    entered = any(isinstance(place, Tensor) and place.subgraph in fixed for place in value.places)
    plain = all(tensor.has_rank and tensor.dtype not in HANDLES for tensor in tensors)
    return plain and not entered and len({tensor.rank for tensor in tensors}) == 1 and tensors[0].rank > 2


def boundaries_by_tensor(values: Sequence[BoundaryValue]) -> Mapping[Tensor, list[BoundaryValue]]:
    """Return the boundary values of each tensor."""
    at: dict[Tensor, list[BoundaryValue]] = {}
    for value in values:
        for tensor in dict.fromkeys(value.tensors):
            at.setdefault(tensor, []).append(value)
    return at


def execution_counts(model: BoundModel) -> Mapping[int, int]:
    """Return the weight of each subgraph by index: the estimated number of executions, loops counted."""
    counted = {model.source.root: 1}
    pending = [model.source.root]
    while pending:
        index = pending.pop()
        for bound in model.graphs[index].operators:
            passed = bound.declared.boundary
            executions = counted[index] * (LOOP_ITERATIONS if passed is not None and passed.loops else 1)
            for called in bound.declared.subgraphs:
                if counted.get(called, 0) < executions:
                    counted[called] = executions
                    pending.append(called)
    return counted
