"""Operators tried by themselves: which are, on what operands, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Data, Operator, Options, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.operators import singly
from onnx_tflite_plugin.verify.operators.apart import Apart

RIGHT = Comparison("t", "step", 1.0, 0.1, 1.0)
WRONG = Comparison("t", "step", 9.0, 1.0, 1.0, mean=5.0)
STORED = Data()


def held(index: int, dtype: str = "float32", scale: float = 0.0, **known: Any) -> Tensor:
    quantization = Quantization((scale,), (0,)) if scale else None
    return Tensor(0, index, f"t{index}", dtype, (2, 3), (2, 3), quantization=quantization, **known)


def operator(index: int, code: str, inputs: Sequence[Tensor | None], *outputs: Tensor | None) -> Operator:
    return Operator(0, index, code, code, 1, Options(), tuple(inputs), outputs)


def graph(tensors: Sequence[Tensor], *operators: Operator) -> Subgraph:
    return Subgraph(0, "main", tuple(tensors), (), (), operators)


class TestLayers:
    """x, a of it, b of a, c of b; d of a and of what is computed from a constant."""

    tensors = (*map(held, range(5)), held(5, data=STORED), held(6))
    x, a, b, c, d, constant, fixed = tensors
    operators = (
        operator(0, "A", [x], a),
        operator(1, "B", [a, None], b, None),
        operator(2, "C", [b], c),
        operator(3, "K", [constant], fixed),
        operator(4, "D", [a, fixed], d),
        operator(5, "E", [d, c], held(7)),
    )

    def layers(self, parity: int, kept: dict[int, Array] | None = None) -> list[int]:
        arrays = {k: np.ones((2, 3), np.float32) for k in range(8)} if kept is None else kept
        found = singly._layers(graph(self.tensors, *self.operators), arrays, parity)
        return [tensor.index for tensor in found]

    def test_every_other_one_is_drawn_if_somebody_reads_it(self) -> None:
        assert self.layers(1) == [1, 3]
        assert self.layers(0) == [2, 4]

    def test_only_what_litert_keeps_and_numbers_can_be_drawn_of(self) -> None:
        numbers = np.ones((2, 3), np.float32)
        assert self.layers(1, {1: numbers}) == [1]
        assert self.layers(1, {1: numbers[:0], 3: numbers.astype(np.int32)}) == []

    def test_an_operator_of_two_results_is_drawn_with_both_or_not_at_all(self) -> None:
        x, numbers, places, y = held(0), held(1), held(2, "int32"), held(3)
        both = graph((), operator(0, "TOP", [x], numbers, places), operator(1, "GATHER", [numbers, places], y))
        kept: dict[int, Array] = {1: np.ones(5, np.float32), 2: np.ones(5, np.int32)}
        assert singly._layers(both, kept, 1) == []

    @pytest.mark.parametrize(
        ("tensor", "drawable"),
        [
            (held(0, "int8", 0.5), True),
            (held(0, "int16", 0.5), True),
            (held(0, "int8"), False),
            (held(0, "int32", 0.5), False),
            (held(0, "float32"), True),
            (held(0, "float32", is_variable=True), False),
        ],
    )
    def test_floats_and_quantized_integers_can_be_drawn(self, tensor: Tensor, drawable: bool) -> None:
        assert singly._drawable(tensor, np.ones(3, tensor.dtype)) is drawable


class TestOperandsDrawn:
    def like(self, array: Array, *, whole: bool) -> Array:
        shape = (500, *array.shape)
        drawn = singly._like(np.random.default_rng(0), held(0), np.broadcast_to(array, shape), whole)
        assert (drawn.dtype, drawn.shape) == (array.dtype, shape)
        return drawn

    def test_bytes_are_drawn_over_the_whole_dtype_first(self) -> None:
        drawn = self.like(np.array([3, 7], np.int8), whole=True)
        assert (drawn.min(), drawn.max()) == (-128, 127)

    @pytest.mark.parametrize("dtype", ["int8", "int16"])
    def test_else_integers_are_drawn_between_the_least_and_the_largest(self, dtype: str) -> None:
        assert set(self.like(np.array([3, 7], dtype), whole=dtype == "int16").flat) == {3, 4, 5, 6, 7}

    def test_floats_are_drawn_between_the_finite_ones(self) -> None:
        drawn = self.like(np.array([-2, 3, np.inf, np.nan], np.float32), whole=True)
        assert (drawn >= -2).all()
        assert (drawn <= 3).all()
        assert np.ptp(drawn) > 4.5

    def test_what_does_not_vary_is_drawn_over_one(self) -> None:
        drawn = self.like(np.array([5], np.float32), whole=False)
        assert (drawn >= 5).all()
        assert 0.9 < np.ptp(drawn) <= 1
        assert np.ptp(self.like(np.array([np.nan], np.float32), whole=False)) > 0.9


def test_only_at_the_ends_of_16_bits_litert_is_believed() -> None:
    actual, expected = np.array([-32768, 32767, 32766, 5], np.int16), np.array([1, 2, 3, 4], np.int16)
    assert singly.without_overflow(actual, expected).tolist() == [1, 2, 32766, 5]
    for other in (expected.astype(np.int8), expected[:3]):
        assert singly.without_overflow(actual, other) is actual
    bytes_ = np.array([127, -128, 0, 0], np.int8)
    assert singly.without_overflow(bytes_, expected) is bytes_


def test_each_tensor_outside_its_tolerance_is_suspected_once() -> None:
    one, two, three = (TensorValue(f"v{k}", 0, k) for k in range(3))
    again = TensorValue("other", 0, 0)
    endless = Comparison("t", "range", 9.0, 1.0, 1.0, mean=float("inf"))
    compared = [(RIGHT, one), (WRONG, one), (WRONG, again), (endless, two), (WRONG, three)]
    assert list(singly.suspects(compared)) == [one, three]


def test_a_network_of_too_many_or_too_large_tensors_is_not_tried() -> None:
    def said(bytes_: int, values: int, stored: int = 0) -> str:
        sizes = {0: (bytes_ // 4, None), 1: (stored // 4, STORED)}
        tensors = [Tensor(0, k, "t", "float32", (n,), (n,), data=data) for k, (n, data) in sizes.items()]
        entry = SimpleNamespace(subgraph=SimpleNamespace(tensors=tensors))
        search: Any = SimpleNamespace(trial=SimpleNamespace(entry=entry), values={0: ["value"] * values})
        return singly.untried(search)

    assert not said(1 << 29, 1000, stored=1 << 30)
    assert said((1 << 29) + 4, 1000).endswith("for they make 512 MiB")
    assert said(0, 1001).endswith("for they make 1001 tensors")


@pytest.mark.parametrize(
    ("factors", "result", "beyond"),
    [
        ((2.0**16, 2.0**15), 1.0, True),
        ((2.0**16, 2.0**14.9), 1.0, False),
        ((2.0**19, 2.0**-9), 1.0, True),
        ((2.0**18.9, 2.0**-9), 1.0, False),
        ((), 1.0, False),
        ((2.0**31,), 2.0**20, False),
    ],
)
def test_integers_scaled_beyond_what_kernels_shift_are_not_judged(
    factors: tuple[float, ...], result: float, beyond: bool
) -> None:
    operands = [*(held(k, "int8", scale) for k, scale in enumerate(factors)), None, held(8)]
    assert singly._beyond_shifts(operator(0, "MUL", operands, held(9, "int8", result), None)) is beyond


class Network:
    """``t1`` of ``t0`` and ``t2`` of ``t1``, each of an operator, LiteRT's value of ``fed`` given to the ONNX model."""

    def __init__(self, *fed: int, first: Tensor | None = None, last: Tensor | None = None) -> None:
        self.tensors = (first or held(0), held(1), last or held(2))
        self.operators = tuple(operator(k, "AB"[k], [self.tensors[k]], self.tensors[k + 1]) for k in (0, 1))
        subgraph = graph(self.tensors, *self.operators)
        self.search: Any = SimpleNamespace(
            trial=SimpleNamespace(entry=SimpleNamespace(subgraph=subgraph, outputs=self.tensors[2:])),
            producers={1: self.operators[0], 2: self.operators[1]},
            part=lambda inputs, tensor, value: None,
            values={},
        )
        self.apart: Any = SimpleNamespace(fed=set(fed), kept={})

    def made(self) -> list[str]:
        return [op.code for op in singly.makers(self.search, self.apart, self.tensors[2])]


def test_an_operator_is_tried_with_those_before_it_up_to_what_the_model_is_given() -> None:
    assert Network(0, 1).made() == ["B"]
    assert Network(0).made() == ["A", "B"]


class TestApart:
    """One tensor of integers that the ONNX model holds channels first."""

    tensor = Tensor(0, 0, "t", "int8", (2, 3), (2, 3), quantization=Quantization((1.0,), (0,)))
    array = np.arange(6, dtype=np.int8).reshape(2, 3)

    def compared(self, returned: Array, tensor: Tensor | None = None, **known: Any) -> list[Comparison]:
        value = TensorValue("v", 0, 0, order=(1, 0))
        fed: list[Any] = []
        session = SimpleNamespace(run=fed.append, values=lambda: {"v": returned})
        entry = SimpleNamespace(subgraph=SimpleNamespace(tensors=[tensor or self.tensor]))
        apart: Any = SimpleNamespace(
            entry=entry, values=[value], given={}, states={}, session=session, producers={}, tolerance=Tolerance()
        )
        for name, what in known.items():
            setattr(apart, name, what)
        apart.fed = {value.tensor for value in apart.values if value.name in apart.given}
        apart._fed = lambda value, kept: Apart._fed(apart, value, kept)
        apart.floats = set[str]()
        found = [one for one, _ in Apart.compared(apart, {}, {0: self.array}, {0: -self.array})]
        self.fed = fed
        return found

    def test_what_the_model_holds_in_another_order_is_turned_back(self) -> None:
        [right] = self.compared(self.array.T)
        [wrong] = self.compared(self.array.T[::-1])
        assert (right.distance, wrong.ok) == (0, False)

    def test_what_is_held_in_another_shape_is_not_compared(self) -> None:
        assert self.compared(self.array.reshape(1, 6, 1)) == []

    def test_states_are_what_litert_had_before_and_operands_what_it_has_now(self) -> None:
        value = TensorValue("v", 0, 0, order=(1, 0))
        self.compared(self.array.T, given={"v": "v:given"}, states={"state": value})
        [feeds] = self.fed
        np.testing.assert_array_equal(feeds["v:given"], self.array.T)
        np.testing.assert_array_equal(feeds["state"], -self.array.T)

    def test_what_lacks_an_operand_is_not_run(self) -> None:
        assert self.compared(self.array.T, given={"elsewhere": "elsewhere:given"}) == []
        assert self.fed == []

    def test_a_variable_is_not_compared(self) -> None:
        assert self.compared(self.array.T, Tensor(0, 0, "t", "int8", (2, 3), (2, 3), is_variable=True)) == []


@pytest.mark.parametrize(
    ("network", "tried"),
    [
        (Network(1), True),
        (Network(1, first=held(0, is_variable=True)), True),
        (Network(0, first=held(0, is_variable=True)), False),
        (Network(0, first=held(0, "resource")), False),
        (Network(1, last=held(2, "float32", 0.5)), False),
        (Network(1, last=held(2, "int8", 0.5)), True),
    ],
)
def test_what_remembers_or_is_called_float_with_a_scale_is_not_tried_by_itself(
    monkeypatch: pytest.MonkeyPatch, network: Network, tried: bool
) -> None:
    network.apart.kept = {k: np.full(3, k) for k in (0, 1)}
    network.search.part = lambda inputs, tensor, value: ("a part", "its conversion")
    monkeypatch.setattr(singly.structure, "read", lambda data: data)
    monkeypatch.setattr(singly.structure, "entry", lambda model: SimpleNamespace(input_names=["x"]))
    given: list[Any] = []

    def alone(tflite: Any, onnx: Any, arrays: Any) -> Any:
        given.append((tflite, onnx, arrays["x"].tolist()))
        return SimpleNamespace(comparisons=[WRONG])

    value = TensorValue("v", 0, 2)
    found = singly.by_itself(network.search, network.apart, value, alone)
    assert list(found) == ([WRONG] if tried else [])
    assert given == ([("a part", "its conversion", [1, 1, 1])] if tried else [])

    def fails(*part: Any) -> Any:
        raise ConversionError("it does not run")

    assert singly.by_itself(network.search, network.apart, value, fails) == ()
    network.apart.kept = {}
    assert singly.by_itself(network.search, network.apart, value, alone) == ()
