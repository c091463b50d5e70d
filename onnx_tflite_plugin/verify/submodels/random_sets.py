"""Sets of random operands for the submodels of a segment, with LiteRT's results on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.inputs.random_inputs import can_reorder
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.submodels.cut_litert import CutLiteRT
from onnx_tflite_plugin.verify.submodels.operands import KINDS, random_operands
from onnx_tflite_plugin.verify.submodels.points import fixed_tensors
from onnx_tflite_plugin.verify.submodels.references import OperandSet
from onnx_tflite_plugin.verify.submodels.segment import Segment

_FAILED_NODE = re.compile(r"Node number (\d+) ")
_RETRIES = 8  # operators whose random operands LiteRT refuses


def random_sets(segment: Segment, first: OperandSet, results: list[int], *, fresh: bool) -> Iterator[OperandSet]:
    """Yield a set of each kind that LiteRT takes, of the shapes of ``first``, with its ``results``; none if it runs none.

    ``fresh``: each begins with the initial states.
    """
    expanded = None
    for kind in KINDS:
        if expanded is None or fresh:
            try:
                expanded = segment.litert(results=results)
            except ConversionError:
                return
        one = _random_set(segment, expanded, kind, first)
        if one is not None:
            yield one


def _random_set(segment: Segment, expanded: CutLiteRT, kind: str, first: OperandSet) -> OperandSet | None:
    """Draw operands that LiteRT takes; those of an operator that fails are the observed ones."""
    entry = segment.points.entry
    observed = first.operands
    drawn = _draw(segment, kind, observed)
    for _ in range(_RETRIES):
        try:
            results = expanded.run(drawn)
            inputs = [drawn.get(t.index, array) for t, array in zip(entry.inputs, first.inputs, strict=True)]
            return OperandSet(kind, inputs, drawn, results)
        except LiteRTError as error:
            failed = _FAILED_NODE.search(str(error))
            if failed is None or int(failed[1]) >= len(segment.operators):
                return None
            reads = segment.operators[int(failed[1])].inputs
            drawn |= {t.index: observed[t.index] for t in reads if t is not None and t.index in observed}
    return None


def _draw(segment: Segment, kind: str, observed: Mapping[int, Array]) -> dict[int, Array]:
    """Return random operands; tensors that are computed from constants keep their values, as do operands of an order."""
    graph, operators = segment.points.entry.subgraph, segment.operators
    counters = {
        t.index
        for op in operators
        if op.index in segment.points.recurrent
        for t in op.inputs
        if t is not None and t.index in observed and observed[t.index].size == 1 and t.dtype in ("int32", "int64")
    }
    drawn = random_operands(kind, graph, [graph.tensors[index] for index in observed], observed, counters)
    kept = fixed_tensors(graph.operators)
    if kind == "special":
        kept |= {t.index for op in operators if can_reorder(op) for t in op.inputs if t is not None}
    return drawn | {index: observed[index] for index in kept if index in observed}
