"""Errors of correct submodels stay within the criteria.

``python -m tests.qa.criteria`` measures more files.
"""

from __future__ import annotations

from pathlib import Path

from tests.qa.criteria import measure

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_correct_submodels_stay_below_each_criterion() -> None:
    rows = measure([EXAMPLES / "digits_float.tflite", EXAMPLES / "digits_int8.tflite"])
    assert {"OPERATOR", "STEPS"} <= rows.keys()
    assert all(row.error <= row.allowed and row.submodels for row in rows.values())
    assert rows["OPERATOR"].error > 0
    assert rows["OPERATOR"].where.startswith("digits_float.tflite: ")
