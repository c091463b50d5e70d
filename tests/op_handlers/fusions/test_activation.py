"""Decomposed activations in every usual form become one operator; similar patterns are not fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from conformance.cases.fusions import activation as spelling
from conformance.models import Net, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host

Draw = Callable[[Net], None]

DECOMPOSED = [("GELU", name, spelling.term_model(term)) for name, term in spelling.GELU.items()]
DECOMPOSED += [("HARD_SWISH", name, spelling.term_model(term)) for name, term in spelling.HARD_SWISH.items()]
DECOMPOSED += [("PRELU", name, spelling.term_model(term)) for name, term in spelling.PRELU.items() if "one" not in name]
SIMILAR = (spelling.NO_GELU, spelling.NO_HARD_SWISH, spelling.NO_PRELU)
ALIKE = [(name, spelling.term_model(term)) for others in SIMILAR for name, term in others.items()]
ALIKE.append(("per-image slopes", spelling.slopes_per_image))
for first in (spelling.GELU["of PyTorch"], spelling.HARD_SWISH["x ramp 1/6"]):
    ALIKE.append(("two tensors", spelling.two_tensors(first)))
    ALIKE.append(("inner output", spelling.with_intermediate_output(first)))
    ALIKE.append(("integers", spelling.term_model(first, tensor(*spelling.IMAGE, dtype="int8"))))


def convert_model(draw: Draw, **options: Any) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return fusions and nodes by name."""
    model = Net()
    draw(model)
    report = convert(model.build(), host=Host(packs="builtin"), **options).report
    return report.fused, report.nodes


@pytest.mark.parametrize(("op", "name", "draw"), DECOMPOSED, ids=[f"{op}-{name}" for op, name, _ in DECOMPOSED])
def test_decomposed_activation_becomes_one_operator(op: str, name: str, draw: Draw) -> None:
    fused, nodes = convert_model(draw, opset=20)
    assert fused == {op: 1}
    assert nodes == {{"GELU": "Gelu", "HARD_SWISH": "HardSwish", "PRELU": "PRelu"}[op]: 1}


@pytest.mark.parametrize(("name", "draw"), ALIKE, ids=[name for name, _ in ALIKE])
def test_similar_pattern_is_not_fused(name: str, draw: Draw) -> None:
    fused, _ = convert_model(draw, opset=20)
    assert fused == {}


@pytest.mark.parametrize(
    ("target", "expected"),
    [("generic", {"Mul": 4, "Add": 2, "Pow": 1, "Tanh": 1}), ("onnxruntime", {"com.microsoft.FastGelu": 1})],
)
def test_gelu_in_older_opsets_is_decomposed_or_com_microsoft(target: str, expected: dict[str, int]) -> None:
    draw = spelling.term_model(spelling.GELU["of PyTorch"])
    assert convert_model(draw, opset=13, target=target) == ({"GELU": 1}, expected)
