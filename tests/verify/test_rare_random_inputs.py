"""Tests of random values that include those that hardly ever occur by chance."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.verify import draw
from tests.helpers.verify_graphs import entry_of, slot, subgraph


def test_conditions_meet_in_every_combination() -> None:
    entry = entry_of(subgraph(inputs=[slot(0), *(slot(k, "bool", ()) for k in (1, 2, 3))]))
    for seed in (0, 1):
        runs = [tuple(bool(x) for x in run[1:]) for run in draw(entry, runs=8, seed=seed)]
        assert len({*runs}) == 8
        assert len({run[:2] for run in runs[:4]}) == 4


def test_integers_that_avoid_0_are_as_they_were_else_and_may_avoid_what_is_negative() -> None:
    x = slot(0, "int32", (500,))
    entry = entry_of(subgraph(inputs=[x]))
    any_, none, positive = (draw(entry, avoided=k)[0][0] for k in (0, 1, 2))
    assert not any_.all()
    np.testing.assert_array_equal(none, np.where(any_ == 0, 1, any_))
    np.testing.assert_array_equal(positive, np.abs(none))
    assert none.dtype == positive.dtype == np.int32
