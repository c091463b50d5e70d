"""What both runtimes are fed: the user's arrays, or random ones that fit each graph input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import VerificationError
from ..source.model import Array, Quantization, Subgraph, Tensor
from .packages import optional
from .structure import Entry, operands

Given = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path | None

_QUANTIZED = {"int8", "uint8", "int16"}  # drawn over the whole range of the dtype
_NIBBLES = {"int4": (np.int8, -8, 8), "uint4": (np.uint8, 0, 16), "int2": (np.int8, -2, 2)}
_WHOLE = {"int32", "int64", "uint16", "uint32", "uint64"}
_BOUND = 10  # integers are drawn below this, or below the smallest size they may index
_TEXTS = ("", "a", "onnx", "tflite", "Hello, world", "žluťoučký kůň")


def load(path: str | Path) -> dict[str, Array]:
    """The arrays of an .npz by name, or the one of an .npy under the name ""."""
    try:
        arrays = np.load(path)
    except (OSError, ValueError) as error:
        raise VerificationError(f"the inputs in {path} cannot be read: {error}") from error
    if isinstance(arrays, np.ndarray):
        return {"": arrays}
    with arrays:
        return {name: arrays[name] for name in arrays.files}


def draw(
    entry: Entry,
    *,
    given: Given = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    runs: int = 1,
    caution: int = 0,
) -> list[list[Array]]:
    """The inputs of each run in the entry's order: what is given by name, the rest drawn.

    ``given`` is one mapping for all runs, one a run (which then sets their number), or an .npy or .npz file; a file
    or mapping whose names are not the model's is taken by position where the count fits. ``shapes`` sets dynamic
    sizes. ``caution`` makes what is drawn harder to refuse: at 1 nothing is negative and wider integers are 1, at 2 they
    are 0.
    """
    named = _given(entry, given) or [{}]
    return [
        [
            _fitted(tensor, name, given_arrays[name])
            if name in given_arrays
            else _random(entry.subgraph, tensor, tuple((shapes or {}).get(name, tensor.shape)), (seed, run, k), caution)
            for k, (tensor, name) in enumerate(zip(entry.inputs, entry.input_names, strict=True))
        ]
        for run, given_arrays in enumerate(named * runs if len(named) == 1 else named)
    ]


def _given(entry: Entry, given: Given) -> list[dict[str, Array]]:
    """The given arrays of each run under the entry's names; empty where nothing is given."""
    if given is None:
        return []
    if isinstance(given, str | Path):
        given = load(given)
    runs = [given] if isinstance(given, Mapping) else list(given)
    return [_renamed(entry, {name: np.asarray(value) for name, value in run.items()}) for run in runs]


def _renamed(entry: Entry, arrays: dict[str, Array]) -> dict[str, Array]:
    unknown = [name for name in arrays if name not in entry.input_names]
    if not unknown:
        return arrays
    if len(unknown) == len(arrays) == len(entry.inputs):
        return dict(zip(entry.input_names, arrays.values(), strict=True))
    raise VerificationError(
        f"no input is called {', '.join(map(repr, unknown))}; the model's inputs are {', '.join(entry.input_names)}"
    )


def _fitted(tensor: Tensor, name: str, array: Array) -> Array:
    """A given array in the tensor's dtype, where no value is lost."""
    if array.ndim != tensor.rank and tensor.rank:
        raise VerificationError(f"input {name!r} has {tensor.rank} dimensions, the given array has {array.ndim}")
    if tensor.dtype == "string":
        return array.astype(object)
    dtype = _dtype(tensor.dtype)
    if array.dtype == dtype:
        return array
    converted = array.astype(dtype)
    exact = np.dtype(dtype).kind not in "biu" or np.array_equal(converted, array)
    if not exact or array.dtype.kind in "OSU":
        raise VerificationError(f"input {name!r} is {tensor.dtype}; the given array is {array.dtype}")
    return converted


def _random(graph: Subgraph, tensor: Tensor, shape: tuple[int, ...], seed: tuple[int, ...], caution: int) -> Array:
    generator = np.random.default_rng(seed)
    dtype = tensor.dtype
    if dtype == "string":
        return np.asarray(np.array(_TEXTS, object)[generator.integers(0, len(_TEXTS), shape)], object).reshape(shape)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in _NIBBLES:
        kind, low, high = _NIBBLES[dtype]
        return generator.integers(low, high, shape).astype(kind)
    if dtype in _QUANTIZED:
        limits = np.iinfo(dtype)
        quantization = tensor.quantization
        zero_point = quantization.zero_point[0] if isinstance(quantization, Quantization) else 0
        low = zero_point + 1 if caution and zero_point < limits.max else int(limits.min)
        return generator.integers(low, int(limits.max) + 1, shape).astype(dtype)
    if dtype in _WHOLE:
        low, high = _whole_range(graph, tensor, caution)
        return generator.integers(0 if dtype.startswith("u") else low, high, shape).astype(dtype)
    if dtype.startswith("complex"):
        parts = generator.standard_normal((2, *shape))
        return cast("Array", (parts[0] + 1j * parts[1]).astype(dtype))
    if "float" not in dtype:
        raise VerificationError(f"input {tensor} is a {dtype}: nothing can be drawn for it")
    low_high = _float_range(graph, tensor)
    values = np.asarray(generator.uniform(*low_high, shape) if low_high else generator.standard_normal(shape))
    return (np.abs(values) if caution else values).astype(_dtype(dtype))


def _whole_range(graph: Subgraph, tensor: Tensor, caution: int) -> tuple[int, int]:
    """[low, high) for an integer input: operands of plain arithmetic may be negative, whatever else may be an index."""
    if caution:
        return (1, 2) if caution == 1 else (0, 1)
    arithmetic = True
    sizes = [_BOUND]
    reached, waiting = {tensor.index}, [tensor.index]
    while waiting:
        index = waiting.pop()
        for operator in graph.operators:
            if all(slot is None or slot.index != index for slot in operator.inputs):
                continue
            slots = [slot for slot in (*operator.inputs, *operator.outputs) if slot is not None]
            if any(slot.dtype != tensor.dtype or slot.shape not in (tensor.shape, ()) for slot in slots):
                arithmetic = False
                others = (slot for slot in operator.inputs if slot is not None and slot.index not in reached)
                sizes += [size for slot in others for size in slot.shape if size > 1]
            for slot in operator.outputs:
                if slot is not None and slot.dtype in _WHOLE and slot.index not in reached:
                    reached.add(slot.index)
                    waiting.append(slot.index)
    return (-_BOUND if arithmetic else 0), min(sizes)


def _float_range(graph: Subgraph, tensor: Tensor) -> tuple[float, float] | None:
    """The range a float input is quantized to right away; None where it is not."""
    for operator in graph.operators:
        if [slot.index for slot in operands(operator)] != [tensor.index]:
            continue
        for output in operator.outputs:
            quantization = output.quantization if output is not None else None
            if output is None or not isinstance(quantization, Quantization) or output.dtype not in _QUANTIZED:
                continue
            if output.shape == tensor.shape and not quantization.per_axis:
                limits = np.iinfo(output.dtype)
                scale, zero_point = quantization.scale[0], quantization.zero_point[0]
                return scale * (int(limits.min) - zero_point), scale * (int(limits.max) - zero_point)
    return None


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        return cast("np.dtype[Any]", np.dtype(getattr(optional("ml_dtypes"), name)))
