"""Measurements in both runtimes: the comparison of every tensor, and the time of each operator."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify.examined import Examined
from onnx_tflite_plugin.verify.times.nodes import node_times

if TYPE_CHECKING:
    from onnx import ModelProto


def measure_errors(
    tflite: bytes, onnx: ModelProto, runs: int
) -> tuple[list[dict[str, Any]], str, bool, dict[int, float], float]:
    """Return tensor errors in execution order, the verdict, whether it is a failure, and seconds per run: by operator, others.

    Raises ConversionError if a model does not run, MissingExtra without the runtimes.
    """
    examined = Examined(tflite, onnx, None, None, lambda stage: None)
    notes = examined.fill(Host, partial=True)
    drawn, expected = examined.expected(None, 0, 1, None, {})
    operators = examined.operators_apart()
    if operators is None:
        outputs = examined.trial.compared(examined.trial.actual(examined.session, drawn), expected)
        compared = list(examined.search.comparisons(drawn))
    else:
        compared = list(operators.comparisons(drawn))
        judged = examined.judged_apart(operators, compared, len(drawn), lambda: examined.whole_apart(drawn, expected))
        outputs, notes = judged.comparisons, (*judged.notes, *notes)
    wrong = not all(one.ok for one in outputs)
    said = "; ".join((*(f"{one.name}: {one.text}" for one in outputs), *notes))
    verdict = f"{'NOT ' if wrong else ''}within tolerance of LiteRT: {said}"
    tensors = examined.entry.subgraph.tensors
    errors = [
        {
            "tensor": value.tensor,
            "name": tensors[value.tensor].name,
            "distance": comparison.distance if math.isfinite(comparison.distance) else None,
            "band": comparison.band,
            "ok": comparison.ok,
            "text": comparison.text,
        }
        for comparison, value in compared
    ]
    seconds, rest = _by_operator(onnx, examined.pairs.feeds(drawn[0]), runs)
    return errors, verdict, wrong, seconds, rest


def _by_operator(onnx: ModelProto, feeds: dict[str, Any], runs: int) -> tuple[dict[int, float], float]:
    """Return seconds per run of each TFLite operator, and of nodes that belong to none."""
    seconds: dict[int, float] = defaultdict(float)
    rest = 0.0
    for node in node_times(onnx, feeds, runs):
        if node.operator is None:
            rest += node.seconds
        else:
            seconds[node.operator] += node.seconds
    return dict(seconds), rest
