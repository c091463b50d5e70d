"""The number of runs of models with large inputs and outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onnx_tflite_plugin.verify.run import MAX_ELEMENTS, affordable_runs


@pytest.mark.parametrize(
    ("dims", "runs"),
    [((7, None), 3), ((2, MAX_ELEMENTS // 4), 2), ((MAX_ELEMENTS,), 1), ((MAX_ELEMENTS, 5), 1), ((), 3)],
)
def test_large_inputs_and_outputs_run_fewer_times_and_at_least_once(dims: tuple[int | None, ...], runs: int) -> None:
    entry: Any = SimpleNamespace(inputs=(SimpleNamespace(dims=dims),), outputs=())
    assert affordable_runs(entry, 3) == runs
