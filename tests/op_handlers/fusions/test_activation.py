"""Decompositions of activations are fused; similar patterns are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from conformance.cases.fusions import activation as patterns
from conformance.models import Net, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host

BuildFunction = Callable[[Net], None]

DECOMPOSED = [("GELU", name, patterns.term_model(term)) for name, term in patterns.GELU.items()]
DECOMPOSED += [("HARD_SWISH", name, patterns.term_model(term)) for name, term in patterns.HARD_SWISH.items()]
DECOMPOSED += [("PRELU", name, patterns.term_model(term)) for name, term in patterns.PRELU.items() if "one" not in name]
SIMILAR_TERMS = (patterns.NO_GELU, patterns.NO_HARD_SWISH, patterns.NO_PRELU)
SIMILAR = [(name, patterns.term_model(term)) for terms in SIMILAR_TERMS for name, term in terms.items()]
SIMILAR.append(("per-image slopes", patterns.slopes_per_image))
for decomposed in (patterns.GELU["of PyTorch"], patterns.HARD_SWISH["(x * ramp) * 1/6"]):
    SIMILAR.append(("two tensors", patterns.two_tensors(decomposed)))
    SIMILAR.append(("inner output", patterns.with_intermediate_output(decomposed)))
    SIMILAR.append(("integers", patterns.term_model(decomposed, tensor(*patterns.IMAGE, dtype="int8"))))


def convert_model(build: BuildFunction, **options: Any) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return fusions and nodes by name."""
    model = Net()
    build(model)
    report = convert(model.build(), host=Host(packs="builtin"), **options).report
    return report.fused, report.nodes


@pytest.mark.parametrize(("op", "name", "build"), DECOMPOSED, ids=[f"{op}-{name}" for op, name, _ in DECOMPOSED])
def test_decomposed_activation_becomes_one_operator(op: str, name: str, build: BuildFunction) -> None:
    fused, nodes = convert_model(build, opset=20)
    assert fused == {op: 1}
    assert nodes == {{"GELU": "Gelu", "HARD_SWISH": "HardSwish", "PRELU": "PRelu"}[op]: 1}


@pytest.mark.parametrize(("name", "build"), SIMILAR, ids=[name for name, _ in SIMILAR])
def test_similar_pattern_is_not_fused(name: str, build: BuildFunction) -> None:
    fused, _ = convert_model(build, opset=20)
    assert fused == {}


@pytest.mark.parametrize(
    ("target", "expected"),
    [("generic", {"Mul": 4, "Add": 2, "Pow": 1, "Tanh": 1}), ("onnxruntime", {"com.microsoft.FastGelu": 1})],
)
def test_gelu_in_older_opsets_is_decomposed_or_com_microsoft(target: str, expected: dict[str, int]) -> None:
    build = patterns.term_model(patterns.GELU["of PyTorch"])
    assert convert_model(build, opset=13, target=target) == ({"GELU": 1}, expected)
