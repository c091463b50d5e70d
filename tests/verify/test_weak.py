"""Tensors behind outputs that say little, and the operators that make them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.operators.weak import Weak

FAR = Comparison("t", "step", 9.0, 1.0, 1.0, mean=5.0)
NEAR = Comparison("t", "step", 1.0, 0.1, 1.0, mean=0.1)


def before(tensor: Comparison, operator: Comparison | None) -> list[Comparison]:
    """What is told of a tensor in between; ``operator``: what comes of the operator that makes it, alone, if it can be tried."""
    code: Any = SimpleNamespace(code="RSQRT", inputs=())
    graph = SimpleNamespace(tensors=[SimpleNamespace(index=0)])
    search: Any = SimpleNamespace(
        producers={0: code},
        trial=SimpleNamespace(entry=SimpleNamespace(subgraph=graph)),
        comparisons=lambda runs: iter([(tensor, SimpleNamespace(tensor=0, name="value"))]),
    )
    weak = Weak(search, lambda *part: SimpleNamespace(comparisons=[]))
    weak._alone = lambda tensor, value: None if operator is None else [operator]  # type: ignore[method-assign]
    return weak._before([])


@pytest.mark.parametrize("operator", [FAR, None])
def test_a_tensor_far_off_is_told_where_its_operator_is_wrong_or_cannot_be_tried(operator: Comparison | None) -> None:
    (told,) = before(FAR, operator)
    assert "off by 5 LSB on average" in told.problem


def test_an_operator_that_is_right_makes_much_of_small_differences() -> None:
    assert not before(FAR, NEAR)


def test_a_tensor_of_another_shape_is_told_whatever_its_operator_does() -> None:
    (told,) = before(Comparison("t", "step", 0.0, 0.0, 1.0, problem="shape [2] for [3]"), NEAR)
    assert told.problem == "shape [2] for [3]"


def test_a_tensor_that_is_near_is_not_told() -> None:
    assert not before(NEAR, FAR)
