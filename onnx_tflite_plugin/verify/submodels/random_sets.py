"""Sets of random operands for the submodels of a segment, with LiteRT's results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.inputs.random_inputs import can_reorder
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.structure import constant_producers
from onnx_tflite_plugin.verify.submodels.cut_litert import CutLiteRT
from onnx_tflite_plugin.verify.submodels.operands import KINDS, random_operands
from onnx_tflite_plugin.verify.submodels.references import OperandSet
from onnx_tflite_plugin.verify.submodels.segment import Segment

_FAILED_NODE = re.compile(r"Node number (\d+) ")
_RETRIES = 8  # number of operators that may refuse their random operands


def random_sets(
    segment: Segment, observed: OperandSet, results: list[int], *, resets_states: bool
) -> Iterator[OperandSet]:
    """Yield one set for each kind of random operands that LiteRT accepts.

    ``observed``: operands of the first run, which determine the shapes. ``results``: tensors to return.
    ``resets_states``: each set begins with the initial states.
    """
    session = None
    for kind in KINDS:
        if session is None or resets_states:
            try:
                session = segment.litert(results=results)
            except ConversionError:
                return
        operand_set = _random_set(segment, session, kind, observed)
        if operand_set is not None:
            yield operand_set


def _random_set(segment: Segment, session: CutLiteRT, kind: str, observed: OperandSet) -> OperandSet | None:
    """Return random operands that LiteRT accepts, or None if it accepts none.

    An operator that fails gets its observed operands.
    """
    entry = segment.points.entry
    operands = _random_arrays(segment, kind, observed.operands)
    for _ in range(_RETRIES):
        try:
            results = session.run(operands)
            inputs = [operands.get(t.index, array) for t, array in zip(entry.inputs, observed.inputs, strict=True)]
            return OperandSet(kind, inputs, operands, results)
        except LiteRTError as error:
            failed_node = _FAILED_NODE.search(str(error))
            if failed_node is None or int(failed_node[1]) >= len(segment.operators):
                return None
            failed_inputs = segment.operators[int(failed_node[1])].inputs
            operands |= {
                t.index: observed.operands[t.index]
                for t in failed_inputs
                if t is not None and t.index in observed.operands
            }
    return None


def _random_arrays(segment: Segment, kind: str, observed: Mapping[int, Array]) -> dict[int, Array]:
    """Return tensor index -> random operand.

    Tensors keep their observed values if they are computed from constants, or if a handler makes an assumption about their
    values. If ``kind`` is "special", operands of operators that sort keep their observed values too.
    """
    graph, operators = segment.points.entry.subgraph, segment.operators
    loop_bounds = {
        t.index
        for op in operators
        if op.index in segment.points.recurrent_operators
        for t in op.inputs
        if t is not None and t.index in observed and observed[t.index].size == 1 and t.dtype in ("int32", "int64")
    }
    arrays = random_operands(kind, graph, [graph.tensors[index] for index in observed], observed, loop_bounds)
    unchanged_tensors = constant_producers(graph.operators).keys() | segment.points.assumed_tensors
    if kind == "special":
        unchanged_tensors |= {t.index for op in operators if can_reorder(op) for t in op.inputs if t is not None}
    return arrays | {index: observed[index] for index in unchanged_tensors if index in observed}
