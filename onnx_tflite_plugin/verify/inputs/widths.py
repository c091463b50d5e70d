"""How wide inputs are drawn, and why runs of each width are judged by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.inputs.drawn import widens
from onnx_tflite_plugin.verify.runtimes.structure import Entry

WIDTHS = (1.0, 4.0, 16.0)
"""Standard deviations run by run, so that bounds like that of RELU6 are met."""
NOISY = (*(1.0,) * 6, 4.0, 16.0)
"""Enough of one width to tell an offset from the noise of dynamic quantization."""


def widths(entry: Entry, tolerance: Tolerance) -> Sequence[float]:
    """Those of a model's runs: one where no float is drawn at a width."""
    if not widens(entry):
        return (1.0,)
    return NOISY if tolerance.unbiased else WIDTHS


def compared_by_width(
    trial: Trial, actual: Sequence[Run], expected: Mapping[str, Sequence[Run]], widths: Sequence[float]
) -> tuple[Comparison, ...]:
    """One comparison an output: that of the runs drawn equally wide which is nearest to its limit, or beyond it.

    A share of the range says nothing of runs whose own range is a small part of it.
    """
    drawn = [widths[k % len(widths)] for k in range(len(actual))]
    groups = [
        trial.compared(*_chosen(actual, expected, [k for k, one in enumerate(drawn) if one == width]))
        for width in dict.fromkeys(drawn)
    ]
    return tuple(max(of_tensor, key=_nearness) for of_tensor in zip(*groups, strict=True))


def _chosen(
    actual: Sequence[Run], expected: Mapping[str, Sequence[Run]], which: Sequence[int]
) -> tuple[list[Run], dict[str, list[Run]]]:
    """Some of the runs."""
    return [actual[k] for k in which], {kernels: [runs[k] for k in which] for kernels, runs in expected.items()}


def _nearness(comparison: Comparison) -> tuple[bool, float]:
    """How near a comparison is to failing, failures last."""
    return not comparison.ok, comparison.distance / comparison.band if comparison.band else comparison.distance
