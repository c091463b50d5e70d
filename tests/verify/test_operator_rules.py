"""Which tensors and operators are tried by themselves, and which failures small differences may explain."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify import Comparison, Tolerance
from onnx_tflite_plugin.verify.operators import singly
from onnx_tflite_plugin.verify.operators.diverging import stateful
from onnx_tflite_plugin.verify.operators.weak import Weak
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OrtError
from tests.helpers.verify_graphs import entry_of, model, operator, slot, subgraph

OFF = Comparison("y", "step", 9.0, 1.0, 1.0)
AGREES = Comparison("t1", "step", 0.0, 0.0, 1.0)
INTEGERS = slot(2, "int32", (7,))


def search_of(*operators: Operator, **more: Any) -> Any:
    graph = subgraph(*operators, outputs=[t for t in operators[-1].outputs if t is not None])
    made = {t.index: op for op in operators for t in op.outputs if t is not None}
    return SimpleNamespace(trial=SimpleNamespace(entry=entry_of(graph)), producers=made, values={}, **more)


class TestUntried:
    @pytest.mark.parametrize(
        ("elements", "constant", "said"), [(1 << 27, False, ""), ((1 << 27) + 1, False, "512 MiB"), (1 << 30, True, "")]
    )
    def test_all_but_constants_count_in_512_mib(self, elements: int, constant: bool, said: str) -> None:
        x = slot(0, shape=(elements,), values=np.ones(1, np.float32) if constant else None)
        assert said in singly.untried(search_of(operator([x], [slot(1, shape=(0,))])))
        assert bool(singly.untried(search_of(operator([x], [slot(1, shape=(0,))])))) is bool(said)

    @pytest.mark.parametrize(("count", "said"), [(1000, False), (1001, True)])
    def test_more_than_a_thousand_values_are_too_many(self, count: int, said: bool) -> None:
        search = search_of(operator([slot(0)], [slot(1)]))
        search.values = {0: [None], 1: [None] * (count - 1)}
        assert ("1001 tensors" in singly.untried(search)) is said
        assert bool(singly.untried(search)) is said


def test_an_operator_owes_nothing_to_a_network_but_where_it_is_dynamic_quantization() -> None:
    assert singly.tolerance_of(Tolerance(of_range=0.5)).of_range == 1e-4
    assert singly.tolerance_of(Tolerance(of_range=1e-6)).of_range == 1e-6
    assert singly.tolerance_of(Tolerance(of_range=0.5, unbiased=True)).of_range == 0.5


class TestLayers:
    """Operators at an even or an odd distance, whose results may be drawn."""

    def of(self, *operators: Operator, without: int = -1) -> list[list[int]]:
        graph = subgraph(*operators)
        kept = {t.index: np.ones(t.shape, np.float32) for t in graph.tensors if t.index != without}
        return [[t.index for t in singly._layers(graph, kept, parity)] for parity in (0, 1)]

    def test_every_other_operator_counts_by_its_furthest_operand_and_is_read(self) -> None:
        ops = [operator([slot(k)], [slot(k + 1)]) for k in range(3)]
        assert self.of(*ops, operator([slot(3), slot(0)], [slot(4)]), operator([slot(4), slot(1)], [slot(5)])) == [
            [2, 4],
            [1, 3],
        ]

    def test_all_results_of_an_operator_must_be_kept_and_such_as_can_be_drawn(self) -> None:
        read = operator([slot(1), slot(2)], [slot(3)])
        assert self.of(operator([slot(0)], [slot(1), slot(2), None]), read)[1] == [1, 2]
        assert self.of(operator([slot(0)], [slot(1), slot(2)]), read, without=2)[1] == []
        assert self.of(operator([slot(0)], [slot(1), slot(2, variable=True)]), read)[1] == []

    def test_what_follows_from_constants_alone_is_none_but_what_takes_nothing_is(self) -> None:
        held = slot(0, values=np.ones(6, np.float32))
        chain = operator([slot(1)], [slot(2)]), operator([slot(2), slot(5)], [slot(3)]), operator([slot(3)], [slot(4)])
        assert self.of(operator([held], [slot(1)]), *chain) == [[], [3]]
        assert self.of(operator([], [slot(1)]), *chain) == [[2], [1, 3]]

    @pytest.mark.parametrize(
        ("tensor", "array", "may"),
        [
            (slot(0), np.ones(3, np.float32), True),
            (slot(0), np.ones(0, np.float32), False),
            (slot(0, variable=True), np.ones(3, np.float32), False),
            (slot(0, "int8", scale=0.5), np.ones(3, np.int8), True),
            (slot(0, "int16", scale=0.5), np.ones(3, np.int16), True),
            (slot(0, "int8"), np.ones(3, np.int8), False),
            (slot(0, "int32", scale=0.5), np.ones(3, np.int32), False),
            (slot(0, "float64"), np.ones(3), False),
        ],
    )
    def test_floats_and_quantized_activations_of_some_elements_can_be_drawn(
        self, tensor: Tensor, array: Array, may: bool
    ) -> None:
        assert singly._drawable(tensor, array) is may


class TestDrawn:
    def of(self, values: Array, *, whole: bool = True) -> Array:
        array = np.resize(values, 5000)
        return singly._like(np.random.default_rng(0), slot(0), array, whole)

    @pytest.mark.parametrize("dtype", ["int8", "uint8"])
    def test_bytes_over_all_of_their_dtype_or_over_what_they_span(self, dtype: str) -> None:
        limits, span = np.iinfo(dtype), np.array([3, 7], dtype)
        assert [f(self.of(span)) for f in (np.min, np.max)] == [limits.min, limits.max]
        drawn = self.of(span, whole=False)
        assert (set(drawn.tolist()), drawn.dtype) == ({3, 4, 5, 6, 7}, np.dtype(dtype))

    def test_wider_integers_and_floats_over_what_they_span(self) -> None:
        assert set(self.of(np.int16([-2, 1])).tolist()) == {-2, -1, 0, 1}
        drawn = self.of(np.float32([-1, np.inf, 3, np.nan]))
        assert drawn.dtype == np.float32
        assert -1 <= drawn.min() < -0.99
        assert 2.99 < drawn.max() <= 3
        assert len(np.unique(drawn)) > 4000

    def test_what_does_not_vary_is_drawn_up_to_one_more(self) -> None:
        for values, low in ((np.float32([5]), 5), (np.float32([np.nan]), 0)):
            drawn = self.of(values)
            assert low <= drawn.min() < low + 0.01 < low + 0.99 < drawn.max() <= low + 1


def test_what_may_have_wrapped_is_at_an_end_of_int16_in_what_onnx_has() -> None:
    ends, other = np.int16([-(2**15), 2**15 - 1, 5, 6]), np.int16([1, 2, 3, 2**15 - 1])
    assert singly.without_overflow(ends, other).tolist() == [1, 2, 5, 6]
    for actual, expected in ((ends, other.astype(np.int32)), (ends.astype(np.int32), other), (ends, other[:3])):
        assert singly.without_overflow(actual, expected) is actual


def test_each_tensor_is_suspected_once_and_none_that_has_no_distance() -> None:
    found = [(OFF, 1), (replace(OFF, distance=0.5), 2), (OFF, 1), (replace(OFF, mean=np.inf), 3), (OFF, 4)]
    values: Any = [(comparison, SimpleNamespace(tensor=k)) for comparison, k in found]
    assert [value.tensor for value in singly.suspects(values)] == [1, 4]


class TestShifts:
    @pytest.mark.parametrize(
        ("scales", "result", "beyond"),
        [
            ((2.0**20, 2.0**11), 1.0, True),
            ((2.0**18, 2.0**12), 1.0, False),
            ((2.0**19, 2.0**-30), 1.0, True),
            ((2.0**-30, 2.0**19), 1.0, True),
            ((2.0**18, 2.0**-30), 1.0, False),
            ((2.0**16, 2.0**15), 1.0, True),
            ((1.0, 1.0), 2.0**-18, False),
            ((1.0, 1.0), 2.0**-19, True),
        ],
    )
    def test_a_product_of_2_to_the_31_or_an_operand_of_2_to_the_19_times_the_result(
        self, scales: tuple[float, float], result: float, beyond: bool
    ) -> None:
        operands = [None, *(slot(k, "int8", scale=scale) for k, scale in enumerate(scales)), slot(8)]
        assert singly._beyond_shifts(operator(operands, [slot(9, "int8", scale=result), None])) is beyond
        results = [slot(7, "int8", scale=2.0**40), slot(9, "int8", scale=result)]
        assert singly._beyond_shifts(operator(operands, results)) is beyond

    def test_without_scales_nothing_is_shifted(self) -> None:
        assert not singly._beyond_shifts(operator([slot(0)], [slot(9, "int8", scale=1e-9)]))


class TestAlone:
    """The operators of a tensor, run by themselves on the operands that they had."""

    def tried(self, *operators: Operator, kept: tuple[int, ...] = (0, 1), fed: tuple[int, ...] = (0,)) -> bool:
        def part(*_: object) -> None:
            tried.append(True)

        tried: list[bool] = []
        search = search_of(*operators, part=part)
        apart: Any = SimpleNamespace(fed={*fed}, kept={k: np.ones(3) for k in kept})
        last = operators[-1].outputs[0]
        assert last is not None
        assert singly.by_itself(search, apart, SimpleNamespace(tensor=last.index, name="v"), lambda *_: None) == ()  # type: ignore[arg-type,return-value]
        return bool(tried)

    def test_but_those_with_states_or_undefined_shifts_or_operands_that_are_not_kept(self) -> None:
        first, last = operator([slot(0)], [slot(1)]), operator([slot(1), None], [slot(2)], index=1)
        assert self.tried(first, last)
        assert not self.tried(first, last, kept=(1,))
        assert self.tried(first, last, kept=(1,), fed=(1,))
        assert not self.tried(operator([slot(0), slot(7, variable=True)], [slot(1)]), last, kept=(0, 7))
        assert not self.tried(operator([slot(0), slot(7, "resource")], [slot(1)]), last, kept=(0, 7))
        wide = operator([slot(0, "int8", scale=2.0**20)], [slot(1, "int8", scale=1.0)])
        assert not self.tried(wide, last)

    def test_and_floats_that_have_a_scale(self) -> None:
        assert not self.tried(operator([slot(0)], [slot(1, scale=0.5)]))
        assert self.tried(operator([slot(0)], [slot(1, "int8", scale=0.5)]))


class TestWeak:
    def outputs(self, arrays: list[Array], dtype: str = "int8", scale: float | None = 0.5) -> list[int]:
        result = slot(1, dtype, scale=scale)
        weak = Weak(search_of(operator([slot(0)], [result])), lambda *_: SimpleNamespace(comparisons=[]))
        return [steps for _, _, steps in weak._outputs({"a": [[array] for array in arrays], "b": []})]

    def test_bytes_that_span_fewer_than_16_steps_over_all_runs_say_little(self) -> None:
        for dtype in ("int8", "uint8"):
            assert self.outputs([np.array([3, 5], dtype), np.array([17, 17], dtype)], dtype) == [15]
            assert self.outputs([np.array([3, 5], dtype), np.array([18, 18], dtype)], dtype) == []
        assert self.outputs([np.int8([-128, -128]), np.int8([127, 127])]) == []

    def test_wider_integers_and_those_without_a_scale_and_single_numbers_say_what_they_say(self) -> None:
        assert self.outputs([np.int16([3, 5])], "int16") == []
        assert self.outputs([np.int8([3, 5])], scale=None) == []
        assert self.outputs([np.int8([3]), np.int8([4])]) == []
        assert self.outputs([np.zeros(0, np.int8)]) == []
        assert self.outputs([np.zeros(0, np.int8), np.int8([3, 5])]) == [3]

    @pytest.mark.parametrize(
        ("mean", "spread", "wrong"), [(0.25, 0.0, 0), (0.26, 0.0, 1), (0.3, 0.15, 0), (0.31, 0.15, 1)]
    )
    def test_an_output_of_few_steps_may_be_off_by_a_quarter_or_twice_what_kernels_differ_by(
        self, mean: float, spread: float, wrong: int
    ) -> None:
        search = search_of(operator([slot(0)], [slot(1, "int8", scale=0.5)]), comparisons=lambda runs: iter(()))
        weak = Weak(search, lambda *_: SimpleNamespace(comparisons=[]))
        weak._last = lambda tensor: []  # type: ignore[method-assign]
        given = [replace(OFF, mean=mean, mean_spread=spread)]
        found, _ = weak.examine([], {"a": [[np.int8([3, 5])]]}, given)
        assert len(found) == wrong

    @pytest.mark.parametrize(
        ("mean", "band", "told"), [(2.1, 1.0, True), (1.9, 1.0, False), (5.0, 3.0, False), (6.1, 3.0, True)]
    )
    def test_a_tensor_in_between_is_told_that_is_off_by_twice_its_band_on_average(
        self, mean: float, band: float, told: bool
    ) -> None:
        found = replace(OFF, mean=mean, tolerance=band, distance=20.0)
        search = search_of(operator([slot(0)], [slot(1)]))
        search.comparisons = lambda runs: iter([(found, SimpleNamespace(tensor=1, name="v"))])
        weak = Weak(search, lambda *_: SimpleNamespace(comparisons=[]))
        weak._alone = lambda tensor, value: None  # type: ignore[method-assign]
        assert bool(weak._before([])) is told

    def test_an_operator_is_right_by_itself_where_all_of_its_results_are(self) -> None:
        search = search_of(operator([slot(0)], [slot(1)]), part=lambda *_: (b"", None))
        search.comparisons = lambda runs: iter([(replace(OFF, mean=9.0), SimpleNamespace(tensor=1, name="v"))])
        for found, told in (([AGREES, AGREES], False), ([AGREES, OFF], True)):
            assert bool(Weak(search, lambda *_, found=found: SimpleNamespace(comparisons=found))._before([])) is told

        def fails(*_: object) -> Any:
            raise VerificationError("it does not run by itself")

        assert Weak(search, fails)._before([])

    def test_tensors_before_an_output_that_says_little_count(self) -> None:
        search = search_of(operator([slot(0)], [slot(1, "int8", scale=0.5)]), stored=lambda t: "", part=lambda *_: None)
        search.comparisons = lambda runs: iter([(replace(OFF, mean=9.0), SimpleNamespace(tensor=1, name="v"))])
        weak = Weak(search, lambda *_: SimpleNamespace(comparisons=[]))
        (told,), _ = weak.examine([], {"a": [[np.int8([3, 5])]]}, [AGREES])
        assert told.problem == "off by 9 LSB on average"

    @pytest.mark.parametrize("error", [LiteRTError, OrtError])
    def test_tensors_that_cannot_be_kept_tell_nothing(self, error: type[Exception]) -> None:
        def comparisons(runs: object) -> Any:
            raise error("no")

        assert (
            Weak(search_of(operator([slot(0)], [slot(1)]), comparisons=comparisons), lambda *_: None)._before([]) == []
        )  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("tensor", "kept"), [(slot(1, variable=True), True), (slot(1, "resource"), True), (slot(1), False)]
)
def test_a_model_is_stateful_by_any_graph_s_variables_or_handles(tensor: Tensor, kept: bool) -> None:
    plain = subgraph(operator([slot(0)], [slot(2)]))
    assert stateful(model(plain, subgraph(operator([slot(0)], [tensor]), index=1))) is kept
