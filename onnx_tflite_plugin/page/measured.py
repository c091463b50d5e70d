"""What both runtimes say of a conversion: every tensor compared, and the time of each operator."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.page.labels import operator_of
from onnx_tflite_plugin.verify.ort import OnnxRuntime
from onnx_tflite_plugin.verify.run import Examined

if TYPE_CHECKING:
    from onnx import ModelProto


def measured(
    tflite: bytes, onnx: ModelProto, runs: int
) -> tuple[list[dict[str, Any]], str, bool, dict[int, float], float]:
    """(tensors in execution order, the verdict on the outputs, whether they are wrong, seconds a run by operator, of the rest).

    Raises ConversionError where a model does not run, MissingExtra without the runtimes.
    """
    examined = Examined(tflite, onnx, None, None, lambda stage: None)
    drawn, expected = examined.expected(None, 0, 1, None, {})
    operators = examined.operators_apart()
    notes: tuple[str, ...] = ()
    if operators is None:
        outputs = examined.trial.compared(examined.trial.actual(examined.session, drawn), expected)
        compared = list(examined.search.comparisons(drawn))
    else:
        compared = list(operators.comparisons(drawn))
        judged = examined.judged_apart(operators, compared, len(drawn))
        outputs, notes = judged.comparisons, judged.notes
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
    seconds, rest = _profiled(onnx, examined.pairs.feeds(drawn[0]), runs)
    return errors, verdict, wrong, seconds, rest


def _profiled(onnx: ModelProto, feeds: dict[str, Any], runs: int) -> tuple[dict[int, float], float]:
    """Seconds a run of each TFLite operator, by the names of the nodes; and of nodes that are named after none."""
    with tempfile.TemporaryDirectory() as folder:
        session = OnnxRuntime(onnx, profile=Path(folder) / "profile")
        for _ in range(runs + 1):
            session.run(feeds)
        events = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    nodes = [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    each = len(nodes) // (runs + 1) if nodes else 0
    seconds: dict[int, float] = defaultdict(float)
    rest = 0.0
    for event in nodes[each:]:  # the first run allocates
        operator, took = operator_of(event["name"]), event["dur"] / 1e6 / runs
        if operator is None:
            rest += took
        else:
            seconds[operator] += took
    return dict(seconds), rest
