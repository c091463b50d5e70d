"""Inputs of every run: random inputs are retried until LiteRT accepts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.cases.state.variables import running_sum
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.api import Context, Transparent, Value, handler
from onnx_tflite_plugin.errors import InconclusiveError, VerificationError
from onnx_tflite_plugin.graph.model_metadata import Part
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRTError, Tolerance
from onnx_tflite_plugin.verify.comparison.trial import KERNELS, _merge_failures
from onnx_tflite_plugin.verify.model_pair import ModelPair, _are_equal_runs
from onnx_tflite_plugin.verify.run import _all_nan
from onnx_tflite_plugin.verify.runtimes.interpreter import RunTimeout
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTCrash, NoKernel
from onnx_tflite_plugin.verify.runtimes.substitutes import _count_codes

InputRuns = list[list[Array]]


def pair(*shape: int | None, dtype: str = "int32", tolerance: Tolerance | float | None = None) -> ModelPair:
    """Return a pair of models that compute ABS."""
    net = Net()
    net.output(net.call("ABS", [net.input(tensor(*shape, dtype=dtype, scale=0))], tensor(*shape, dtype=dtype, scale=0)))
    data = net.build()
    return ModelPair(data, otp.convert(data).proto, None, tolerance, lambda stage: None)


class SelectiveRun:
    """A run that rejects all inputs except those that ``accepts`` selects."""

    def __init__(self, accepts: Any, error: Exception | None = None) -> None:
        self.accepts, self.error = accepts, error
        self.received: list[Array] = []

    def __call__(self, input_runs: InputRuns) -> str:
        self.received.append(input_runs[0][0])
        if not self.accepts(input_runs[0][0]):
            raise self.error or LiteRTError(f"refusal {len(self.received)}")
        return "accepted"


def test_notes_inputs_on_which_litert_times_out() -> None:
    models = pair(5)
    models.draw_accepted_inputs(SelectiveRun(lambda x: x.all(), RunTimeout("LiteRT has run for 20 s")), None, 0)
    assert models.notes == ("LiteRT has run for 20 s; other random inputs were used",)
    models = pair(5)
    models.draw_accepted_inputs(SelectiveRun(lambda x: x.all()), None, 0)
    assert not models.notes


@pytest.mark.parametrize(
    ("accepts", "tries"),
    [
        (lambda x: True, 1),
        (lambda x: x.all(), 2),
        (lambda x: x.min() > 0, 3),
        (lambda x: (x == 1).all(), 4),
        (lambda x: not x.any(), 5),
    ],
    ids=["any", "none 0", "none negative", "ones", "zeros"],
)
def test_retries_with_more_cautious_inputs(accepts: Any, tries: int) -> None:
    run = SelectiveRun(accepts)
    (arrays,), outcome = pair(11, 13).draw_accepted_inputs(run, None, 0)
    assert (outcome, len(run.received)) == ("accepted", tries)
    assert arrays[0] is run.received[-1]
    assert [bool(array.min() < 0) for array in run.received] == [True, True, False, False, False][:tries]
    assert [bool(array.all()) for array in run.received] == [False, True, True, True, False][:tries]
    assert [len(np.unique(array)) > 5 for array in run.received] == [True, True, True, False, False][:tries]


def test_float_inputs_skip_integer_retries() -> None:
    run = SelectiveRun(lambda x: x.min() >= 0)
    pair(11, 13, dtype="float32").draw_accepted_inputs(run, None, 0)
    assert len(run.received) == 2


def test_retries_with_larger_dynamic_dimensions() -> None:
    run = SelectiveRun(lambda x: x.shape[1] > 1)
    models = pair(None, None, 3)
    (arrays,), _ = models.draw_accepted_inputs(run, None, 0)
    assert [array.shape for array in run.received] == [(1, 1, 3)] * 5 + [(1, 64, 3)]
    assert arrays[0].min() < 0
    assert models.min_dynamic_size == 64


@pytest.mark.parametrize(
    ("inputs", "shapes", "tries", "hint"),
    [
        (None, {"x0": (1, 5, 3)}, 5, "; if the random inputs are the reason, pass your own with --inputs"),
        ({"x0": np.ones((1, 7, 3), np.int32)}, None, 3, ""),
    ],
)
def test_reports_the_first_rejection_if_all_fail(inputs: Any, shapes: Any, tries: int, hint: str) -> None:
    run = SelectiveRun(lambda x: False)
    with pytest.raises(LiteRTError) as raised:
        pair(None, None, 3).draw_accepted_inputs(run, inputs, 0, shapes=shapes)
    assert str(raised.value) == f"refusal 1{hint}"
    assert len(run.received) == tries


def test_rejected_random_inputs_are_inconclusive() -> None:
    run = SelectiveRun(lambda x: False)
    remedy = "if it needs other values, pass your own with --inputs"
    message = f"^LiteRT rejects all random inputs, so nothing was compared; {remedy}: refusal 1$"
    with pytest.raises(InconclusiveError, match=message):
        pair(None, None, 3).draw_accepted_inputs(run, None, 0)
    assert len(run.received) == 7


@pytest.mark.parametrize("inputs", [None, {"x0": np.ones((1, 5, 5, 3), np.float32)}], ids=["random", "given"])
def test_file_that_litert_cannot_prepare_is_inconclusive(inputs: Any) -> None:
    """LiteRT computes float activations only with int8 weights."""
    net = Net()
    weights = constant(np.full((4, 3, 3, 3), 7, np.uint8), scale=0.1)
    result = net.call(
        "CONV_2D", [net.input(tensor(1, 5, 5, 3)), weights], tensor(1, 5, 5, 4), padding="SAME", stride_h=1, stride_w=1
    )
    net.output(result)
    verification = otp.verify(net.build(), otp.convert(net.build()), inputs=inputs)
    assert verification.verdict == "inconclusive"
    (reason,) = verification.reasons
    assert reason.startswith("LiteRT cannot run this file, so there is no reference to compare with: ")
    assert reason.endswith("(CONV_2D) failed to prepare")
    assert not verification.notes


@pytest.mark.parametrize("inputs", [None, {"x": np.ones((7, 100), np.float32)}], ids=["random", "given"])
def test_preparation_fails_beside_an_operator_without_a_kernel(inputs: Any) -> None:
    """LiteRT's RFFT2D requires a power of two; the first operator is not in LiteRT."""

    @handler("CUSTOM.vendor.Abs", max_version=1, layout=Transparent())
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Abs(x)

    host = Host(handlers={"CUSTOM.vendor.Abs": lower})
    model = ModelBuilder()
    g = model.main
    x, y, z = g.input("x", (7, 100)), g.tensor("y", (7, 100)), g.tensor("z", (7, 51), "complex64")
    g.operator("CUSTOM.vendor.Abs", [x], [y])
    g.operator("RFFT2D", [y, g.constant("lengths", np.array([1, 100], np.int32))], [z])
    g.output(g.tensor("magnitudes", (7, 51)))
    g.operator("COMPLEX_ABS", [z], [g.outputs[0]])
    data = model.build()
    verification = otp.verify(data, otp.convert(data, host=host), inputs=inputs, host=host)
    assert verification.verdict == "inconclusive"
    *_, reason = verification.reasons
    assert reason.startswith("LiteRT cannot run this file, so there is no reference to compare with: ")
    assert "(RFFT2D) failed to prepare" in reason


def test_crash_during_preparation_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise LiteRTCrash("LiteRT crashes on the model: signal 6 (SIGABRT)")

    monkeypatch.setattr(LiteRT, "allocate", crash)
    run = SelectiveRun(lambda x: False)
    with pytest.raises(InconclusiveError, match=r"^LiteRT cannot run this file, .*: LiteRT crashes on the model"):
        pair(3).draw_accepted_inputs(run, None, 0)
    assert len(run.received) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ABS", "LiteRT has no kernel for ABS, so there is no reference to compare with"),
        ("NEG", "LiteRT has no kernel for NEG, and the operator is in a called subgraph, where no reference kernel"),
    ],
)  # fmt: skip
def test_reports_a_missing_kernel_immediately(code: str, message: str) -> None:
    run = SelectiveRun(lambda x: False, NoKernel(code))
    with pytest.raises(InconclusiveError) as raised:
        pair(3).draw_accepted_inputs(run, None, 0)
    assert str(raised.value).startswith(message)
    assert len(run.received) == 1


def test_dtype_without_a_kernel_is_inconclusive_immediately() -> None:
    run = SelectiveRun(
        lambda x: False, LiteRTError("LiteRT cannot run the model: Type BFLOAT16 is unsupported by op Add")
    )
    with pytest.raises(InconclusiveError, match=r"unsupported by op Add, so there is no reference to compare with$"):
        pair(3).draw_accepted_inputs(run, None, 0)
    assert len(run.received) == 1


def test_same_message_of_all_kernel_sets_is_one_line() -> None:
    failures = {kernels: f"LiteRT ({kernels} kernels) cannot run the model: no" for kernels in KERNELS}
    assert _merge_failures(failures) == "LiteRT cannot run the model: no"
    assert _merge_failures({**failures, "builtin": "other"}).splitlines() == [
        "LiteRT (xnnpack kernels) cannot run the model: no", "other", "LiteRT (reference kernels) cannot run the model: no",
    ]  # fmt: skip


@pytest.mark.parametrize(("conditions", "runs"), [(1, 3), (2, 4), (3, 8), (4, 8)])
def test_runs_cover_all_combinations_of_conditions(conditions: int, runs: int) -> None:
    net = Net()
    inputs = [net.input(tensor(1, dtype="bool", scale=0)) for _ in range(conditions)]
    net.output(*(net.call("LOGICAL_NOT", [x], tensor(1, dtype="bool", scale=0)) for x in inputs))
    models = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    assert [models.run_count(requested) for requested in (1, 3, 9)] == [1, runs, 9]


def test_equal_runs_are_merged_unless_the_model_is_stateful() -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    assert _are_equal_runs([[zeros, ones], [zeros, ones]])
    assert not _are_equal_runs([[zeros, ones], [zeros, zeros], [zeros, ones]])
    inputs = {"x0": np.ones(3, np.int32)}
    assert len(pair(3).draw_accepted_inputs(lambda runs: None, inputs, 0, runs=5)[0]) == 1
    assert len(pair(3).draw_accepted_inputs(lambda runs: None, None, 0, runs=5)[0]) == 5
    net = Net()
    running_sum("float32")(net)
    stateful = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    names = stateful.entry.input_names
    fixed = {name: np.ones(t.shape, t.dtype) for name, t in zip(names, stateful.entry.inputs, strict=True)}
    assert len(stateful.draw_accepted_inputs(lambda runs: None, fixed, 0, runs=5)[0]) == 5


def test_tolerance_is_a_number_an_object_or_derived() -> None:
    assert pair(3, tolerance=0.25).trial.tolerance == Tolerance(of_range=0.25)
    assert pair(3, tolerance=Tolerance(steps=7)).trial.tolerance == Tolerance(steps=7)
    assert pair(3).trial.tolerance == Tolerance(int16_steps=16)


def test_operators_are_listed_by_code_with_counts() -> None:
    net = Net()
    x = net.input(tensor(3))
    for code in ("ABS", "NEG", "ABS"):
        x = net.call(code, [x], tensor(3))
    net.output(x)
    models = ModelPair(net.build(), otp.convert(net.build()).proto, None, None, lambda stage: None)
    assert _count_codes(models.entry.subgraph.operators) == "ABS (2), NEG (1)"


def test_rejects_a_submodel_of_another_file() -> None:
    models = pair(3)
    for inputs, outputs in (((0,), (2,)), ((2,), (1,)), ((-1,), (1,))):
        with pytest.raises(VerificationError, match="submodel of another file: this file has only 2 tensors"):
            models._cut(models.trial.data, Part(inputs, outputs))


def test_only_all_nan_floats_are_low_information() -> None:
    nan, ones = np.full(3, np.nan, np.float32), np.ones(3, np.float32)
    assert _all_nan([[nan], [nan, np.empty(0, np.float32)]])
    assert not _all_nan([[nan, ones]])
    assert not _all_nan([[nan], [ones]])
    assert not _all_nan([[nan, np.ones(3, np.int32)]])
    assert not _all_nan([[nan, np.array(["a"], object)]])
    assert not _all_nan([[np.empty(0, np.float32)]])


@pytest.mark.parametrize("shape", [[1, 6], [1, -1]], ids=["rejects a batch", "flattens a batch"])
def test_compares_batch_items_one_by_one_if_litert_rejects_the_batch(shape: list[int]) -> None:
    net = Net()
    x = net.input(tensor(1, 2, 3))
    net.output(net.call("RESHAPE", [x, constant(np.array(shape, np.int32))], tensor(1, 6), new_shape=shape))
    data = net.build()
    verification = otp.verify(data, otp.convert(data, dynamic_batch=True).proto)
    assert verification.ok, verification.text
    assert "one more run with other sizes of dynamic dimensions: x0 [2, 2, 3]" in verification.text
