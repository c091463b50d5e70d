"""Tests of the benchmark's clock, means, node counts and classification of models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks import measure
from benchmarks.graph import count_operators
from benchmarks.model import bench, kind
from benchmarks.peers import Ours
from benchmarks.results import Graph, Outcome, Row, geometric_mean, means
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.times.bench import Spread

INT8 = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


class TestClock:
    @pytest.fixture
    def run(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], measure.Run]:
        """Return runs that take this many seconds of a fake clock and record their order."""
        self.now, self.speed, self.order = 0.0, 1.0, list[str]()
        monkeypatch.setattr(measure, "clock", lambda: self.now)

        def take(name: str, seconds: float) -> None:
            self.now += seconds / self.speed
            self.order.append(name)

        return lambda name, seconds: partial(take, name, seconds)

    def test_short_run_is_repeated_until_its_piece_is_long_enough(
        self, run: Callable[[str, float], measure.Run]
    ) -> None:
        seconds = measure.interleave_runs([run("short", 1e-5), run("long", 0.01)], 3)
        np.testing.assert_allclose(seconds, [[1e-5] * 3, [0.01] * 3])
        measured = self.order[self.order.index("long") :]  # before it: the warm-up of short
        batch = measure.PIECE_SECONDS / 1e-5
        assert measured.count("short") == pytest.approx(3 * measure.PIECES_PER_SAMPLE * batch, rel=0.02)

    def test_occasional_interruptions_are_ignored(self, run: Callable[[str, float], measure.Run]) -> None:
        quick = run("a", 0.002)

        def disturb() -> None:
            self.speed = 0.5 if len(self.order) % measure.PIECES_PER_SAMPLE else 1
            quick()
            self.speed = 1

        disturbed, quiet = measure.interleave_runs([disturb, run("b", 0.006)], 4)
        np.testing.assert_allclose([disturbed, quiet], [[0.002] * 4, [0.006] * 4])

    @pytest.mark.parametrize(("slowest", "pieces"), [(0.01, measure.PIECES_PER_SAMPLE), (0.025, 2), (1, 1)])
    def test_samples_have_as_few_pieces_as_the_slowest_run(
        self, run: Callable[[str, float], measure.Run], slowest: float, pieces: int
    ) -> None:
        runs = [run("quick", 2 * measure.PIECE_SECONDS), run("slow", slowest)]
        counts = []
        for rounds in (1, 3):
            self.order.clear()
            measure.interleave_runs(runs, rounds)
            counts.append((self.order.count("quick"), self.order.count("slow")))
        (quick, slow), (quick_in_three, slow_in_three) = counts
        assert (quick_in_three - quick, slow_in_three - slow) == (2 * pieces, 2 * pieces)

    def test_ratio_does_not_depend_on_machine_speed(self, run: Callable[[str, float], measure.Run]) -> None:
        slowing = run("a", 0.02)

        def first() -> None:
            self.speed *= 0.9 if self.order[-1:] == ["b"] else 1
            slowing()

        first_seconds, second_seconds = measure.interleave_runs([first, run("b", 0.06)], 4)
        assert first_seconds[-1] > 1.2 * first_seconds[0]
        assert np.median(second_seconds / first_seconds) == pytest.approx(3, rel=0.15)

    def test_order_of_runs_rotates_in_each_round(self, run: Callable[[str, float], measure.Run]) -> None:
        measure.interleave_runs([run(name, 0.01) for name in "abc"], 3)
        assert "".join(self.order[-9 * measure.PIECES_PER_SAMPLE :: measure.PIECES_PER_SAMPLE]) == "abccabbca"


class TestMeans:
    def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one(self) -> None:
        assert geometric_mean([0.25, 4]) == pytest.approx(1)
        assert geometric_mean([2, 2, 16]) == pytest.approx(4)

    def test_very_fast_models_are_excluded_from_means(self) -> None:
        rows = [
            self.row("a", "float", 1e-3, ours=2, peer=4),
            self.row("b", "float", 1e-3, ours=8, peer=None),
            self.row("c", "float", 9e-5, ours=1000, peer=1000),
            self.row("d", "int8", 1e-3, ours=0.5, peer=1),
            Row("e", problem="does not run: no"),
        ]
        by_kind = {(mean.kind, mean.converter): mean for mean in means(rows)}
        assert list(by_kind) == [(kind, name) for kind in ("float", "int8", "all") for name in ("ours", "peer")]
        assert [(mean.counted, mean.models) for mean in by_kind.values()] == [
            (2, 3),
            (1, 3),
            (1, 1),
            (1, 1),
            (3, 4),
            (2, 4),
        ]
        ratios = [mean.ratio for mean in by_kind.values()]
        assert ratios == pytest.approx([4, 4, 0.5, 1, 2, 2])
        assert [mean.best_ratio for mean in by_kind.values()] == pytest.approx([ratio / 2 for ratio in ratios])
        assert by_kind["float", "peer"].ours == pytest.approx(2)
        assert by_kind["all", "peer"].ours == pytest.approx(1)

    @staticmethod
    def row(name: str, kind: str, seconds: float, **ratios: float | None) -> Row:
        return Row(
            name,
            kind,
            Spread(seconds, seconds, seconds),
            tuple(
                Outcome(converter, ratio=Spread(ratio, ratio, ratio) if ratio else None, best_ratio=ratio and ratio / 2)
                for converter, ratio in ratios.items()
            ),
        )


def graph(*nodes: tuple[str, str, str], domain: str = "") -> onnx.GraphProto:
    """Build a graph of nodes (operator, inputs, outputs) with one-letter names."""
    return helper.make_graph(
        [helper.make_node(op, list(inputs), list(outputs), domain=domain) for op, inputs, outputs in nodes], "g", [], []
    )


class TestGraph:
    @pytest.mark.parametrize(
        ("nodes", "fused", "unfused"),
        [
            (
                [("DequantizeLinear", "a", "b"), ("Conv", "bw", "c"), ("Relu", "c", "d"), ("QuantizeLinear", "d", "e")],
                0,
                2,
            ),
            ([("DequantizeLinear", "a", "b"), ("Transpose", "b", "c"), ("QuantizeLinear", "c", "d")], 0, 0),
            (
                [
                    ("DequantizeLinear", "a", "b"),
                    ("Transpose", "b", "c"),
                    ("MatMul", "cw", "d"),
                    ("Reshape", "d", "e"),
                    ("QuantizeLinear", "e", "f"),
                ],
                0,
                1,
            ),
            ([("DequantizeLinear", "a", "b"), ("Softmax", "b", "c"), ("Abs", "c", "d")], 0, 0),
            ([("Conv", "aw", "b"), ("QuantizeLinear", "b", "c")], 0, 0),
            ([("DequantizeLinear", "a", "b"), ("DynamicQuantizeMatMul", "b", "c"), ("QuantizeLinear", "c", "d")], 1, 0),
            ([("QLinearConv", "a", "b"), ("DequantizeLinear", "b", "c"), ("Add", "cx", "d")], 1, 0),
            ([("QuantizeLinear", "a", "b"), ("Cast", "b", "c"), ("Mul", "cs", "d"), ("Conv", "d", "e")], 0, 0),
            (
                [
                    ("QuantizeLinear", "a", "b"),
                    ("Cast", "b", "c"),
                    ("Mul", "cs", "d"),
                    ("ReorderInput", "d", "e"),
                    ("Conv", "e", "f"),
                    ("QuantizeLinear", "f", "g"),
                ],
                0,
                1,
            ),
            (
                [
                    (op, "a", "b")
                    for op in ("QGemm", "QLinearAdd", "MatMulIntegerToFloat", "ConvInteger", "NhwcMaxPool")
                ],
                5,
                0,
            ),
            ([(op, "a", "b") for op in ("DynamicQuantizeMatMul", "DynamicQuantizeLinear", "QuantizeLinear")], 1, 0),
        ],
    )
    def test_fused_and_unfused_quantized_operators_are_counted(
        self, nodes: list[tuple[str, str, str]], fused: int, unfused: int
    ) -> None:
        counts = count_operators(graph(*nodes))
        assert (counts.fused, counts.unfused) == (fused, unfused)

    def test_nodes_of_inner_graphs_are_counted(self) -> None:
        inner = graph(
            ("DequantizeLinear", "a", "b"), ("Conv", "b", "c"), ("QuantizeLinear", "c", "d"), ("Transpose", "d", "e")
        )
        outer = helper.make_graph(
            [helper.make_node("If", ["q"], ["z"], then_branch=inner, else_branch=inner)], "g", [], []
        )
        assert count_operators(outer) == Graph(fused=0, unfused=2, transposes=2, nodes=9)

    def test_convolutions_of_int8_activations_are_not_fused(self) -> None:
        """The target generic keeps int8 activations, which ONNX Runtime computes in float."""
        row = bench(INT8, "digits", [Ours(), Ours(target="generic")], 1)
        ours, generic = (outcome.graph for outcome in row.outcomes)
        assert ours is not None
        assert generic is not None
        assert (ours.fused, ours.unfused) == (7, 0)
        assert generic.unfused >= 3


class TestKind:
    @pytest.mark.parametrize(
        ("dtype", "expected"), [("float32", "float"), ("int8", "int8"), ("uint8", "int8"), ("int16", "int16")]
    )
    def test_kind_follows_the_dtype_of_most_results(self, dtype: str, expected: str) -> None:
        net = Net()
        net.output(net.call("RELU", [tensor(2, 3, dtype=dtype)], tensor(2, 3, dtype=dtype)))
        assert kind(structure.read(net.build())) == expected

    def test_float_operands_of_integer_weights_are_dynamic_range(self) -> None:
        net = Net()
        weights = constant(np.ones((5, 3), np.int8), scale=0.1)
        net.output(net.call("FULLY_CONNECTED", [tensor(2, 3), weights, None], tensor(2, 5)))
        assert kind(structure.read(net.build())) == "dynamic range"
