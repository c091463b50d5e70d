"""Inputs of a case: its own arrays or random values, for all dynamic sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conformance.case import Case
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import generate_inputs
from onnx_tflite_plugin.verify.runtimes.structure import Entry


def inputs_of_runs(case: Case, entry: Entry) -> list[list[Array]]:
    """Return the inputs of each run; runs with other dynamic sizes come last."""
    inputs_by_run = _inputs_by_run(case, entry)
    return [
        *generate_inputs(entry, user_inputs=inputs_by_run, runs=case.runs, nan=True),
        *(
            arrays
            for options in _options_at_other_sizes(case, entry, inputs_by_run[0])
            for arrays in generate_inputs(entry, **options)
        ),
    ]


def _options_at_other_sizes(case: Case, entry: Entry, arrays: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
    """Yield the options of ``generate_inputs`` for each size of ``dynamic_sizes``.

    Dynamic axis k has size + k, so that the axes of an input differ, but axis k of all inputs agrees and inputs broadcast.
    """
    dynamic_dims = {
        name: tensor.dims for tensor, name in zip(entry.inputs, entry.input_names, strict=True) if not tensor.is_static
    }
    is_stateful = any(tensor.is_variable for tensor in entry.subgraph.tensors)  # resizing resets states in LiteRT
    for size in case.dynamic_sizes if dynamic_dims and not is_stateful else ():
        shapes = {
            name: tuple(size + axis if n is None else n for axis, n in enumerate(dims))
            for name, dims in dynamic_dims.items()
        }
        repeated = {name: np.resize(arrays[name], shape) for name, shape in shapes.items() if name in arrays}
        yield {"user_inputs": {**arrays, **repeated}, "shapes": shapes}


def _inputs_by_run(case: Case, entry: Entry) -> Any:
    """Return the case's arrays for each run.

    If the case has an ``input_range``, random floats in this range are added for inputs without an array.
    """
    arrays_by_run, bounds = case.input_arrays, case.input_range
    if arrays_by_run is None or isinstance(arrays_by_run, Mapping):
        arrays_by_run = [arrays_by_run or {}] * case.runs
    return [
        {**(_random_floats(entry, run, *bounds) if bounds else {}), **arrays}
        for run, arrays in enumerate(arrays_by_run)
    ]


def _random_floats(entry: Entry, run: int, low: float, high: float) -> dict[str, Array]:
    generator = np.random.default_rng(run)
    return {
        name: generator.uniform(low, high, tensor.shape).astype(tensor.dtype)
        for tensor, name in zip(entry.inputs, entry.input_names, strict=True)
        if tensor.dtype.startswith("float")
    }
