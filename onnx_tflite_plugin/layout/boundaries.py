"""Values that cross subgraph boundaries. Each has the same layout on both sides."""

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
    """A value at all places where it crosses a subgraph boundary.

    ``perms``: candidate permutations of whole axes. The first is the file's layout, 0, 1, 2, ...
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
    """Return the boundary values whose layout is flexible.

    Such a value has the same rank, 3 or more, at all places, and no subgraph requires the file's layout.
    """
    places_of: dict[Place, list[Place]] = {}
    for bound in model.operators():
        for first, second in _place_pairs(model, bound):
            first_group = places_of.setdefault(first, [first])
            second_group = places_of.setdefault(second, [second])
            if first_group is not second_group:
                first_group.extend(second_group)
                places_of.update(dict.fromkeys(second_group, first_group))
    fixed_subgraphs = _file_layout_subgraphs(model)
    values = {id(places): BoundaryValue(tuple(places)) for places in places_of.values()}
    flexible_values = [value for value in values.values() if _is_flexible(value, fixed_subgraphs)]
    for value in flexible_values:
        value.perms.append(tuple(range(value.tensors[0].rank)))
    return flexible_values


def _place_pairs(model: BoundModel, bound: Bound) -> Iterator[tuple[Place, Place]]:
    """Yield pairs of places with the same value: across a call, or across iterations."""
    boundary, op = bound.declared.boundary, bound.op
    if boundary is None:
        return
    subgraphs = [model.graphs[index] for index in bound.declared.subgraphs]
    for graph in subgraphs:
        for k, tensor in enumerate(graph.inputs):
            if op.tensor(boundary.first_slot + k) is not None:
                yield (bound, boundary.first_slot + k), tensor
    for graph in subgraphs[-1:] if boundary.loops else subgraphs:
        for k, tensor in enumerate(graph.outputs):
            if op.tensor(~k) is not None:
                yield (bound, ~k), tensor
                if boundary.loops and op.tensor(boundary.first_slot + k) is not None:
                    yield (bound, ~k), (bound, boundary.first_slot + k)


def _file_layout_subgraphs(model: BoundModel) -> set[int]:
    """Return the subgraphs that keep the file's layout at their boundary.

    These are the root, and the subgraphs of operators without a declared boundary.
    """
    undeclared = [bound for bound in model.operators() if bound.declared.boundary is None]
    return {model.source.root, *(index for bound in undeclared for index in bound.declared.subgraphs)}


def _is_flexible(value: BoundaryValue, fixed_subgraphs: set[int]) -> bool:
    """True if the value may have a layout other than the file's."""
    tensors = value.tensors
    is_fixed = any(isinstance(place, Tensor) and place.subgraph in fixed_subgraphs for place in value.places)
    is_supported = all(tensor.has_rank and tensor.dtype not in HANDLES for tensor in tensors)
    return is_supported and not is_fixed and len({tensor.rank for tensor in tensors}) == 1 and tensors[0].rank > 2


def boundaries_by_tensor(values: Sequence[BoundaryValue]) -> Mapping[Tensor, list[BoundaryValue]]:
    """Return the boundary values of each tensor."""
    by_tensor: dict[Tensor, list[BoundaryValue]] = {}
    for value in values:
        for tensor in dict.fromkeys(value.tensors):
            by_tensor.setdefault(tensor, []).append(value)
    return by_tensor


def execution_counts(model: BoundModel) -> Mapping[int, int]:
    """Return the estimated number of executions of each called subgraph by its index."""
    counts = {model.source.root: 1}
    pending = [model.source.root]
    while pending:
        index = pending.pop()
        for bound in model.graphs[index].operators:
            boundary = bound.declared.boundary
            executions = counts[index] * (LOOP_ITERATIONS if boundary is not None and boundary.loops else 1)
            for called in bound.declared.subgraphs:
                if counts.get(called, 0) < executions:
                    counts[called] = executions
                    pending.append(called)
    return counts
