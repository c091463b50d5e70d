"""Models with operators that only reference kernels of packs compute."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.api import Attribute, Context, Dequantized, Handler, Terminate, Transparent, Value, handler
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.page.measurements import measure_conversion
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes.substitution import _constant_operators
from tests.helpers.shrink_models import CODE, network, shrink_array, shrink_handler, verify_model
from tests.helpers.verify_graphs import operator, slot


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int16"])
def test_pack_kernel_runs_only_operators_missing_from_litert(dtype: str) -> None:
    result = verify_model(network(dtype), shrink_handler())
    assert result.ok, result.text
    assert len(result.comparisons) == 2
    assert result.kernels == ("xnnpack", "builtin")
    assert (
        f"{CODE} (1): run with the reference kernels of their handlers; LiteRT runs all other operators" in result.text
    )


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_names_the_tensor_if_lowering_and_kernel_disagree(dtype: str) -> None:
    result = verify_model(network(dtype), shrink_handler(by=0.5))
    assert not result.ok
    assert result.diverging is not None
    assert result.diverging.operator.code == CODE


def negated_abs(overrides: bool) -> Handler:
    """Return a handler of ABS that differs from LiteRT."""

    @handler(
        "ABS",
        max_version=5,
        layout=Transparent(),
        kernel=lambda op, x: -np.abs(x),
        overrides_kernel=(lambda at: at.op[0].rank == 4) if overrides else None,
    )
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Neg(ctx.ops.Abs(x))

    return lower


@pytest.mark.parametrize("overrides", [True, False])
def test_overriding_kernel_replaces_litert(overrides: bool) -> None:
    net = Net()
    x = net.input_through_conv(tensor(1, 5, 7, 3))
    net.output(net.output_through_conv(net.call("ABS", [x], tensor(1, 5, 7, 3))))
    data, host = net.build(), Host(packs="builtin", handlers={"ABS": negated_abs(overrides)})
    assert otp.verify(data, otp.convert(data, host=host), host=host).ok is overrides


def accumulating_handler(loses_state: bool = False) -> Handler:
    """Return a handler that accumulates its input in a variable tensor."""

    def kernel(op: Any, x: Array, total: Array) -> Array:
        total += x
        return total

    @handler("CUSTOM.vendor.Total", max_version=1, layout=Terminate(), kernel=kernel)
    def lower(ctx: Context, x: Value, total: Value) -> Value:
        new_total = ctx.ops.Add(x, total)
        ctx.assign(1, total if loses_state else new_total)
        return new_total

    return lower


@pytest.mark.parametrize("loses_state", [False, True])
def test_state_changed_by_a_kernel_reaches_the_next_run(loses_state: bool) -> None:
    net = Net()
    x = net.call("NEG", [net.input(tensor(2, 3))], tensor(2, 3))
    state = net.graph.tensor("state", (2, 3), variable=True)
    y = net.result(tensor(2, 3))
    net.graph.operator("CUSTOM.vendor.Total", [x, state], [y])
    net.output(net.call("NEG", [y], tensor(2, 3)))
    data, host = net.build(), Host(packs="builtin", handlers={"CUSTOM.vendor.Total": accumulating_handler(loses_state)})
    assert otp.verify(data, otp.convert(data, host=host), host=host).ok is not loses_state


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (
            lambda op, x: x[:, :2],
            r"output 0 of the kernel has shape \[1, 2, 7, 3\], but '.*' has \[1, 5, 7, 3\] in the model",
        ),
        (lambda op, x: (x, x), "it returned 2 arrays, but the operator has 1 output"),
        (lambda op, x: x / None, "TypeError: unsupported operand"),
    ],
)
def test_failing_kernel_error_names_its_pack(kernel: Any, text: str) -> None:
    result = verify_model(network(), shrink_handler(kernel=kernel))
    assert result.verdict == "inconclusive"
    assert re.search(rf"kernel of {CODE} failed: {text}", result.text)


def test_bias_scale_is_the_product_of_operand_scales() -> None:
    def product(op: Any, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    @handler(
        "CUSTOM.Dense", max_version=1, layout=Attribute(), quantization=Dequantized(bias={2: (0, 1)}), kernel=product
    )
    def dense(ctx: Context, x: Value, w: Value, b: Value) -> Value:
        return ctx.ops.Gemm(x, w, b, transB=1)

    net = Net()
    x = net.add_operand(tensor(3, 5, dtype="int8"))
    w = net.add_operand(constant(random_array(7, 5, dtype="int8"), "int8", 0.02))
    b = net.add_operand(constant(random_array(7, dtype="int32"), "int32", 123.0))
    y = net.result(tensor(3, 7, dtype="int8").rescale(9.0))
    net.graph.operator("CUSTOM.Dense", [x, w, b], [y])
    net.output(y)
    host = Host(handlers={"CUSTOM.Dense": dense})
    result = otp.verify(net.build(), otp.convert(net.build(), host=host), host=host)
    assert result.ok, result.text


# --- states and the page ----------------------------------------------------------------------


def stateful_network(*, cell: bool) -> Net:
    """Return a network whose state is a ``cell``'s variable tensor, or a resource."""
    net = Net()
    x = net.input(tensor(2, 5))
    y = net.result(tensor(2, 5))
    net.graph.operator(CODE, [x], [y], custom_options={"by": 0.25})
    if cell:
        state = net.graph.tensor("state", (2, 4 * 3), "float32", variable=True)
        filtered = net.result(tensor(2, 4))
        weights = [net.add_operand(constant(random_array(*shape))) for shape in ((4, 5), (4, 3))]
        net.graph.operator("SVDF", [y, *weights, None, state], [filtered], {"rank": 1})
        net.output(y, filtered)
        return net
    handle = net.graph.tensor("handle", (), "resource")
    net.graph.operator("VAR_HANDLE", [], [handle], {"shared_name": "sum"})
    net.graph.operator("ASSIGN_VARIABLE", [handle, y], [])
    state_value = net.result(tensor(2, 5))
    net.graph.operator("READ_VARIABLE", [handle], [state_value])
    net.output(state_value)
    return net


def test_cell_keeps_its_state_in_the_litert_submodel() -> None:
    result = verify_model(stateful_network(cell=True).build(), shrink_handler(), runs=4)
    assert result.ok, result.text
    assert (result.runs, len(result.comparisons)) == (4, 2)
    assert not verify_model(stateful_network(cell=True).build(), shrink_handler(by=0.5), runs=4).ok


def test_names_a_state_shared_by_submodels() -> None:
    result = verify_model(stateful_network(cell=False).build(), shrink_handler())
    assert result.verdict == "inconclusive"
    assert "so the model runs in parts; the parts cannot share state 'handle'" in result.text


def test_page_compares_with_pack_kernels_and_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(handlers={CODE: shrink_handler()})
    monkeypatch.setattr("onnx_tflite_plugin.page.measurements.Host", lambda: host)
    page_errors = measure_conversion(network(), otp.convert(network(), host=host).proto, 3)
    assert not page_errors.differs
    assert page_errors.errors
    assert any(
        f"{CODE} (1): run with the reference kernels of their handlers; LiteRT runs all other operators" in note
        for note in page_errors.notes
    )
    monkeypatch.setattr("onnx_tflite_plugin.page.measurements.Host", Host)
    page_errors = measure_conversion(network(), otp.convert(network(), host=host).proto, 3)
    assert page_errors.verdict.startswith(f"inconclusive: LiteRT has no kernel for {CODE} (1)")


def test_splits_constant_operators_only_on_request() -> None:
    """Operator 0 has only constants, 1 reads an input, 2 has no operands, 3 lacks a kernel.

    The result of operator 4 is unused.
    """
    stored, x = slot(0, values=np.ones(6, np.float32)), slot(1)
    operators = [
        operator([stored, None], [slot(2)], index=0),
        operator([slot(2), x], [slot(3)], index=1),
        operator([], [slot(4)], index=2),
        operator([slot(2), slot(3), slot(4), None], [slot(5)], index=3),
        operator([stored], [slot(6)], index=4),
    ]
    assert [op.index for op in _constant_operators(operators, {3})] == [0]
    assert _constant_operators(operators, {0, 3}) == []
    assert _constant_operators(operators, set()) == []


def tensors_after_run(net: Net, array: Array) -> tuple[ModelPair, dict[int, Array]]:
    """Run LiteRT with the kernel of a pack; return the pair and all tensors."""
    data, host = net.build(), Host(handlers={CODE: shrink_handler()})
    pair = ModelPair(data, otp.convert(data, host=host).proto, None, None, lambda stage: None)
    pair.assign_substitutes(host)
    session = pair.trial.litert_session("builtin", preserve=True)
    session.run([array])
    return pair, session.tensors()


def test_tensor_is_read_from_the_submodel_that_computes_it() -> None:
    """The submodels before and after an operator keep only their own tensors."""
    net = Net()
    x = net.call("NEG", [net.input(tensor(5, 7))], tensor(5, 7))
    y = net.result(tensor(5, 7))
    net.graph.operator(CODE, [x], [y], custom_options={"by": 0.25})
    net.output(net.call("ABS", [y], tensor(5, 7)))
    array = random_array(5, 7)
    pair, tensors = tensors_after_run(net, array)
    np.testing.assert_array_equal(tensors[1], -array)
    np.testing.assert_array_equal(tensors[2], shrink_array(pair.entry.subgraph.operators[1], -array))
    np.testing.assert_array_equal(tensors[3], np.abs(tensors[2]))


def test_submodel_keeps_inner_tensors_on_request() -> None:
    """LiteRT reuses the memory of results; four operators precede the missing one."""
    net = Net()
    x = net.input(tensor(5, 7))
    for code in ("NEG", "EXP", "SQRT", "SIN"):
        x = net.call(code, [x], tensor(5, 7))
    y = net.result(tensor(5, 7))
    net.graph.operator(CODE, [x], [y], custom_options={"by": 0.25})
    net.output(y)
    array = random_array(5, 7)
    _, tensors = tensors_after_run(net, array)
    expected = -array
    for index, function in enumerate((np.positive, np.exp, np.sqrt, np.sin), 1):
        expected = function(expected)
        np.testing.assert_allclose(tensors[index], expected, rtol=1e-5)


def test_compares_pack_kernels_per_operator() -> None:
    """The output is always 1, so only the comparison per operator finds the error."""
    net = Net()
    x = net.call("NEG", [net.input(tensor(5, 7))], tensor(5, 7))
    y = net.result(tensor(5, 7))
    net.graph.operator(CODE, [x], [y], custom_options={"by": 0.25})
    tiny_values = net.call("MUL", [y, constant(np.float32(1e-3))], tensor(5, 7))
    large_values = net.call("ADD", [tiny_values, constant(np.float32(30.0))], tensor(5, 7))
    net.output(net.call("LOGISTIC", [large_values], tensor(5, 7)))
    assert verify_model(net.build(), shrink_handler()).ok
    wrong = verify_model(net.build(), shrink_handler(by=0.5))
    assert [comparison.ok for comparison in wrong.comparisons] == [True, False]
    assert f"operator 1 {CODE}" in wrong.text


def dynamic_range_after_shrink() -> bytes:
    """Return the operator before a layer with int8 weights and large rounding errors."""
    model = ModelBuilder()
    g = model.main
    x, shrunk, y = g.input("x", (1, 1009)), g.tensor("shrunk", (1, 1009)), g.tensor("y", (1, 7))
    weights = np.random.default_rng(7).choice(np.array([-127, 127], np.int8), (7, 1009))
    g.operator(CODE, [x], [shrunk], custom_options={"by": 0.25})
    g.operator("FULLY_CONNECTED", [shrunk, g.constant("w", weights, quantization=quant(0.01, 0))], [y])
    g.output(y)
    return model.build()


def test_unrounded_activations_are_no_error_beside_a_substituted_operator() -> None:
    host = Host(handlers={CODE: shrink_handler(0.25)})
    data = dynamic_range_after_shrink()
    conversion = otp.convert(data, host=host, weights="fold")
    assert otp.verify(data, conversion, host=host).verdict == "agrees"


def test_wrong_weights_are_an_error_beside_a_substituted_operator() -> None:
    host = Host(handlers={CODE: shrink_handler(0.25)})
    data = dynamic_range_after_shrink()
    conversion = otp.convert(data, host=host, weights="fold")
    (weights,) = (tensor for tensor in conversion.proto.graph.initializer if len(tensor.dims) == 2)
    array = numpy_helper.to_array(weights) * np.float32(1.05)
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    assert otp.verify(data, conversion.proto, host=host).verdict == "differs"
