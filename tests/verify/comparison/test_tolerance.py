"""Tolerances derived from operators: dynamic quantization, dequantized values."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Operator, Signature, Tensor
from onnx_tflite_plugin.verify import Tolerance
from onnx_tflite_plugin.verify.comparison.rounding import inherited_step
from tests.helpers.verify_graphs import model, operator, slot, subgraph

ONE = np.ones((2, 3), np.int8)
NETWORK = Tolerance(of_range=1e-3, int16_steps=16)
DYNAMIC = Tolerance(of_range=2e-2, int16_steps=16)
FED_BACK = Tolerance(of_range=5e-2, int16_steps=16)


def product(weights: Tensor | None, *, x: str = "float32", y: str = "float32", graph: int = 0) -> Operator:
    return operator([slot(0, x), weights, None], [None, slot(2, y)], graph=graph)


def consumer(graph: int = 0, *, variable: bool = False) -> Operator:
    return operator([slot(2), None, slot(4, variable=variable)], [slot(5)], graph=graph)


def weights(dtype: str = "int8", scale: float | None = 0.5) -> Tensor:
    return slot(1, dtype, scale=scale, values=ONE)


def test_default_tolerance_per_dtype() -> None:
    assert Tolerance() == Tolerance(of_range=1e-3, steps=1, integers=0, int16_steps=0)
    assert [Tolerance(int16_steps=7).of_dtype(dtype) for dtype in ("int8", "uint8", "int16", "uint16")] == [1, 1, 7, 7]
    assert Tolerance(steps=9, int16_steps=7).of_dtype("int16") == 9


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "uint4", "int2"])
def test_quantized_weights_with_float_activations_are_dynamic(dtype: str) -> None:
    assert Tolerance.of(model(subgraph(product(weights(dtype))))) == DYNAMIC


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2"])
def test_sub_byte_weights_may_lack_their_own_scale(dtype: str) -> None:
    assert Tolerance.of(model(subgraph(product(weights(dtype, None))))) == DYNAMIC


@pytest.mark.parametrize(
    "exact",
    [
        product(weights(scale=None)),
        product(weights(), x="int8"),
        product(weights(), y="int32"),
        product(weights("int32")),
        operator([weights()], [slot(2)]),
    ],
    ids=["int8 without a scale", "integer input", "integer output", "wide weights", "no result"],
)
def test_other_operators_do_not_quantize_floats(exact: Operator) -> None:
    assert Tolerance.of(model(subgraph(exact))) == NETWORK
    assert Tolerance.of(model(subgraph(exact, consumer(variable=True)))) == NETWORK


def test_states_and_loops_feed_back_dynamic_quantization() -> None:
    stateful_product = operator([slot(0), weights(), slot(4, variable=True)], [slot(2)])
    main, inner = subgraph(product(weights())), subgraph(product(weights(), graph=1), index=1)
    exact = subgraph(product(None, graph=1), index=1)
    assert Tolerance.of(model(subgraph(stateful_product))) == FED_BACK
    assert Tolerance.of(model(subgraph(consumer()), inner)) == FED_BACK
    assert Tolerance.of(model(main, inner)) == FED_BACK
    assert Tolerance.of(model(main, exact)) == DYNAMIC
    assert Tolerance.of(model(subgraph(product(weights()), consumer(variable=True)))) == DYNAMIC
    assert Tolerance.of(model(subgraph(consumer()), inner, signatures=[Signature("s", 1, {}, {})])) == DYNAMIC


class TestInheritedStep:
    def step(self, tensor: Tensor, *operators: Operator) -> float:
        producers = {t.index: op for op in operators for t in op.outputs if t is not None}
        return inherited_step(tensor, producers, Tolerance(steps=2, int16_steps=7))

    @pytest.mark.parametrize(("dtype", "steps"), [("int8", 2), ("uint8", 2), ("int16", 7), ("uint16", 7)])
    def test_float_inherits_the_coarsest_upstream_step(self, dtype: str, steps: int) -> None:
        quantized, dequantized, result = slot(0, dtype, scale=(0.25, 0.5, 0.125)), slot(1), slot(2)
        operators = operator([quantized], [dequantized]), operator([dequantized, slot(7, values=ONE), None], [result])
        assert self.step(result, *operators) == 0.5 * steps

    def test_only_quantized_activations_have_an_inherited_step(self) -> None:
        assert self.step(slot(1), operator([slot(0, "int32", scale=0.25)], [slot(1)])) == 0

    def test_integers_and_multi_input_operators_stop_inheritance(self) -> None:
        quantized, flag, result = slot(0, "int8", scale=0.25), slot(1, "int32"), slot(2)
        assert self.step(result, operator([quantized], [flag]), operator([flag], [result])) == 0
        assert self.step(result, operator([quantized, slot(3)], [result])) == 0

    def test_cyclic_graph_terminates(self) -> None:
        first, second = slot(0), slot(1)
        assert self.step(first, operator([second], [first]), operator([first], [second])) == 0
