"""Sessions of both runtimes: names, signatures, states, kept tensors."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.cases.state.variables import running_sum
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.errors import InconclusiveError, VerificationError
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify import LiteRT, LiteRTError, verify
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.litert import start_litert
from onnx_tflite_plugin.verify.runtimes.onnx_results import OnnxResults
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.packages import silence_stderr
from onnx_tflite_plugin.verify.runtimes.substitution import (
    PackKernel,
    Partition,
    PartitionedLiteRT,
    Substitutes,
    _initial_states,
    find_pack_kernels,
)
from onnx_tflite_plugin.verify.times.profile import OperatorTime
from onnx_tflite_plugin.verify.verification import Verification
from tests.helpers.verify_graphs import entry_of, operator, slot, subgraph
from tests.helpers.verify_pairs import two_signatures

# --- the process ------------------------------------------------------------------------------


def test_silences_c_code_and_leaks_no_descriptor(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def descriptors() -> list[int]:
        return [k for k in range(1024) if is_open(k)]

    def is_open(descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    descriptors_before = descriptors()
    with silence_stderr():
        os.write(2, b"silent")
    os.write(2, b"heard")
    assert descriptors() == descriptors_before
    assert capfd.readouterr().err == "heard"


# --- LiteRT -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("signature", "expected"), [(None, -2.0), ("first", -2.0), ("second", np.exp(np.float32(2)))])
def test_signature_runs_its_own_subgraph(signature: str | None, expected: float) -> None:
    inputs = [np.full(3, 2, np.float32)]
    (result,) = start_litert(two_signatures(), inputs, signature=signature).run(inputs)
    np.testing.assert_allclose(result, np.full(3, expected), rtol=1e-6)


def test_rejects_wrong_number_or_names_of_inputs() -> None:
    session, array = LiteRT(two_signatures(), "builtin"), np.zeros(3, np.float32)
    with pytest.raises(LiteRTError, match="the model has 1 inputs, but 2 are given"):
        session.run([array, array])
    with pytest.raises(LiteRTError, match="the model's inputs are a, but the given inputs are b"):
        session.run({"b": array})
    with pytest.raises(LiteRTError, match="the model's inputs are a, but the given inputs are none"):
        session.run({})


def test_unnamed_and_ambiguous_tensors_are_named_by_index() -> None:
    model = ModelBuilder()
    g = model.main
    inputs = [g.input(name, (2,)) for name in ("", "x", "x", "y")]
    g.operator("ADD_N", inputs, [total := g.tensor("", (2,))])
    g.output(total)
    entry = structure.entry(structure.read(model.build()))
    assert entry.input_names == ("#0", "x#1", "x#2", "y")
    assert entry.output_names == ("#4",)


@pytest.mark.parametrize("shape", [(), (1,), (2, 1)])
def test_strings_keep_their_shape(shape: tuple[int, ...]) -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", shape, "string"), g.tensor("y", (1, *shape), "string")
    g.operator("RESHAPE", [x, g.constant("shape", np.array([1, *shape], np.int32))], [y])
    g.output(y)
    session, texts = LiteRT(model.build(), "builtin", isolated=False), [np.full(shape, "text", object)]
    for (result,) in (session.run(texts), session.prepare(texts)()):
        assert (result.shape, {*result.flat}) == ((1, *shape), {b"text"})


# --- operators missing from LiteRT ------------------------------------------------------------

CODE = "CUSTOM.vendor.Twice"


def double(op: Any, x: Array) -> Array:
    return 2 * x


def test_each_tensor_is_kept_by_its_submodel() -> None:
    net = Net()
    x = net.input(tensor(2, 5))
    a = net.call("ABS", [x], tensor(2, 5))
    b, c = net.result(tensor(2, 5)), net.result(tensor(2, 5))
    net.graph.operator(CODE, [a], [b])
    net.graph.operator("NEG", [b], [c])
    net.output(net.call("ADD", [c, a], tensor(2, 5)))
    data = net.build()
    host = Host(keep_unknown=True)
    entry = structure.entry(structure.read(data))
    pack_kernels, _ = find_pack_kernels(read(data), 0, [1], host, {CODE: double})
    session = PartitionedLiteRT(data, "builtin", entry, Substitutes(pack_kernels), preserve=True)
    operand = random_array(2, 5)
    (result,) = session.run([operand])
    absolute = np.abs(operand)
    tensors = session.tensors()
    expected = [operand, absolute, 2 * absolute, -2 * absolute, -absolute]
    assert sorted(tensors) == [*range(5)]
    for index, array in enumerate(expected):
        np.testing.assert_allclose(tensors[index], array, rtol=1e-6)
    np.testing.assert_allclose(result, -absolute, rtol=1e-6)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin"])
def test_constant_operands_are_computed_first(kernels: str) -> None:
    """XNNPACK dequantizes weights internally and does not expose them."""
    net = Net()
    x = net.input(tensor(2, 5))
    quantized = random_array(2, 5, dtype="int8")
    weights = net.call("DEQUANTIZE", [constant(quantized, "int8", 0.5)], tensor(2, 5))
    negative = net.call("NEG", [weights], tensor(2, 5))
    absolute = net.call("ABS", [x], tensor(2, 5))
    net.graph.operator(CODE, [negative, absolute], [y := net.result(tensor(2, 5))])
    net.output(net.call("ADD", [y, absolute], tensor(2, 5)))
    data = net.build()
    entry = structure.entry(structure.read(data))
    (pack_kernel,) = find_pack_kernels(read(data), 0, [3], Host(keep_unknown=True), {CODE: lambda op, w, x: w * x})[
        0
    ].values()
    session = PartitionedLiteRT(data, kernels, entry, Substitutes({3: pack_kernel}))
    assert [step if isinstance(step, int) else sorted(step.operators) for step in session.steps] == [
        [0, 1], [2], 3, [4],
    ]  # fmt: skip
    array = random_array(2, 5, seed="x")
    (result,) = session.run([array])
    dequantized = quantized.astype(np.float32) / 2
    np.testing.assert_allclose(result, np.abs(array) - dequantized * np.abs(array), rtol=1e-5)


@pytest.mark.parametrize(
    ("state", "state_users", "substituted", "is_shared"),
    [
        (slot(9, variable=True), (0, 1), (), False),
        (slot(9, variable=True), (0, 2), (1,), True),
        (slot(9, variable=True), (1,), (1,), False),
        (slot(9, "resource", ()), (1,), (1,), False),
        (slot(9, "resource", ()), (0,), (1,), True),
        (slot(9), (0, 1, 2), (1,), False),
    ],
)
def test_users_of_a_state_must_be_in_one_submodel(
    state: Tensor, state_users: tuple[int, ...], substituted: tuple[int, ...], is_shared: bool
) -> None:
    operators = [operator([slot(k), *([state] if k in state_users else [])], [slot(k + 1)], index=k) for k in range(3)]
    groups: list[list[int] | int] = [[0], 1, [2]] if substituted else [[0, 1, 2]]
    steps = [
        group if isinstance(group, int) else Partition(frozenset(group), (), (), frozenset(), b"") for group in groups
    ]
    entry, substitutes = entry_of(subgraph(*operators)), Substitutes(from_onnx={k: operators[k] for k in substituted})
    if not is_shared:
        _initial_states(entry, steps, substitutes)
        return
    with pytest.raises(InconclusiveError, match="the parts cannot share state 't9'"):
        _initial_states(entry, steps, substitutes)


def test_variable_of_a_pack_kernel_starts_as_in_litert() -> None:
    state = slot(9, "int8", (2,), 0.5, zero_point=-7, variable=True)
    op = operator([slot(0), state], [slot(1)])
    substitutes = Substitutes(pack_kernels={0: PackKernel(op, lambda op, x, state: x, "inline", False, {})})
    assert _initial_states(entry_of(subgraph(op)), [0], substitutes)[9].tolist() == [-7, -7]


@pytest.mark.parametrize(("takes_floats", "scale"), [(False, 1.0), (True, 0.5)])
def test_pack_kernel_gets_declared_dtypes_and_none_if_absent(takes_floats: bool, scale: float) -> None:
    def kernel(op: Any, *operands: Any) -> Any:
        kernel_operands.extend(operands)
        return None, 2 * operands[0]

    kernel_operands: list[Any] = []
    weights = np.array([[7, -3, 1]], np.int8)
    x, w, y = slot(0, "int8", (2, 3), 0.5), slot(1, "int8", (1, 3), 0.5, values=weights), slot(2, "int8", (2, 3), 0.5)
    w = replace(w, data=SimpleNamespace(array=weights))  # type: ignore[arg-type]
    values = np.arange(6, dtype=np.int8).reshape(2, 3)
    results = PackKernel(operator([x, None, w], [None, y]), kernel, "pack", takes_floats, {}).run({0: values})
    np.testing.assert_array_equal(kernel_operands[0], values * np.float32(scale))
    assert kernel_operands[0].dtype == (np.float32 if takes_floats else np.int8)
    assert kernel_operands[1] is None
    np.testing.assert_array_equal(kernel_operands[2], weights * np.float32(scale))
    assert list(results) == [2]
    np.testing.assert_array_equal(results[2], 2 * values)
    assert results[2].dtype == np.int8


@pytest.mark.parametrize(
    ("bias", "expected"),
    [(np.array([8, 16], np.int32), [2.0, 4.0]), (np.array([8, 16], np.float32), [8.0, 16.0])],
)
def test_integer_bias_has_the_product_of_two_scales(bias: Array, expected: list[float]) -> None:
    biases: list[Any] = []
    tensors = slot(0, "int8", (2,), 0.5), slot(1, "int8", (2,), 0.5), slot(2, bias.dtype.name, (2,), 123.0)
    op = operator(tensors, [slot(3, shape=(2,))])
    arrays = {0: np.zeros(2, np.int8), 1: np.zeros(2, np.int8), 2: bias}
    PackKernel(op, lambda op, *operands: biases.append(operands[2]) or np.zeros(2), "pack", True, {2: (0, 1)}).run(
        arrays
    )
    assert (biases[0].tolist(), biases[0].dtype) == (expected, np.float32)


def test_rejects_a_borrowed_result_of_different_rank() -> None:
    output = slot(1, shape=(2, 3))
    results: Any = OnnxResults.__new__(OnnxResults)
    results.values = {output: TensorValue("v", 0, 1, order=(0, 2, 1))}
    results.session = SimpleNamespace(values=lambda: {"v": np.zeros((2, 3))})
    results.interface = SimpleNamespace(run=lambda session, inputs: None)
    with pytest.raises(
        VerificationError, match="the ONNX value for tensor 1 't1' has a different shape from the TFLite tensor"
    ):
        results([])


# --- ONNX Runtime -----------------------------------------------------------------------------


ONE_STEP_OFF = Comparison("t", "step", 1.0, 0.1, 1.0)
NINE_STEPS_OFF = Comparison("t", "step", 9.0, 1.0, 1.0, mean_error=5.0)


def negation() -> tuple[bytes, onnx.ModelProto]:
    net = Net()
    net.output(net.call("NEG", [net.input(tensor(2, 3))], tensor(2, 3)))
    return net.build(), otp.convert(net.build()).proto


def test_reports_progress_at_the_start_of_each_run() -> None:
    progress_texts: list[str] = []
    assert verify(*negation(), runs=2, progress=progress_texts.append).ok
    assert progress_texts[:8] == [
        "loading both models",
        *(f"LiteRT (xnnpack), run {k} of 2" for k in (1, 2)),
        "submodels on the same inputs",
        *(f"LiteRT (builtin), all tensors, run {k} of 2" for k in (1, 2)),
        *(f"ONNX Runtime, run {k} of 2" for k in (1, 2)),
    ]
    with pytest.raises(ValueError, match="runs is 0; give 1 or more"):
        verify(*negation(), runs=0)


def test_model_with_reset_states_is_compared_with_fresh_runs() -> None:
    net = Net()
    running_sum("float32")(net)
    data = net.build()
    verification = verify(data, otp.convert(data, state="reset"), runs=3)
    assert verification.ok, verification.text
    assert verification.runs == 3


def test_verification_text_lists_outputs_and_remedies() -> None:
    x, y = slot(0), slot(1)
    equal = Comparison("z", "step", 0.0, 0.0, 1.0)
    passed = Verification((ONE_STEP_OFF, equal), ("xnnpack", "builtin"), 1, "here", notes=("by the way",))
    assert passed.text.splitlines() == [
        "outputs within 1 quantization step, compared with LiteRT (XNNPACK and builtin kernels), 1 run",
        "  ok     't': max 1 quantization step, 10.0 % of elements differ (tolerance 1)",
        "  ok     'z': equal (tolerance 1 quantization step)",
        "  by the way",
    ]
    assert repr(passed) == (
        "<Verification: outputs within 1 quantization step, compared with LiteRT (XNNPACK and builtin kernels), 1 run; "
        "ok     't': max 1 quantization step, 10.0 % of elements differ (tolerance 1); and 1 more outputs>"
    )
    only_outputs = replace(passed, notes=("operators were not compared: out of memory",)).text
    assert only_outputs.startswith(
        "outputs within 1 quantization step, compared with LiteRT (XNNPACK and builtin kernels), 1 run; operators were "
        "not compared\n"
    )
    assert replace(passed, operators=1).text.startswith(
        "outputs within 1 quantization step; the compared operator agrees with LiteRT (XNNPACK and builtin kernels), 1 run\n"
    )
    assert replace(passed, operators=5, runs=2).text.startswith(
        "outputs within 1 quantization step; all 5 compared operators agree with LiteRT (XNNPACK and builtin kernels), 2 runs\n"
    )
    assert replace(passed, operators=5, pack_kernel_operators=2).text.startswith(
        "outputs within 1 quantization step; all 5 compared operators agree: 3 with LiteRT (XNNPACK and builtin kernels), "
        "2 with the reference kernels of their handlers, 1 run\n"
    )
    assert replace(passed, operators=2, pack_kernel_operators=2).text.startswith(
        "outputs within 1 quantization step; all 2 compared operators agree with the reference kernels of their handlers, 1 run\n"
    )
    assert replace(passed, operators=5, end_to_end_error=" by up to 3").text.startswith(
        "all 5 compared operators agree with LiteRT (XNNPACK and builtin kernels), 1 run; outputs differ by up to 3\n"
    )
    divergence = Divergence(y, operator([x], [y], code="A", index=7), "v", NINE_STEPS_OFF)
    failed = Verification((replace(NINE_STEPS_OFF, nearest="builtin"),), ("builtin",), 3, "here", divergence)
    assert failed.text.splitlines() == [
        "NOT within tolerance of LiteRT (builtin kernels), 3 runs, on here",
        "  FAILED 't': max 9 quantization steps, 100.0 % of elements differ (tolerance 1, compared with LiteRT's builtin kernels)",
        "  first tensor that differs when each operator gets LiteRT's values: tensor 1 't1' of operator 7 A (ONNX value 'v'): max 9 "
        "quantization steps, 100.0 % of elements differ (tolerance 1)",
    ]
    assert repr(failed).endswith("compared with LiteRT's builtin kernels)>")


def test_loss_is_the_time_beyond_litert() -> None:
    assert OperatorTime((0,), ("A",), "", (), 2.0, 7.0).loss == 5.0
    assert OperatorTime((0,), ("A",), "", (), None, 7.0).loss == 7.0


def test_onnx_runtime_does_not_warn_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """It warns of stored shapes that differ from inferred ones."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size]) for name, size in (("x", 3), ("y", 5)))
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
    OnnxRuntime(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    assert not capfd.readouterr().err
