"""Inputs moved by as much as dynamic quantization rounds activations, and what LiteRT makes of them.

How much of a range a rounding becomes hangs on the network: a loop over many time steps may make a tenth of it, or hardly any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.inputs.widths import compared_by_width
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError

_STEPS = 127  # of a row's largest magnitude (BatchQuantizeFloats, kernels/lstm_eval.cc)
_MOVED = "moved inputs"
_FARTHEST, _MEAN = 2.0, 1.5


def judged(
    trial: Trial,
    runs: Sequence[Run],
    actual: Sequence[Run],
    expected: Mapping[str, Sequence[Run]],
    widths: Sequence[float],
    comparisons: Sequence[Comparison],
    *,
    fresh: bool,
) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    """The comparisons, those that fail within what LiteRT's own result moves by as its inputs move by half a step, and which those are.

    The largest difference may be twice as much, for each of both is a maximum of noise, and the mean half as much again, for later
    layers round, too; a wrong operator moves the mean by more. As they are where LiteRT does not run the moved inputs.
    """
    kernels = next(iter(expected))
    try:
        moved = trial.litert(kernels, [[*map(_moved, arrays, range(len(arrays)))] for arrays in runs], fresh=fresh)
    except LiteRTError:
        return tuple(comparisons), ()
    again = compared_by_width(trial, actual, {kernels: expected[kernels], _MOVED: moved}, widths)
    results, said = [], []
    for one, other in zip(comparisons, again, strict=True):
        limit = _FARTHEST * other.spread
        near = other.distance <= limit and other.mean <= _MEAN * other.mean_spread
        if one.ok or one.problem or other.problem or not near:
            results.append(one)
            continue
        results.append(replace(other, tolerance=limit, spread=0.0, nearest=kernels))
        said.append(f"{one.name!r}: LiteRT's own result moves by as much where inputs move by half a step of 8 bits")
    return tuple(results), tuple(said)


def _moved(array: Array, seed: int) -> Array:
    """Floats moved by up to half a step of their row's largest magnitude; anything else as it is."""
    if array.dtype.kind != "f" or not array.ndim:
        return array
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, array.shape)
    return np.asarray(array + noise * np.abs(array).max(-1, keepdims=True, initial=0) / _STEPS, array.dtype)
