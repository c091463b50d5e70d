"""Outputs behind a choice among numbers that are almost equal: an index of the largest, what lies above a threshold.

The last bit of a float decides there, and a whole list moves by one. Which it is, is no error where every operator gives what
LiteRT's does on LiteRT's own operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.apart import Apart
from onnx_tflite_plugin.verify.operators.diverging import Divergence, Search
from onnx_tflite_plugin.verify.operators.singly import tolerance_of, untried


def settled(
    search: Search, diverging: Divergence | None, runs: Sequence[Run], comparisons: Sequence[Comparison]
) -> tuple[Comparison, ...]:
    """The outputs' comparisons, those behind a choice made on LiteRT's own operands; none where that is not the reason.

    ``diverging``: the first tensor outside its tolerance. It must be the choice, every output that fails must lie behind it, and every
    operator must agree by itself.
    """
    if diverging is None or not _chosen(diverging) or untried(search):
        return ()
    outputs = search.trial.entry.outputs
    late = behind(search.trial.entry.subgraph.operators, diverging.operator)
    failing = {k for k, one in enumerate(comparisons) if not one.ok}
    if any(comparisons[k].problem or outputs[k].index not in late for k in failing):
        return ()
    alone: dict[int, Comparison] = {}
    try:
        apart = Apart(search.trial, search.session, tolerance_of(search.trial.tolerance), search.values)
        for comparison, value in apart.comparisons(runs):
            if not comparison.ok:
                return ()
            alone[value.tensor] = max(alone.get(value.tensor, comparison), comparison, key=lambda one: one.distance)
    except ConversionError:  # LiteRT or ONNX Runtime does not run what keeps all tensors
        return ()
    if not {diverging.tensor.index, *(outputs[k].index for k in failing)} <= {*alone}:
        return ()
    return tuple(
        replace(alone[outputs[k].index], name=one.name) if k in failing else one for k, one in enumerate(comparisons)
    )


def note(diverging: Divergence) -> str:
    where = f"operator {diverging.operator.index} {diverging.operator.code}"
    return (
        f"{diverging.tensor.name!r} of {where} chooses among numbers that are almost equal, which their last bits decide: what lies "
        "behind it was compared operator by operator, on LiteRT's own inputs"
    )


def behind(operators: Sequence[Operator], choice: Operator) -> set[int]:
    """The tensors that follow from an operator's results, by index."""
    late: set[int] = set()
    for op in operators:
        if op is choice or any(t is not None and t.index in late for t in op.inputs):
            late |= {t.index for t in op.outputs if t is not None}
    return late


def _chosen(diverging: Divergence) -> bool:
    """Whether a tensor's integers or truth values were made of numbers that are rounded."""
    rounded = any(t is not None and not t.constant and _rounded(t) for t in diverging.operator.inputs)
    return rounded and not _rounded(diverging.tensor) and not diverging.comparison.problem


def _rounded(tensor: Tensor) -> bool:
    return tensor.dtype.startswith(("float", "bfloat")) or isinstance(tensor.quantization, Quantization)
