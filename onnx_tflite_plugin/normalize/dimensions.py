"""Names of unknown sizes: equal ones of graph inputs and outputs have one name.

Runtimes plan memory by these names, so two sizes share one only where no others would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isqrt

import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.normalize.inference import infer, skeleton
from onnx_tflite_plugin.source.model import Dims

# Two sizes, for a file may hold one as a number: by how many are open, for inference takes memory for what vectors hold,
# and what is made as it runs may have as many elements as all of them multiply to.
SAMPLES = ((101, 1009), (101, 1009), (31, 97))
FEW = (11, 29)
InputAxis = tuple[str, int]  # a graph input and its axis


def name_dimensions(model: ir.Model, given: Mapping[InputAxis, str]) -> None:
    """Name the unknown sizes of a model's inputs and outputs; ``given`` are names that were asked for."""
    opened = [(str(value.name), axis) for value, axis in _unknown(model.graph.inputs)]
    if not opened:
        return
    outputs_at = _Inferred(skeleton(model))
    names = _tied(outputs_at, {place: given.get(place, f"{place[0]}_dim{place[1]}") for place in opened})
    for value, axis in _unknown(model.graph.inputs):
        _name(value, axis, names[str(value.name), axis])
    samples = _samples(names)
    drawn = [(outputs_at(_placed(names, start)), _sizes(names, start)) for start in samples]
    for value, axis in _unknown(model.graph.outputs):
        k = list(model.graph.outputs).index(value)
        for name in names.values():
            if all(_is(outputs, k, axis, sizes[name]) for outputs, sizes in drawn):
                _name(value, axis, name)


def _unknown(values: Iterable[ir.Value]) -> Iterator[tuple[ir.Value, int]]:
    for value in values:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is None:
                yield value, axis


def _name(value: ir.Value, axis: int, name: str) -> None:
    assert value.shape is not None
    value.shape = ir.Shape([name if k == axis else size for k, size in enumerate(value.shape)])


def _samples(names: Mapping[InputAxis, str]) -> tuple[int, int]:
    return SAMPLES[len(names) - 1] if len(names) <= len(SAMPLES) else FEW


def _sizes(names: Mapping[InputAxis, str], start: int) -> dict[str, int]:
    """A size for each name, all different, by more where they are larger: none is another and a constant in both samples."""
    return {name: start + isqrt(start) * k for k, name in enumerate(dict.fromkeys(names.values()))}


def _placed(names: Mapping[InputAxis, str], start: int) -> dict[InputAxis, int]:
    """A size for each axis, where each name has one of its own."""
    sizes = _sizes(names, start)
    return {place: sizes[name] for place, name in names.items()}


class _Inferred:
    """The sizes of a model's outputs at sizes of its inputs, each inferred once; ``None`` where the operators do not take those."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._outputs: dict[frozenset[tuple[InputAxis, int]], list[Dims | None] | None] = {}

    def __call__(self, sizes: Mapping[InputAxis, int]) -> list[Dims | None] | None:
        key = frozenset(sizes.items())
        if key not in self._outputs:
            try:
                self._outputs[key] = infer(self._proto, sizes)
            except Refused:
                self._outputs[key] = None
        return self._outputs[key]


def _is(outputs: list[Dims | None] | None, k: int, axis: int, size: int) -> bool:
    dims = None if outputs is None else outputs[k]
    return dims is not None and axis < len(dims) and dims[axis] == size


def _tied(outputs_at: _Inferred, names: Mapping[InputAxis, str]) -> dict[InputAxis, str]:
    """One name for sizes that the operators want equal: where they differ, even by a 1 that broadcasts, inference fails.

    Those of one axis, if all of them may have another size together: else it is a size of another axis that one must equal.
    """
    tied = dict(names)
    small, large = _samples(names)
    if outputs_at(_placed(tied, small)) is not None:
        return tied
    by_axis: dict[int, list[InputAxis]] = {}
    for place in names:
        by_axis.setdefault(place[1], []).append(place)
    equal = dict.fromkeys(names, small)
    for places in by_axis.values():
        first, *others = places
        if any(outputs_at({**equal, **dict.fromkeys(places, size)}) is None for size in (small, large)):
            continue
        for other in others:
            if all(outputs_at({**equal, other: size}) is None for size in (1, large)):
                tied[other] = tied[first]
    return tied
