"""Tensors behind outputs that say little, and the operators that make them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Quantization, Tensor
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


@pytest.mark.parametrize("right", [True, False])
def test_behind_an_output_of_few_steps_the_operator_that_makes_it_is_tried_on_inputs_that_move_it(right: bool) -> None:
    output = Tensor(0, 7, "y", "uint8", (1, 5), (1, 5), quantization=Quantization((0.1,), (3,)))
    moving = Tensor(0, 3, "x", "uint8", (1, 5), (1, 5))
    maker = SimpleNamespace(code="SOFTMAX", inputs=(moving,), outputs=(output,))
    tried: list[Any] = []
    search: Any = SimpleNamespace(
        producers={7: maker},
        trial=SimpleNamespace(entry=SimpleNamespace(outputs=[output], subgraph=SimpleNamespace(tensors=[]))),
        comparisons=lambda runs: iter(()),
        stored=lambda tensor: f"stored {tensor.name}",
        part=lambda inputs, tensor, value: (tuple(inputs), f"{value} of {tensor.name}"),
    )
    weak = Weak(search, lambda *part: tried.append(part) or SimpleNamespace(comparisons=[NEAR if right else FAR]))
    wrong, notes = weak.examine([], {"builtin": [[np.array([[3, 4, 5, 3, 3]], np.uint8)]]}, [NEAR])
    assert tried == [((moving,), "stored y of y")]
    assert [one.name for one in wrong] == ([] if right else ["y of SOFTMAX alone"])
    assert notes == ["'y' spans 3 of 256 steps on these inputs: tensors before it were compared too"]
