"""Names of dynamic dimensions of graph inputs and outputs.

Two dimensions share a name only if they must be equal, because runtimes plan memory by these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isqrt

import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.normalize.inference import infer, skeleton
from onnx_tflite_plugin.source.model import Dims

# Pairs of sample sizes, by the number of dynamic dimensions. A single sample could be equal to a constant of the file.
# The sizes are small, because inference stores the values of vectors, whose length may be the product of all sizes.
SAMPLES = ((101, 1009), (101, 1009), (31, 97))
MANY_NAMES_SAMPLES = (11, 29)
InputAxis = tuple[str, int]  # a graph input and its axis


def name_dimensions(
    model: ir.Model, requested: Mapping[InputAxis, str], output_names: Mapping[InputAxis, str] = {}
) -> None:
    """Name the dynamic dimensions of a model's inputs and outputs.

    ``requested``: names of input dimensions. ``output_names``: known names of output dimensions.
    """
    dynamic_axes = [(str(value.name), axis) for value, axis in _dynamic_axes(model.graph.inputs)]
    if not dynamic_axes:
        return
    infer_outputs = _InferenceCache(skeleton(model))
    names = _merge_names(
        infer_outputs,
        {input_axis: requested.get(input_axis, f"{input_axis[0]}_dim{input_axis[1]}") for input_axis in dynamic_axes},
    )
    for value, axis in _dynamic_axes(model.graph.inputs):
        _set_name(value, axis, names[str(value.name), axis])
    samples = _samples(names)
    inferred = [(infer_outputs(_axis_sizes(names, start)), _sample_sizes(names, start)) for start in samples]
    for value, axis in _dynamic_axes(model.graph.outputs):
        if (str(value.name), axis) in output_names:
            _set_name(value, axis, output_names[str(value.name), axis])
            continue
        index = list(model.graph.outputs).index(value)
        for name in names.values():
            if all(_has_size(shapes, index, axis, sizes[name]) for shapes, sizes in inferred):
                _set_name(value, axis, name)


def _dynamic_axes(values: Iterable[ir.Value]) -> Iterator[tuple[ir.Value, int]]:
    for value in values:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is None:
                yield value, axis


def _set_name(value: ir.Value, axis: int, name: str) -> None:
    assert value.shape is not None
    value.shape = ir.Shape([name if k == axis else size for k, size in enumerate(value.shape)])


def _samples(names: Mapping[InputAxis, str]) -> tuple[int, int]:
    return SAMPLES[len(names) - 1] if len(names) <= len(SAMPLES) else MANY_NAMES_SAMPLES


def _sample_sizes(names: Mapping[InputAxis, str], start: int) -> dict[str, int]:
    """Return a distinct sample size per name: 101, 111 and 121 for ``start`` 101.

    The step between sizes depends on ``start``, so that no two sizes have the same difference in both samples.
    """
    return {name: start + isqrt(start) * k for k, name in enumerate(dict.fromkeys(names.values()))}


def _axis_sizes(names: Mapping[InputAxis, str], start: int) -> dict[InputAxis, int]:
    """Return the sample size of each axis, with one size per name."""
    sizes = _sample_sizes(names, start)
    return {input_axis: sizes[name] for input_axis, name in names.items()}


class _InferenceCache:
    """Cached output shapes by input sizes; ``None`` if the operators reject the sizes."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto
        self._outputs: dict[frozenset[tuple[InputAxis, int]], list[Dims | None] | None] = {}

    def __call__(self, sizes: Mapping[InputAxis, int]) -> list[Dims | None] | None:
        key = frozenset(sizes.items())
        if key not in self._outputs:
            try:
                self._outputs[key] = infer(self._proto, sizes)
            except Refusal:
                self._outputs[key] = None
        return self._outputs[key]


def _has_size(outputs: list[Dims | None] | None, index: int, axis: int, size: int) -> bool:
    dims = None if outputs is None else outputs[index]
    return dims is not None and axis < len(dims) and dims[axis] == size


def _merge_names(infer_outputs: _InferenceCache, names: Mapping[InputAxis, str]) -> dict[InputAxis, str]:
    """Return the names after merging those of dimensions that must be equal.

    Dimensions must be equal if shape inference fails with different sizes. Only dimensions of the same axis are merged,
    and only if all of them can change together; otherwise they depend on another axis.
    """
    merged = dict(names)
    small, large = _samples(names)
    if infer_outputs(_axis_sizes(merged, small)) is not None:
        return merged
    by_axis: dict[int, list[InputAxis]] = {}
    for input_axis in names:
        by_axis.setdefault(input_axis[1], []).append(input_axis)
    equal_sizes = dict.fromkeys(names, small)
    for axes in by_axis.values():
        first, *rest = axes
        if any(infer_outputs({**equal_sizes, **dict.fromkeys(axes, size)}) is None for size in (small, large)):
            continue
        for input_axis in rest:
            if all(infer_outputs({**equal_sizes, input_axis: size}) is None for size in (1, large)):
                merged[input_axis] = merged[first]
    return merged
