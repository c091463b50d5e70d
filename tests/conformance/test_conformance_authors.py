"""Tests of the conformance kit as pack authors use it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.case import Case, Tolerance
from conformance.models import Net, between_convolutions, constant, in_isolation, net, tensor, unary
from conformance.packs import select_suite
from conformance.runner import CaseResult, run_case
from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Decline,
    Dequantized,
    Handler,
    Integer,
    Terminate,
    Transparent,
    Value,
    handler,
    out,
)
from onnx_tflite_plugin.host import BUILTIN, Host
from tests.helpers.pack_files import install

CODE = "CUSTOM.Flip"


def flip_reference(op: Any, x: Any) -> Any:
    return np.flip(x, op.options.axis)


def flip_handler(layout: Any = Attribute(), lower: Any = None, **declarations: Any) -> Handler:  # noqa: B008
    def remap(ctx: Context, x: Value) -> Value:
        return reverse_along(ctx, x, ctx.axis(ctx.options.axis))

    return handler(CODE, max_version=1, layout=layout, kernel=flip_reference, **declarations)(lower or remap)


def reverse_along(ctx: Context, x: Value, axis: int) -> Value:
    return ctx.ops.Slice(x, [-1], [-(1 << 31)], [axis], [-1])


def ignore_layout(ctx: Context, x: Value) -> Value:
    """Lower with the file's axis, although the layout is permuted."""
    return reverse_along(ctx, x, ctx.options.axis)


def run_lowering(case: Case, op_handler: Handler) -> CaseResult:
    return run_case(case, Host(handlers={CODE: op_handler}))


@pytest.mark.parametrize("place", [in_isolation, between_convolutions])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_cases_use_custom_options_and_the_declared_kernel(place: Any, axis: int) -> None:
    result = run_lowering(
        place(CODE, "x", [tensor(1, 5, 7, 3)], tensor(1, 5, 7, 3), custom_options={"axis": axis}), flip_handler()
    )
    assert result.status == "passed", result.text
    case = unary(CODE, "x", tensor(1, 5, 7, 3), place=place, custom_options={"axis": axis})
    assert run_lowering(case, flip_handler()).status == "passed"


def test_kernel_of_a_case_is_compared_with_the_lowering() -> None:
    without_kernel = handler(CODE, max_version=1, layout=Attribute())(flip_handler().lower)
    case = {"custom_options": {"axis": 1}}
    result = run_lowering(unary(CODE, "x", tensor(1, 5, 7, 3), **case), without_kernel)
    assert (
        f"the case cannot be run: handler {__name__}:remap of inline declares no reference kernel; write the operator in NumPy"
        in result.text
    )
    assert (
        run_lowering(unary(CODE, "x", tensor(1, 5, 7, 3), kernel=flip_reference, **case), without_kernel).status
        == "passed"
    )
    assert (
        run_lowering(unary(CODE, "x", tensor(1, 5, 7, 3), kernel=lambda op, x: x, **case), without_kernel).status
        == "failed"
    )


def test_raw_options_reach_handler_and_kernel() -> None:
    def add_option_bytes(op: Any, x: Any) -> Any:
        return x + np.frombuffer(op.custom_options, "<f4")[0]

    @handler(CODE, max_version=1, layout=Transparent(), kernel=add_option_bytes)
    def shift(ctx: Context, x: Value) -> Value:
        assert not ctx.options
        return ctx.ops.Add(x, np.frombuffer(ctx.op.custom_options, "<f4").reshape(()))

    case = unary(CODE, "x", tensor(5, 7), custom_options=np.float32(2.5).tobytes())
    assert run_lowering(case, shift).status == "passed"


@pytest.mark.parametrize(
    ("layout", "suggestion"),
    [
        (Transparent(), "declare Attribute() and use ctx.axis"),
        (Attribute(), "remap axis numbers, and lists with one entry per axis (ctx.axis"),
    ],
)
def test_failure_names_the_wrong_declaration(layout: Any, suggestion: str) -> None:
    op_handler = flip_handler(layout, ignore_layout, axes="n h w c -> n h w c")
    result = run_lowering(
        unary(CODE, "x", tensor(1, 5, 7, 3), place=between_convolutions, custom_options={"axis": 1}), op_handler
    )
    assert result.status == "failed"
    assert f"layout={type(layout).__name__} is wrong: the result differs in layouts other" in result.reasons[0]
    assert suggestion in result.text


def double(layout: Any, **declarations: Any) -> Any:
    """Return a handler that doubles axis 1 of the file.

    ``layout``: the declared layout. Only Terminate() is correct.
    """

    @handler(
        CODE, max_version=1, layout=layout, quantization=Dequantized(),
        kernel=lambda op, x: np.concatenate([x, x], 1), **declarations,
    )  # fmt: skip
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Concat(x, x, axis=1)

    return lower


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_failed_conversion_names_the_wrong_declaration(dtype: str) -> None:
    x, y = tensor(2, 5, 7, 3, dtype=dtype), tensor(2, 10, 7, 3, dtype=dtype)
    case = between_convolutions(CODE, dtype, [x], y, custom_options={"axis": 1})
    result = run_lowering(case, double(Transparent()))
    assert f"handler {__name__}:lower failed: the emitted value has size" in result.text
    assert "it declares layout=Transparent(), quantization=Dequantized()" in result.text
    assert "layout=Transparent is wrong: the operator does not convert in layouts other than the file's;" in result.text
    assert "report" not in result.text
    assert run_lowering(replace(case, max_transposes=None), double(Terminate())).ok


@pytest.mark.parametrize(
    ("declarations", "reason"),
    [
        ({"types": "float32"},
         f"declined by inline: no kernel for dtypes int8; {__name__}:lower declares float32 (if the operator computes these "
         f"dtypes, add them to `types` of {__name__}:lower)"),
        ({"accepts": lambda at: Decline("it is too long")}, "declined by inline: it is too long"),
        ({"accepts": lambda at: 1 / 0}, f"accepts of handler {__name__}:lower failed: ZeroDivisionError"),
        (None, "no installed pack has a handler for it; add an entry point CUSTOM.Flip = "),
    ],
)  # fmt: skip
def test_missing_handler_does_not_ask_for_a_reference_kernel(declarations: Any, reason: str) -> None:
    x, y = tensor(2, 5, dtype="int8"), tensor(2, 10, dtype="int8")
    handlers = {} if declarations is None else {CODE: double(Terminate(), **declarations)}
    result = run_case(in_isolation(CODE, "x", [x], y, custom_options={"axis": 1}), Host(handlers=handlers))
    assert f"the case cannot be run: {reason}" in result.text
    assert f"; LiteRT has no kernel for {CODE} either" in result.text
    assert "kernel=" not in result.text


def test_wrong_lowering_is_not_attributed_to_the_layout() -> None:
    result = run_lowering(
        unary(CODE, "x", tensor(1, 5, 7, 3), custom_options={"axis": 1}),
        flip_handler(lower=lambda ctx, x: ctx.ops.Neg(x)),
    )
    assert result.status == "failed"
    assert "is wrong" not in result.text


@pytest.mark.parametrize("is_correct", [True, False])
def test_dynamic_dimensions_are_tested_at_three_sizes(is_correct: bool) -> None:
    def lower(ctx: Context, x: Value) -> Value:
        relu = ctx.ops.Relu(x)
        return relu if is_correct else ctx.ops.Reshape(relu, [1, 5, 7, 3])

    op_handler = handler(CODE, max_version=1, layout=Transparent(), kernel=lambda op, x: np.maximum(x, 0))(lower)
    result = run_lowering(unary(CODE, "dynamic", tensor(None, 5, 7, 3)), op_handler)
    assert result.ok == is_correct, result.text


def test_case_requires_nodes() -> None:
    def case(nodes: Any) -> Case:
        return unary(CODE, "x", tensor(5, 7), custom_options={"axis": 1}, nodes=nodes)

    assert run_lowering(case(["Slice"]), flip_handler()).ok
    assert run_lowering(case({"Slice": 1}), flip_handler()).ok
    assert "expected 2 Slice nodes, found 1" in run_lowering(case({"Slice": 2}), flip_handler()).text
    assert (
        "expected at least 1 ReverseSequence nodes, found 0; all nodes: Slice (1)"
        in run_lowering(case(["ReverseSequence"]), flip_handler()).text
    )
    with pytest.raises(TypeError, match="collections of names"):
        case("Slice")


@pytest.mark.parametrize(("slope", "message"), [(1 / 6, ""), (0.2, "the fusion HARD_SWISH did not apply")])
def test_case_requires_fusions(slope: float, message: str) -> None:
    def build(model: Net) -> None:
        x, like = model.input(tensor(5, 7)), tensor(5, 7)
        ramp = model.call("RELU6", [model.call("ADD", [x, constant(3.0)], like)], like)
        model.output(model.call("MUL", [model.call("MUL", [x, ramp], like), constant(slope)], like))

    result = run_case(net("MUL", "swish", build, fusions=("HARD_SWISH",)), Host(packs="builtin"))
    assert result.ok == (not message), result.text
    assert message in result.text


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_kernel_gets_floats_if_the_handler_dequantizes(dtype: str) -> None:
    dtypes_seen: list[str] = []

    def halve(op: Any, x: Any) -> Any:
        dtypes_seen.append(x.dtype.name)
        return x / 2

    op_handler = handler(CODE, max_version=1, layout=Transparent(), quantization=Dequantized(), kernel=halve)(
        lambda ctx, x: ctx.ops.Div(x, 2.0)
    )
    assert run_lowering(unary(CODE, "x", tensor(2, 5, 7, 3, dtype=dtype)), op_handler).ok
    assert {*dtypes_seen} == {"float32"}


def scaled(lowering_rounding: str, kernel_rounding: Any) -> Handler:
    """Return a handler that multiplies by 0.7 in integers, with the named rounding.

    The zero point is -5.
    """

    def kernel(op: Any, x: Any) -> Any:
        return np.asarray(kernel_rounding((x + np.float32(5)) * np.float32(0.7)) - 5).astype(x.dtype)

    @handler(CODE, max_version=1, layout=Transparent(), quantization=Integer(), kernel=kernel)
    def lower(ctx: Context, x: Value) -> Value:
        zero = float(ctx.quantization(0).zero_point[0])
        y = ctx.ops.Mul(ctx.ops.Sub(ctx.ops.Cast(x, to="float32"), zero), 0.7)
        if lowering_rounding == "toward zero":
            y = ctx.ops.Cast(ctx.ops.Cast(y, to="int32"), to="float32")
        else:
            y = {"down": ctx.ops.Floor, "to nearest": ctx.ops.Round}[lowering_rounding](y)
        return ctx.ops.Cast(ctx.ops.Add(y, zero), to=ctx.dtype(out(0)))

    return lower


@pytest.mark.parametrize("place", [in_isolation, between_convolutions])
@pytest.mark.parametrize(
    ("lowering_rounding", "kernel_rounding", "problem"),
    [
        ("to nearest", np.rint, ""),
        ("down", np.floor, ""),
        ("toward zero", np.trunc, ""),
        ("to nearest", lambda x: np.floor(x + np.float32(0.5)), ""),
        ("down", np.rint, r"-0\.[3-6]\d steps for values below .*, -0\.[3-6]\d steps for values above"),
        ("toward zero", np.rint, r"\+0\.[3-6]\d steps for values below .*, -0\.[3-6]\d steps for values above"),
        ("to nearest", np.floor, r"\+0\.[3-6]\d steps for values below .*, \+0\.[3-6]\d steps for values above"),
        ("to nearest", np.trunc, r"-0\.[3-6]\d steps for values below .*, \+0\.[3-6]\d steps for values above"),
    ],
)
def test_truncation_in_place_of_rounding_fails_a_case(
    place: Any, lowering_rounding: str, kernel_rounding: Any, problem: str
) -> None:
    case = unary(CODE, "int8", tensor(2, 5, 7, 3, dtype="int8"), place=place)
    result = run_lowering(case, scaled(lowering_rounding, kernel_rounding))
    assert result.ok == (not problem), result.text
    assert re.search(problem, result.text)
    assert "correct the lowering, the reference kernel or the declared quantization=" in result.text or not problem


def test_reference_that_truncates_fails_a_case() -> None:
    case = unary(
        CODE, "int8", tensor(2, 5, 7, 3, dtype="int8"),
        reference=lambda arrays: [(np.trunc((arrays[0] + np.float32(5)) * np.float32(0.7)) - 5).astype(np.int8)],
    )  # fmt: skip
    assert "toward zero" in run_lowering(case, scaled("to nearest", np.rint)).text
    assert run_lowering(case, scaled("toward zero", np.rint)).ok


def test_case_tolerance_allows_different_rounding() -> None:
    case = unary(
        CODE, "int8", tensor(2, 5, 7, 3, dtype="int8"), tolerance=Tolerance(), tolerance_reason="ONNX cannot truncate"
    )
    assert run_lowering(case, scaled("down", np.rint)).ok


def test_pack_with_only_cases_tests_built_in_handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "[onnx_tflite_plugin.cases]\nonly = only_cases:cases\n"
    install(tmp_path, "only-cases", "only_cases", "cases = []\n", entries)
    install(tmp_path, "other-ops", "other_ops", "", "[onnx_tflite_plugin.handlers]\nCUSTOM.Other = other_ops:other\n")
    monkeypatch.syspath_prepend(tmp_path)
    pack_suite = select_suite("Only_Cases")
    assert {offer.pack for offer in pack_suite.host.offers} == {BUILTIN}
    assert {offer.pack for offer in select_suite("other.ops").host.offers} == {BUILTIN, "other-ops"}


@pytest.mark.parametrize(
    ("keyword", "remedy"),
    [
        (
            "quantisation",
            r"give scale and zero point to a tensor, as in tensor\(2, 3, dtype='int8', scale=0.1, zero_point=5\)",
        ),
        ("custom_option", "did you mean 'custom_options'?"),
        ("node", "did you mean 'nodes'?"),
    ],
)
def test_unknown_keyword_of_a_case_has_a_remedy(keyword: str, remedy: str) -> None:
    with pytest.raises(TypeError, match=f"the case 'sample' takes no keyword {keyword!r}; {remedy}"):
        unary(CODE, "sample", tensor(2, 3), **{keyword: 1})
