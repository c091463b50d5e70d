"""Attribution of failures: first wrong tensor, processor, pairs of values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onnx_tflite_plugin.source.model import Operator, Options, Tensor
from onnx_tflite_plugin.verify import causes
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.comparison.trial import match_values
from onnx_tflite_plugin.verify.runtimes.ort import OrtError
from onnx_tflite_plugin.verify.runtimes.structure import is_stateful

RIGHT = Comparison("t", "step", 1.0, 0.1, 1.0)
WRONG = Comparison("t", "step", 9.0, 1.0, 1.0, mean_error=5.0)


def tensor(index: int, dtype: str = "float32", shape: tuple[int, ...] = (2, 3), **fields: Any) -> Tensor:
    return Tensor(0, index, f"t{index}", dtype, shape, shape, **fields)


TENSORS = [tensor(k) for k in range(5)]
OPERATORS = tuple(
    Operator(0, k, code, code, 1, Options(), inputs, outputs)
    for k, (code, inputs, outputs) in enumerate(
        [
            ("A", (TENSORS[0],), (TENSORS[1],)),
            ("B", (TENSORS[1], None), (TENSORS[2],)),
            ("C", (TENSORS[0],), (TENSORS[3],)),
            ("D", (TENSORS[2], TENSORS[1]), (TENSORS[4],)),
        ]
    )
)
GRAPH = SimpleNamespace(index=0, tensors=TENSORS, operators=OPERATORS)


def test_divergence_names_the_onnx_value_if_it_differs() -> None:
    assert Divergence(TENSORS[1], OPERATORS[0], "t1", WRONG).text.startswith(
        "tensor 1 't1' of operator 0 A: max 9 quantization steps"
    )
    assert "of operator 0 A (ONNX value 'v'): max" in Divergence(TENSORS[1], OPERATORS[0], "v", WRONG).text
    several = Divergence(TENSORS[1], OPERATORS[0], "v", WRONG, ("B", "C"), "with other weights")
    assert "of operator 0 A (ONNX value 'v'; compared together with B, C; with other weights): max" in several.text


@pytest.mark.parametrize(
    ("fields", "stateful"), [({}, False), ({"is_variable": True}, True), ({"dtype": "resource"}, True)]
)
def test_variables_and_resources_make_a_model_stateful(fields: dict[str, Any], stateful: bool) -> None:
    model: Any = SimpleNamespace(
        subgraphs=[SimpleNamespace(tensors=[tensor(0)]), SimpleNamespace(tensors=[tensor(1, **fields)])]
    )
    assert is_stateful(model) is stateful


# --- the processor ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("multiplies_exactly", "exact_result", "is_attributed"),
    [(False, RIGHT, True), (False, WRONG, False), (False, None, False), (True, RIGHT, False)],
)
def test_attributes_a_failure_to_saturation_if_exact_products_pass(
    monkeypatch: pytest.MonkeyPatch, multiplies_exactly: bool, exact_result: Comparison | None, is_attributed: bool
) -> None:
    def runtime(onnx: object, *, config: object, folder: object) -> object:
        if exact_result is None:
            raise OrtError("it does not run")
        return config

    monkeypatch.setattr(causes, "describe_int8_fault", lambda onnxruntime: "")
    monkeypatch.setattr(causes, "multiplies_exactly", lambda: multiplies_exactly)
    monkeypatch.setattr(causes, "OnnxRuntime", runtime)
    trial = SimpleNamespace(
        onnx_outputs=lambda session, runs: session, compare_outputs=lambda actual, expected: [RIGHT, exact_result]
    )
    stub = SimpleNamespace(onnx=None, trial=trial, session=SimpleNamespace(folder=None))
    hints = causes.processor_hints(stub, [], {})  # type: ignore[arg-type]
    assert any("saturates int8 products of the model" in hint for hint in hints) is is_attributed


# --- matching of inputs and outputs -----------------------------------------------------------


def infos(*names: str) -> Any:
    return [SimpleNamespace(name=name) for name in names]


def test_pairs_inputs_by_name_or_else_by_position() -> None:
    assert [info.name for info in match_values("input", ["a", "b"], infos("b", "a"))] == ["a", "b"]
    assert [info.name for info in match_values("input", ["a", "b"], infos("c", "a"))] == ["c", "a"]


def test_rejects_reordered_or_missing_outputs() -> None:
    with pytest.raises(Exception, match="have the order b, a instead of a, b"):
        match_values("output", ["a", "b"], infos("b", "a"))
    with pytest.raises(Exception, match="has 2 outputs"):
        match_values("output", ["a", "b"], infos("a"))
