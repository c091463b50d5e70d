"""Operators one by one: in which order they are tried, for how long, and on which operands of every other layer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, drawn, tensor
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.verify import Tolerance
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.examined import Examined
from onnx_tflite_plugin.verify.operators import singly
from onnx_tflite_plugin.verify.operators.apart import Apart
from onnx_tflite_plugin.verify.operators.singly import SLOW, wrong
from tests.helpers.verify_graphs import entry_of, slot, subgraph

WRONG = Comparison("t", "step", 9.0, 1.0, 1.0, mean=5.0)
NOBODY: Any = None


class Trials:
    """What is tried where ``found`` tensors seem wrong on LiteRT's own operands, and one more in each parity of layers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, found: int = 0, seconds: float = 0.0) -> None:
        self.tried: list[int] = []
        entry = entry_of(subgraph(inputs=[slot(k) for k in range(20)]))
        self.search: Any = SimpleNamespace(trial=SimpleNamespace(entry=entry), session=None, values={})
        clock = iter([7.0, *[7.0 + seconds] * 9])
        monkeypatch.setattr(singly.time, "process_time", lambda: next(clock))
        monkeypatch.setattr(
            singly, "Apart", lambda *given: SimpleNamespace(comparisons=lambda runs: self.seem(*range(found)))
        )
        monkeypatch.setattr(singly, "_drawn", lambda search, apart, arrays, parity: self.seem(10 + parity))
        monkeypatch.setattr(singly, "_judged", lambda search, apart, value, alone: self.tried.append(value.tensor))

    @staticmethod
    def seem(*tensors: int) -> Iterator[tuple[Comparison, TensorValue]]:
        return iter([(WRONG, TensorValue(f"v{k}", 0, k)) for k in tensors])

    def all(self) -> list[int]:
        assert wrong(self.search, [[]], Tolerance(), NOBODY) == ([], "")
        return self.tried


@pytest.mark.parametrize(("seconds", "layers"), [(0.0, [10, 11]), (SLOW, [10, 11]), (SLOW + 0.1, [])])
def test_layers_of_either_parity_are_drawn_unless_the_network_is_slow(
    monkeypatch: pytest.MonkeyPatch, seconds: float, layers: list[int]
) -> None:
    assert Trials(monkeypatch, found=2, seconds=seconds).all() == [0, 1, *layers]


def test_four_that_seem_wrong_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trials(monkeypatch, found=9).all() == [0, 1, 2, 3, 10, 11]


def test_of_too_many_tensors_none_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(monkeypatch, found=2)
    monkeypatch.setattr(singly, "untried", lambda search: "too many")
    assert wrong(trials.search, [[]], Tolerance(), NOBODY) == ([], "too many")
    assert trials.tried == []


@pytest.mark.parametrize(("parity", "given", "compared"), [(1, {1, 3}, {2, 4}), (0, {2}, {1, 3, 4})])
def test_operators_behind_a_layer_take_what_is_drawn_for_it_in_both_runtimes(
    parity: int, given: set[int], compared: set[int]
) -> None:
    """1: ABS of the input, 2: NEG of it, 3: FLOOR of that, 4: the sum of 3 and 1."""
    net = Net()
    x = net.input(tensor(5, 7))
    absolute = net.call("ABS", [x], tensor(5, 7))
    floor = net.call("FLOOR", [net.call("NEG", [absolute], tensor(5, 7))], tensor(5, 7))
    net.output(net.call("ADD", [floor, absolute], tensor(5, 7)))
    data = net.build()
    examined = Examined(data, otp.convert(data).proto, None, None, lambda stage: None)
    search, arrays = examined.search, [drawn(5, 7)]
    apart = Apart(search.trial, search.session, Tolerance(), search.values)
    assert all(comparison.ok for comparison, _ in apart.comparisons([arrays]))
    before = dict(apart.kept)
    found = list(singly._drawn(search, apart, arrays, parity))
    assert all(comparison.ok for comparison, _ in found)
    assert {value.tensor for _, value in found} == compared
    now = apart.kept
    assert np.array_equal(now[0], before[0])
    for index in given:
        assert not np.array_equal(now[index], before[index])
        assert before[index].min() <= now[index].min() < now[index].max() <= before[index].max()
    makers = {1: lambda: np.abs(now[0]), 2: lambda: -now[1], 3: lambda: np.floor(now[2]), 4: lambda: now[3] + now[1]}
    for index in compared:
        np.testing.assert_array_equal(now[index], makers[index]())


def test_a_layer_that_nobody_can_draw_is_none() -> None:
    net = Net()
    net.output(net.call("ABS", [net.input(tensor(3))], tensor(3)))
    data = net.build()
    examined = Examined(data, otp.convert(data).proto, None, None, lambda stage: None)
    apart = Apart(examined.search.trial, examined.search.session, Tolerance(), examined.search.values)
    assert all(comparison.ok for comparison, _ in apart.comparisons([[drawn(3)]]))
    for parity in (0, 1):
        assert list(singly._drawn(examined.search, apart, [drawn(3)], parity)) == []
