"""Widths of random inputs; the runs of each width are compared separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.inputs.drawn import widens
from onnx_tflite_plugin.verify.runtimes.structure import Entry

WIDTHS = (1.0, 4.0, 16.0)
"""Standard deviations run by run, so that bounds like that of RELU6 are met."""


def widths(entry: Entry) -> Sequence[float]:
    """Return the widths of a model's runs: one width if no float input is drawn by it."""
    return WIDTHS if widens(entry) else (1.0,)


def compare_by_width(
    trial: Trial, actual: Sequence[Run], expected: Mapping[str, Sequence[Run]], widths: Sequence[float]
) -> tuple[Comparison, ...]:
    """Return one comparison per output: of the runs of equal width, those nearest to their limit or beyond it.

    A share of the range says nothing of runs whose own range is a small part of it.
    """
    drawn = [widths[k % len(widths)] for k in range(len(actual))]
    groups = [
        trial.compare_outputs(*_select_runs(actual, expected, [k for k, one in enumerate(drawn) if one == width]))
        for width in dict.fromkeys(drawn)
    ]
    return tuple(max(of_tensor, key=_nearness) for of_tensor in zip(*groups, strict=True))


def _select_runs(
    actual: Sequence[Run], expected: Mapping[str, Sequence[Run]], which: Sequence[int]
) -> tuple[list[Run], dict[str, list[Run]]]:
    """Return some of the runs."""
    return [actual[k] for k in which], {kernels: [runs[k] for k in which] for kernels, runs in expected.items()}


def _nearness(comparison: Comparison) -> tuple[bool, float]:
    """Return a sort key by how close a comparison is to failing; failures come last."""
    return not comparison.ok, comparison.distance / comparison.band if comparison.band else comparison.distance
