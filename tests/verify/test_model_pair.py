"""The inputs of every run: drawn ever more cautiously until LiteRT takes them, and what is said where it takes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.cases.state.variables import running_sum
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.errors import InconclusiveError, VerificationError
from onnx_tflite_plugin.graph.metadata import Part
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRTError, Tolerance
from onnx_tflite_plugin.verify.model_pair import ModelPair, _are_equal_runs
from onnx_tflite_plugin.verify.run import _all_nan
from onnx_tflite_plugin.verify.runtimes.litert import NoKernel
from onnx_tflite_plugin.verify.runtimes.substitutes import _codes

Drawn = list[list[Array]]


def pair(*shape: int | None, dtype: str = "int32", tolerance: Tolerance | float | None = None) -> ModelPair:
    """The absolute values of one input."""
    net = Net()
    net.output(net.call("ABS", [net.input(tensor(*shape, dtype=dtype, scale=0))], tensor(*shape, dtype=dtype, scale=0)))
    data = net.build()
    return ModelPair(data, otp.convert(data).proto, None, tolerance, lambda stage: None)


class Runs:
    """Refuses all inputs but those that ``takes`` says."""

    def __init__(self, takes: Any, error: Exception | None = None) -> None:
        self.takes, self.error = takes, error
        self.seen: list[Array] = []

    def __call__(self, drawn: Drawn) -> str:
        self.seen.append(drawn[0][0])
        if not self.takes(drawn[0][0]):
            raise self.error or LiteRTError(f"refusal {len(self.seen)}")
        return "taken"


@pytest.mark.parametrize(
    ("takes", "tries"),
    [
        (lambda x: True, 1),
        (lambda x: x.all(), 2),
        (lambda x: x.min() > 0, 3),
        (lambda x: (x == 1).all(), 4),
        (lambda x: not x.any(), 5),
    ],
    ids=["any", "none 0", "none negative", "ones", "zeros"],
)
def test_inputs_are_drawn_more_cautiously_until_they_are_taken(takes: Any, tries: int) -> None:
    run = Runs(takes)
    (arrays,), found = pair(11, 13).draw_accepted_inputs(run, None, 0)
    assert (found, len(run.seen)) == ("taken", tries)
    assert arrays[0] is run.seen[-1]
    assert [bool(array.min() < 0) for array in run.seen] == [True, True, False, False, False][:tries]
    assert [bool(array.all()) for array in run.seen] == [False, True, True, True, False][:tries]
    assert [len(np.unique(array)) > 5 for array in run.seen] == [True, True, True, False, False][:tries]


def test_of_floats_none_is_drawn_again_for_what_only_integers_avoid() -> None:
    run = Runs(lambda x: x.min() >= 0)
    pair(11, 13, dtype="float32").draw_accepted_inputs(run, None, 0)
    assert len(run.seen) == 2


def test_sizes_that_the_file_leaves_open_are_larger_where_no_other_inputs_are_taken() -> None:
    run = Runs(lambda x: x.shape[1] > 1)
    made = pair(None, None, 3)
    (arrays,), _ = made.draw_accepted_inputs(run, None, 0)
    assert [array.shape for array in run.seen] == [(1, 1, 3)] * 5 + [(1, 64, 3)]
    assert arrays[0].min() < 0
    assert made.least == 64


@pytest.mark.parametrize(
    ("inputs", "shapes", "tries", "hint"),
    [
        (None, None, 7, "; if the random inputs are the reason, pass your own with --inputs"),
        (None, {"x0": (1, 5, 3)}, 5, "; if the random inputs are the reason, pass your own with --inputs"),
        ({"x0": np.ones((1, 7, 3), np.int32)}, None, 3, ""),
    ],
)
def test_the_first_refusal_is_told_where_none_are_taken(inputs: Any, shapes: Any, tries: int, hint: str) -> None:
    run = Runs(lambda x: False)
    with pytest.raises(LiteRTError) as raised:
        pair(None, None, 3).draw_accepted_inputs(run, inputs, 0, shapes=shapes)
    assert str(raised.value) == f"refusal 1{hint}"
    assert len(run.seen) == tries


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("ABS", "LiteRT has no kernel for ABS, so there is no reference to compare with"),
        ("NEG", "LiteRT has no kernel for NEG, and it is in a called subgraph, where no reference kernel"),
    ],
)  # fmt: skip
def test_a_kernel_that_is_lacking_is_told_at_once(code: str, said: str) -> None:
    run = Runs(lambda x: False, NoKernel(code))
    with pytest.raises(InconclusiveError) as raised:
        pair(3).draw_accepted_inputs(run, None, 0)
    assert str(raised.value).startswith(said)
    assert len(run.seen) == 1


@pytest.mark.parametrize(("conditions", "runs"), [(1, 3), (2, 4), (3, 8), (4, 8)])
def test_conditions_take_as_many_runs_as_they_have_combinations(conditions: int, runs: int) -> None:
    net = Net()
    given = [net.input(tensor(1, dtype="bool", scale=0)) for _ in range(conditions)]
    net.output(*(net.call("LOGICAL_NOT", [x], tensor(1, dtype="bool", scale=0)) for x in given))
    made = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    assert [made.enough(asked) for asked in (1, 3, 9)] == [1, runs, 9]


def test_runs_of_equal_inputs_are_one_but_where_the_model_remembers() -> None:
    one, other = np.zeros(3), np.ones(3)
    assert _are_equal_runs([[one, other], [one, other]])
    assert not _are_equal_runs([[one, other], [one, one], [one, other]])
    given = {"x0": np.ones(3, np.int32)}
    assert len(pair(3).draw_accepted_inputs(lambda drawn: None, given, 0, runs=5)[0]) == 1
    assert len(pair(3).draw_accepted_inputs(lambda drawn: None, None, 0, runs=5)[0]) == 5
    net = Net()
    running_sum("float32")(net)
    remembering = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    names = remembering.entry.input_names
    fixed = {name: np.ones(t.shape, t.dtype) for name, t in zip(names, remembering.entry.inputs, strict=True)}
    assert len(remembering.draw_accepted_inputs(lambda drawn: None, fixed, 0, runs=5)[0]) == 5


def test_a_tolerance_is_a_share_of_the_range_or_whole_or_follows_from_the_model() -> None:
    assert pair(3, tolerance=0.25).trial.tolerance == Tolerance(of_range=0.25)
    assert pair(3, tolerance=Tolerance(steps=7)).trial.tolerance == Tolerance(steps=7)
    assert pair(3).trial.tolerance == Tolerance(int16_steps=16)


def test_operators_are_told_by_code_with_their_number() -> None:
    net = Net()
    x = net.input(tensor(3))
    for code in ("ABS", "NEG", "ABS"):
        x = net.call(code, [x], tensor(3))
    net.output(x)
    made = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    assert _codes(made.entry.subgraph.operators) == "ABS (2), NEG (1)"


def test_a_part_of_another_file_is_told() -> None:
    made = pair(3)
    for inputs, outputs in (((0,), (2,)), ((2,), (1,)), ((-1,), (1,))):
        with pytest.raises(VerificationError, match="submodel of another file: this file has only 2 tensors"):
            made._cut(made.trial.data, Part(inputs, outputs))


def test_only_floats_that_are_nan_throughout_say_nothing() -> None:
    nan, one = np.full(3, np.nan, np.float32), np.ones(3, np.float32)
    assert _all_nan([[nan], [nan, np.empty(0, np.float32)]])
    assert not _all_nan([[nan, one]])
    assert not _all_nan([[nan], [one]])
    assert not _all_nan([[nan, np.ones(3, np.int32)]])
    assert not _all_nan([[nan, np.array(["a"], object)]])
    assert not _all_nan([[np.empty(0, np.float32)]])


@pytest.mark.parametrize("shape", [[1, 6], [1, -1]], ids=["refuses a batch", "joins its rows"])
def test_a_batch_that_litert_does_not_take_is_compared_with_its_own_rows(shape: list[int]) -> None:
    net = Net()
    x = net.input(tensor(1, 2, 3))
    net.output(net.call("RESHAPE", [x, constant(np.array(shape, np.int32))], tensor(1, 6), new_shape=shape))
    data = net.build()
    judged = otp.verify(data, otp.convert(data, dynamic_batch=True).proto)
    assert judged.ok, judged.text
    assert "one more run with other dynamic sizes: x0 [2, 2, 3]" in judged.text
