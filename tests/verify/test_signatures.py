"""Test the verdict on a model with several signatures."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.criteria import DYNAMIC_RANGE
from onnx_tflite_plugin.verify.verification import Verification, merge_verifications


def verification(distance: float, *, operators: int = 0, reasons: tuple[str, ...] = ()) -> Verification:
    comparison = Comparison("cache", "range", distance, 1.0, DYNAMIC_RANGE, "xnnpack")
    return Verification((comparison,), ("xnnpack",), 3, operators=operators, reasons=reasons)


AGREES = verification(0.01, operators=5)


@pytest.mark.parametrize(
    ("prompt_result", "token_result", "verdict"),
    [
        (AGREES, AGREES, "agrees"),
        (verification(0.1), AGREES, "differs"),
        (AGREES, verification(0.1), "differs"),
        (verification(0.01, reasons=("a reason",)), AGREES, "inconclusive"),
    ],
)
def test_verdict_counts_each_signature(prompt_result: Verification, token_result: Verification, verdict: str) -> None:
    merged = merge_verifications({"prefill": prompt_result, "decode": token_result})
    assert merged.verdict == verdict
    assert merged.runs == 6
    assert merged.operators == prompt_result.operators + token_result.operators


def test_names_and_reasons_include_the_signature() -> None:
    merged = merge_verifications({"prefill": verification(0.01, reasons=("a reason",)), "decode": AGREES})
    assert [comparison.name for comparison in merged.comparisons] == ["prefill cache", "decode cache"]
    assert merged.reasons == ("prefill: a reason",)
