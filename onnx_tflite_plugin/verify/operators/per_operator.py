"""Comparison of every operator on LiteRT's own operands, where the outputs of the whole model decide nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.apart import Apart
from onnx_tflite_plugin.verify.operators.diverging import Search
from onnx_tflite_plugin.verify.operators.singly import Alone, by_itself, untried


class Operators(NamedTuple):
    """Comparisons of ONNX values that agree, by name of the value, and the first one that differs."""

    agreed: Mapping[str, Comparison]
    differing: Comparison | None = None


def compare_operators(
    search: Search, runs: Sequence[Run], tolerance: Tolerance, alone: Alone, skipped: Collection[int] = ()
) -> Operators:
    """Compare every operator on LiteRT's own operands, the ONNX model carrying its own states.

    ``alone`` verifies a part of both models, ``tolerance`` is an operator's, ``skipped`` are tensors by index. Nothing
    agrees if the operators cannot be compared.
    """
    agreed: dict[str, Comparison] = {}
    if untried(search):
        return Operators({})
    try:
        apart = Apart(search.trial, search.session, tolerance, search.values)
        apart.states = {}
        for comparison, value in apart.comparisons(runs):
            if value.tensor in skipped:
                continue
            if not comparison.ok:
                confirmed = by_itself(search, apart, value, alone)
                wrong = next((other for other in confirmed if not other.ok), comparison)
                if not confirmed or not wrong.ok:
                    return Operators(agreed, replace(wrong, name=value.name))
                comparison = confirmed[0]
            agreed.setdefault(value.name, comparison)
    except ConversionError:  # LiteRT or ONNX Runtime does not run what keeps all tensors
        return Operators({})
    return Operators(agreed)


def settle_outputs(
    search: Search, runs: Sequence[Run], comparisons: Sequence[Comparison], tolerance: Tolerance, alone: Alone
) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    """Return the comparisons with those that fail made on LiteRT's own operands, and notes; nothing if an operator differs."""
    operators = compare_operators(search, runs, tolerance, alone)
    outputs = search.output_values()
    failed = [one for one in comparisons if not one.ok]
    if operators.differing is not None or not all(outputs.get(one.name) in operators.agreed for one in failed):
        return (), ()
    judged = (one if one.ok else replace(operators.agreed[outputs[one.name]], name=one.name) for one in comparisons)
    notes = (f"{one.name!r} end to end: {one.text}; every operator agrees on LiteRT's own operands" for one in failed)
    return tuple(judged), tuple(notes)
