"""Fused activations: operators get the activation that their kernels apply."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from conformance.models import Net, constant, random_array, tensor
from conformance.weights import weight
from onnx_tflite_plugin.api import (
    ActivationKernel,
    Context,
    FusedActivation,
    Handler,
    Instance,
    Refusal,
    Value,
    activation_bounds,
    builtin,
    effective_activation,
)
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.options import _enum_names
from onnx_tflite_plugin.targets import TARGETS

SCHEMA = tuple(_enum_names("ActivationFunctionType").values())
TARGET = TARGETS["onnxruntime"]
OPTION = "fused_activation_function"


def single_operator_model(code: str, activation: str, dtype: str = "float32", weights: str = "") -> bytes:
    """Return a model of one binary operator or one dense layer."""
    model = Net()
    operands = [tensor(3, 7, dtype=dtype), tensor(3, 7, dtype=dtype)]
    if weights:
        operands = [tensor(3, 7, dtype=dtype), weight((7, 7), weights), constant(random_array(7))]
    model.output(model.call(code, operands, tensor(3, 7, dtype=dtype), **{OPTION: activation}))
    return model.build()


def bind_model(data: bytes, **handlers: Handler) -> str:
    """Return the activation with which the only operator of a file is bound."""
    (operator,) = Host(packs="builtin", handlers=handlers).bind(read(data), TARGET, 21).operators()
    return str(operator.op.options[OPTION])


@pytest.mark.parametrize(
    ("kernel", "name"), list(product(ActivationKernel, SCHEMA)), ids=lambda x: getattr(x, "name", x)
)
def test_every_kernel_family_applies_or_refuses_every_activation(kernel: ActivationKernel, name: str) -> None:
    effective = effective_name(kernel, name)
    if effective in SCHEMA:
        assert effective_name(kernel, effective) == effective, "the effective activation is applied unchanged"
    else:
        reason, _, remedy = effective.partition(";")
        assert name in reason
        assert remedy


def effective_name(kernel: ActivationKernel, name: str) -> str:
    """Return the activation that is applied, or the reason of the refusal."""
    try:
        return effective_activation(kernel, name)
    except Refusal as refusal:
        return str(refusal)


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(Refusal, match="the fused activation SIGNUM is unknown"):
        effective_activation(ActivationKernel.CLAMPED, "SIGNUM")


def test_only_clamping_activations_have_bounds() -> None:
    assert {name: activation_bounds(name) for name in SCHEMA} == {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU_N1_TO_1": (-1.0, 1.0),
        "RELU6": (0.0, 6.0),
        "TANH": None,
        "SIGN_BIT": None,
    }


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (single_operator_model("ADD", "TANH"), "NONE"),
        (single_operator_model("ADD", "RELU6"), "RELU6"),
        (single_operator_model("ADD", "SIGN_BIT", "int8"), "NONE"),
        (single_operator_model("FULLY_CONNECTED", "TANH", weights="int8"), "TANH"),
        (single_operator_model("FULLY_CONNECTED", "RELU", weights="float32"), "RELU"),
    ],
    ids=["ADD TANH", "ADD RELU6", "int8 ADD SIGN_BIT", "hybrid TANH", "float RELU"],
)
def test_operator_is_bound_with_the_effective_activation(data: bytes, expected: str) -> None:
    assert bind_model(data) == expected


def test_pack_handler_may_choose_the_activation_kernel() -> None:
    def kernels(at: Instance) -> ActivationKernel:
        return ActivationKernel.ELEMENTWISE if at.op[0].dtype == "float32" else ActivationKernel.CLAMPED

    add = replace(builtin("ADD"), activation=FusedActivation(kernels))
    assert bind_model(single_operator_model("ADD", "TANH"), ADD=add) == "TANH"
    assert bind_model(single_operator_model("ADD", "TANH", "int8"), ADD=add) == "NONE"


def test_activation_returned_by_a_function_is_applied() -> None:
    add = replace(builtin("ADD"), activation=lambda at: "TANH")
    actual, expected = compute(single_operator_model("ADD", "RELU"), ADD=add)
    np.testing.assert_allclose(actual, np.tanh(expected), atol=1e-6)


@pytest.mark.parametrize("name", ["TANH", "SIGN_BIT"])
def test_result_is_quantized_after_its_activation(name: str) -> None:
    applied = FusedActivation(ActivationKernel.ELEMENTWISE)
    model = Net()
    x = tensor(3, 7, dtype="int8", scale=0.02, zero_point=3)
    model.output(model.call("ADD", [x, x], tensor(3, 7, dtype="int8", scale=0.01, zero_point=-7), **{OPTION: name}))
    inputs = {key: random_array(3, 7, dtype="int8", seed=key) for key in ("x0", "x1")}
    conversion = convert(model.build(), host=Host(packs="builtin", handlers={"ADD": activate(applied)}))
    (actual,) = Session(conversion).run(inputs).values()
    sums = sum((values.astype(np.float64) - 3) * 0.02 for values in inputs.values())
    real = np.tanh(sums) if name == "TANH" else sums < 0
    assert np.abs(actual - np.clip(np.round(real / 0.01) - 7, -128, 127)).max() <= 1


def activate(fused: FusedActivation) -> Handler:
    return replace(builtin("ADD"), activation=fused)


def test_activation_declared_inside_is_not_applied_twice() -> None:
    def add_activated(ctx: Context, x: Value, y: Value) -> Any:
        return ctx.ops.Add(ctx.activate(x), ctx.activate(y))

    inside = FusedActivation(ActivationKernel.ELEMENTWISE, in_lowering=True)
    add = replace(activate(inside), lower=add_activated)
    data = single_operator_model("ADD", "SIGN_BIT")
    inputs = {"x0": random_array(3, 7, seed="x"), "x1": random_array(3, 7, seed="y")}
    conversion = convert(data, host=Host(packs="builtin", handlers={"ADD": add}))
    (actual,) = Session(conversion).run(inputs).values()
    np.testing.assert_array_equal(actual, sum((values < 0).astype(np.float32) for values in inputs.values()))


def test_refused_activation_declines_the_operator() -> None:
    refuses = activate(FusedActivation(ActivationKernel.UNFUSED))
    with pytest.raises(ConversionError, match="declined by inline: LiteRT refuses a fused RELU"):
        convert(single_operator_model("ADD", "RELU"), host=Host(offers=[], handlers={"ADD": refuses}))
    assert bind_model(single_operator_model("ADD", "NONE"), ADD=refuses) == "NONE"


def compute(data: bytes, **handlers: Handler) -> tuple[Any, Any]:
    """Return the results of a conversion with these handlers, and the input sum."""
    conversion = convert(data, host=Host(packs="builtin", handlers=handlers))
    inputs = {"x0": random_array(3, 7, seed="x"), "x1": random_array(3, 7, seed="y")}
    (actual,) = Session(conversion).run(inputs).values()
    return actual, inputs["x0"] + inputs["x1"]
