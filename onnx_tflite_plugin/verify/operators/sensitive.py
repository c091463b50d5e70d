"""Outputs that small differences decide: those behind a choice among numbers that are almost equal, as an index of the largest or what
lies above a threshold is, and those in which LiteRT's own kernels part.

Where every operator gives what LiteRT's does on LiteRT's own operands, they are no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.apart import Apart
from onnx_tflite_plugin.verify.operators.diverging import Divergence, Search
from onnx_tflite_plugin.verify.operators.singly import Alone, by_itself, untried


def settled(
    search: Search,
    diverging: Divergence | None,
    runs: Sequence[Run],
    comparisons: Sequence[Comparison],
    tolerance: Tolerance,
    alone: Alone,
) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    """The outputs' comparisons, those that fail made on LiteRT's own operands, and why; nothing where that does not explain them all.

    ``diverging``: the first tensor outside its tolerance. ``tolerance``: an operator's, ``alone`` verifies a part of both models.
    """
    reasons = {k: _reason(search, diverging, k, one) for k, one in enumerate(comparisons) if not one.ok}
    if not all(reasons.values()) or untried(search):
        return (), ()
    outputs = search.trial.entry.outputs
    agreed: dict[int, Comparison] = {}
    tried: set[int] = set()
    try:
        apart = Apart(search.trial, search.session, tolerance, search.values)
        for comparison, value in apart.comparisons(runs):
            if comparison.ok:
                agreed.setdefault(value.tensor, comparison)
            elif value.tensor not in tried:
                tried.add(value.tensor)
                others = by_itself(search, apart, value, alone)
                if not others or not all(other.ok for other in others):
                    return (), ()
                agreed[value.tensor] = others[0]
    except ConversionError:  # LiteRT or ONNX Runtime does not run what keeps all tensors
        return (), ()
    if any(outputs[k].index not in agreed for k in reasons):
        return (), ()
    judged = (
        replace(agreed[outputs[k].index], name=one.name) if k in reasons else one for k, one in enumerate(comparisons)
    )
    return tuple(judged), tuple(dict.fromkeys(reasons.values()))


def behind(operators: Sequence[Operator], choice: Operator) -> set[int]:
    """The tensors that follow from an operator's results, by index."""
    late: set[int] = set()
    for op in operators:
        if op is choice or any(t is not None and t.index in late for t in op.inputs):
            late |= {t.index for t in op.outputs if t is not None}
    return late


def _reason(search: Search, diverging: Divergence | None, output: int, comparison: Comparison) -> str:
    """Why an output that fails may be right; empty where there is no reason."""
    entry = search.trial.entry
    apart = "compared operator by operator, on LiteRT's own inputs"
    if comparison.problem:
        return ""
    if comparison.spread > comparison.tolerance:
        return (
            f"{comparison.name!r}: LiteRT's own kernels part there by more than the tolerance, so that it was {apart}"
        )
    if (
        diverging is None
        or not _chosen(diverging)
        or entry.outputs[output].index not in behind(entry.subgraph.operators, diverging.operator)
    ):
        return ""
    where = f"operator {diverging.operator.index} {diverging.operator.code}"
    return f"{diverging.tensor.name!r} of {where} chooses among numbers that are almost equal: what lies behind it was {apart}"


def _chosen(diverging: Divergence) -> bool:
    """Whether a tensor's integers or truth values were made of numbers that are rounded."""
    rounded = any(t is not None and not t.is_constant and _rounded(t) for t in diverging.operator.inputs)
    return rounded and not _rounded(diverging.tensor) and not diverging.comparison.problem


def _rounded(tensor: Tensor) -> bool:
    return tensor.dtype.startswith(("float", "bfloat")) or isinstance(tensor.quantization, Quantization)
