"""Explanations of a failing case: a wrong declaration, else the largest error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.command import run
from conformance.models import PLACEMENTS, Net, between_convolutions, net, tensor, unary
from conformance.reported_causes import ReportedCauses
from conformance.runner import run_case
from onnx_tflite_plugin.api import (
    Array,
    Call,
    Dequantized,
    Handler,
    Instance,
    Integer,
    Lookup,
    SameScale,
    Transparent,
    fusion,
    handler,
    operands,
    out,
)
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, Offer, discover

CODE = "CUSTOM.Acme"


def host(lower: Any, kernel: Any, **declared: Any) -> Host:
    declarations = {"layout": Transparent(), "quantization": Dequantized(), **declared}
    failing_handler: Handler = handler(CODE, max_version=1, kernel=kernel, **declarations)(lower)
    return Host(handlers={CODE: failing_handler}, prefer=["inline"])


def cumulate(op: Any, x: Array) -> Array:
    return np.cumsum(x.reshape(x.shape[0], -1), axis=1, dtype=np.float32).reshape(x.shape)


def test_wrong_layout_is_explained_once_and_names_terminate() -> None:
    def lower(ctx: Any, x: Any) -> Any:
        return ctx.ops.Reshape(ctx.ops.CumSum(ctx.ops.Flatten(x, axis=1), 1), list(x.shape))

    wrong_host = host(lower, cumulate)
    first, second = (
        run_case(unary(CODE, "float32", tensor(2, 5, 7, 3), place=place), wrong_host) for place in PLACEMENTS
    )
    assert "layout=Transparent is wrong" in first.reasons[0]
    assert "depends on the order of the file's elements, declare Terminate()" in first.reasons[0]
    reported = ReportedCauses()
    assert reported.record(first) == ""
    assert reported.record(second) == first.case.id


def test_difference_names_the_worst_element_and_both_values() -> None:
    wrong_host = host(lambda ctx, x: ctx.ops.Abs(x), lambda op, x: np.square(x))
    reason = run_case(unary(CODE, "float32", tensor(2, 3)), wrong_host).reasons[0]
    assert "in the ONNX model and" in reason
    assert "the lowering or the reference kernel may be wrong" in reason


def test_wrong_result_of_a_fusion_names_the_fusion() -> None:
    (x,) = operands("x")
    declare = fusion("TWICE", pattern=Call("ABS", Call("ABS", x)), inputs=[x], layout=Transparent())
    entry: Any = SimpleNamespace(name="it", value="m:it", load=lambda: declare(lambda ctx, x: ctx.ops.Neg(x)))
    installed = Host(offers=[*discover(), Offer("TWICE", "a-pack", FUSIONS, entry)])

    def build(model: Net) -> None:
        like = tensor(2, 3)
        model.output(model.call("ABS", [model.call("ABS", [model.input(like)], like)], like))

    result = run_case(net("ABS", "twice", build, fusions=["TWICE"]), installed)
    assert "; without it the case passes, so its lowering is wrong (" in result.text


@pytest.mark.parametrize(("behavior", "hinted"), [(Integer(), True), (Dequantized(), False)])
def test_kernel_for_real_numbers_is_explained_with_integer(behavior: Any, hinted: bool) -> None:
    def lower(ctx: Any, x: Any) -> Any:
        if not ctx.uses_integers:
            return ctx.ops.Mul(x, 0.5)
        return ctx.ops.Cast(ctx.ops.Mul(ctx.ops.Cast(x, to="float32"), 0.5), to="int8")

    wrong = host(lower, lambda op, x: np.asarray(np.tanh(x / 8)).astype(x.dtype), quantization=behavior)
    reasons = "\n".join(run_case(unary(CODE, "int8", tensor(2, 5, dtype="int8")), wrong).reasons)
    assert "elements differ" in reasons
    assert ("with Integer() the reference kernel gets quantized values" in reasons) == hinted


def table(at: Instance) -> Array:
    """Return the table of the negation, from the lowest value to the highest."""
    scale = at.op[0].quantization.scale[0] / at.op[out(0)].quantization.scale[0]
    real = (np.arange(-128, 128) - at.op[0].quantization.zero_point[0]) * -scale
    return np.clip(np.round(real) + at.op[out(0)].quantization.zero_point[0], -128, 127).astype(np.int8)


@pytest.mark.parametrize(("turn", "status"), [(False, "failed"), (True, "passed")])
def test_table_in_the_wrong_order_is_explained(turn: bool, status: str) -> None:
    def ordered(at: Instance) -> Array:
        return np.roll(table(at), 128) if turn else table(at)

    negated = host(lambda ctx, x: ctx.ops.Neg(x), lambda op, x: -x, quantization=Lookup(ordered, dtypes=("int8",)))
    result = run_case(unary(CODE, "int8", tensor(2, 5, 7, dtype="int8")), negated)
    assert result.status == status
    assert any("the table of Lookup is in the wrong order" in reason for reason in result.reasons) is not turn


@pytest.mark.parametrize("place", PLACEMENTS)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_wrong_table_is_named_instead_of_the_lowering(place: Any, is_ordered: bool) -> None:
    def wrong(at: Instance) -> Array:
        return np.roll(table(at), 128) // 2 if is_ordered else table(at)

    negated = host(lambda ctx, x: ctx.ops.Neg(x), lambda op, x: -x, quantization=Lookup(wrong, dtypes=("int8",)))
    text = run_case(unary(CODE, "int8", tensor(2, 5, 7, 3, dtype="int8"), place=place), negated).text
    assert "the table of Lookup" in text
    assert "the lowering" not in text
    assert is_ordered or "results of 0 and positive values" in text


def test_quantization_is_not_named_for_float_operators() -> None:
    wrong = host(lambda ctx, x: ctx.ops.Mul(x, 2.0), lambda op, x: x)
    reason = run_case(unary(CODE, "float32", tensor(2, 5, 7)), wrong).reasons[0]
    assert reason.endswith("; correct the lowering or the reference kernel")


def test_kernel_set_of_litert_is_named_as_such() -> None:
    wrong: Handler = handler("ABS", max_version=5, layout=Transparent())(lambda ctx, x: ctx.ops.Mul(x, x))
    text = run_case(unary("ABS", "float32", tensor(2, 5, 7)), Host(handlers={"ABS": wrong})).text
    assert " in LiteRT (" in text
    assert " kernels); the lowering may be wrong" in text


@pytest.mark.parametrize(
    ("lower", "dtype", "declared", "text"),
    [
        (lambda ctx, x: ctx.ops.Mul(x, 2.5), "int8", {"quantization": SameScale()}, "Dequantized() would pass floats"),
        (lambda ctx, x: ctx.ops.Mul(x, np.float64(2.5)), "float32", {}, "a NumPy number or array keeps its dtype"),
    ],
)
def test_operands_of_different_dtypes_have_a_remedy(lower: Any, dtype: str, declared: Any, text: str) -> None:
    result = run_case(unary(CODE, dtype, tensor(2, 3, dtype=dtype)), host(lower, lambda op, x: x, **declared))
    assert text in result.reasons[0]


def test_case_between_convolutions_needs_an_image() -> None:
    with pytest.raises(ValueError, match="no operand or result is an image"):
        unary(CODE, "rank 3", tensor(2, 5, 7), place=between_convolutions)


def test_unknown_keyword_of_a_case_suggests_the_nearest() -> None:
    with pytest.raises(TypeError, match="takes no keyword 'node'; did you mean 'nodes'"):
        unary(CODE, "rank 3", tensor(2, 5, 7), node=["Abs"])


def test_unknown_operator_to_try_suggests_the_nearest() -> None:
    with pytest.raises(UsageProblem, match="no case for SOFTMX; did you mean 'SOFTMAX'"):
        run(ops=["SOFTMX"])
