"""Causes that a failing case names: arithmetic, positions, or a fusion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.differences import describe_difference
from conformance.models import Net, constant, net, tensor, unary
from conformance.reported_causes import ReportedCauses
from conformance.runner import run_case
from onnx_tflite_plugin.api import Array, Call, Implicit, Integer, Match, Transparent, fusion, handler, operands, out
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, Offer, discover

CODE = "CUSTOM.Acme"


# --- quantized arithmetic ---------------------------------------------------------------------


def kernel(op: Any, x: Array) -> Array:
    """Return half of the value; integers are rounded half up."""
    if op[0].quantization is None:
        return np.asarray(x / 2)
    before, after = (op[slot].quantization.zero_point[0] for slot in (0, out(0)))
    return np.asarray(((x.astype(np.int32) - before + 1) >> 1) + after).astype(x.dtype)


def halve(factor: int = 1, rounding: int = 1, offset: int = 0, scale: float = 0.5) -> Host:
    """Return a host whose handler computes the kernel, except for its parameters."""

    def lower(ctx: Any, x: Any) -> Any:
        if not ctx.uses_integers:
            return ctx.ops.Mul(x, scale)
        zero_points = [ctx.quantization(slot).zero_point[0] for slot in (0, out(0))]
        centered = ctx.ops.Sub(ctx.ops.Cast(x, to="int32"), np.int32(zero_points[0]))
        positive = ctx.ops.Add(ctx.ops.Mul(centered, np.int32(factor)), np.int32(rounding + 1024))
        half = ctx.ops.Sub(ctx.ops.Div(positive, np.int32(2)), np.int32(512 - offset))
        return ctx.ops.Cast(ctx.ops.Add(half, np.int32(zero_points[1])), to=ctx.dtype(out(0)))

    layout = Implicit(onnx={0: "n c h w"})
    wrong_handler = handler(
        CODE, max_version=1, layout=layout, axes="n h w c -> n h w c", quantization=Integer(), kernel=kernel
    )
    return Host(handlers={CODE: wrong_handler(lower)}, prefer=["inline"])


@pytest.mark.parametrize(
    ("dtype", "host", "cause"),
    [
        (
            "int8",
            halve(rounding=0),
            "wrong rounding: where y0 differs from the reference kernel, it is one step lower, ",
        ),
        ("int8", halve(offset=11), "wrong zero point: each element of y0 is 11 quantization steps higher "),
        (
            "int8",
            halve(factor=2),
            "wrong scale or factor: each element of y0 in the ONNX model, minus the zero point, is 1.99",
        ),
        (
            "int8",
            halve(factor=-1),
            "wrong scale or factor: each element of y0 in the ONNX model, minus the zero point, is -",
        ),
        (
            "float32",
            halve(scale=0.75),
            "wrong factor: each element of y0 in the ONNX model is 1.5 times that in the reference",
        ),
    ],
)
def test_wrong_arithmetic_is_named_and_axes_are_not(dtype: str, host: Host, cause: str) -> None:
    reasons = run_case(unary(CODE, dtype, tensor(2, 5, 7, 3, dtype=dtype)), host).reasons
    assert cause in reasons[0]
    sides = "the lowering or the reference kernel"
    if dtype == "int8":
        sides = "the lowering, the reference kernel or the declared quantization=Integer"
    assert f"correct {sides}" in reasons[0]
    assert "axes" not in "".join(reasons)


def test_results_with_the_parameters_of_an_operand_are_named() -> None:
    def lower(ctx: Any, x: Any) -> Any:
        return ctx.quantize(ctx.ops.Mul(ctx.dequantize(x, like=0), 0.5), like=0)

    declare = handler(CODE, max_version=1, layout=Transparent(), quantization=Integer(), kernel=half_kernel)
    x, y = (tensor(2, 5, 7, 3, dtype="int8", scale=scale, zero_point=zero) for scale, zero in ((0.05, 3), (0.02, -7)))
    reasons = run_case(unary(CODE, "int8", x, y), Host(handlers={CODE: declare(lower)}, prefer=["inline"])).reasons
    assert (
        "wrong scale or zero point: each element of y0 in the ONNX model is quantized with scale and zero point of operand 0 "
        "instead of those of the result; correct the lowering"
    ) in reasons[0]


def half_kernel(op: Any, x: Array) -> Array:
    """Return half of the real value, in the scale of the result."""
    before, after = (op[slot].quantization for slot in (0, out(0)))
    real = (x.astype(np.float64) - before.zero_point[0]) * before.scale[0] / 2
    return np.asarray(np.clip(np.round(real / after.scale[0]) + after.zero_point[0], -128, 127)).astype(x.dtype)


def test_result_that_is_right_in_floats_has_wrong_integer_arithmetic() -> None:
    def lower(ctx: Any, x: Any) -> Any:
        return ctx.ops.Abs(x) if ctx.uses_integers else ctx.ops.Mul(x, 0.5)

    layout = Implicit(onnx={0: "n c h w"})
    wrong_handler = handler(
        CODE, max_version=1, layout=layout, axes="n h w c -> n h w c", quantization=Integer(), kernel=kernel
    )
    host = Host(handlers={CODE: wrong_handler(lower)}, prefer=["inline"])
    first, second = (
        run_case(unary(CODE, name, tensor(2, 5, 7, 3, dtype="int8")), host) for name in ("first", "second")
    )
    assert "wrong integer arithmetic: with --quantization float the result agrees" in first.reasons[0]
    reported_causes = ReportedCauses()
    assert [reported_causes.record(result) for result in (first, second)] == ["", first.case.id]


def test_message_on_right_values_in_wrong_positions_names_the_axes() -> None:
    def lower(ctx: Any, x: Any) -> Any:
        return ctx.ops.Reshape(ctx.ops.Transpose(x, perm=[0, 1, 3, 2]), ctx.ops.Shape(x))

    layout = Implicit(onnx={0: "n c h w"})
    wrong_handler = handler(CODE, max_version=1, layout=layout, axes="n h w c -> n h w c", kernel=lambda op, x: x)
    result = run_case(
        unary(CODE, "float32", tensor(2, 5, 7, 3)), Host(handlers={CODE: wrong_handler(lower)}, prefer=["inline"])
    )
    expected = (
        "y0 has the right values in the wrong positions, in every layout: axes='n h w c -> n h w c' and Implicit("
    )
    assert expected in result.reasons[0]


EXPECTED = np.arange(-30, 30, dtype=np.int8)


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        (EXPECTED + (EXPECTED % 2), "it is one step higher, so either the ONNX model or the kernel rounds down or up"),
        (
            EXPECTED - np.sign(EXPECTED) * (EXPECTED % 2),
            "one step nearer to the zero point, so either the ONNX model or the kernel rounds toward zero",
        ),
        (EXPECTED + (np.abs(EXPECTED) == 7), "so the ONNX model and the kernel round halfway values differently"),
        (EXPECTED + EXPECTED % 3 - 1, "no element of y is off by more than one step"),
    ],
)
def test_direction_of_rounding_is_described(actual: Array, text: str) -> None:
    difference = describe_difference("y", [actual.astype(np.int8)], [EXPECTED], "the kernel", 0)
    assert difference is not None
    assert text in difference.text


@pytest.mark.parametrize(
    ("actual", "expected", "zero_point"),
    [
        (np.int8([1, 2, 3]), np.int8([2, 3, 4]), 0),  # too few values
        (np.float32([*range(9)]), np.float32([*range(9)]), None),  # equal
        (np.square(EXPECTED.astype(np.float32)), EXPECTED.astype(np.float32), None),
        (np.zeros((2, 3), np.int8), np.zeros((3, 2), np.int8), 0),
    ],
)
def test_difference_without_a_pattern_is_not_described(actual: Any, expected: Any, zero_point: int | None) -> None:
    assert describe_difference("y", [actual], [expected], "the kernel", zero_point) is None


FLOATS = np.random.default_rng(3).normal(size=(2, 5, 7)).astype(np.float32)
QUANTIZED = np.random.default_rng(5).integers(-100, 100, (2, 5, 7)).astype(np.int8)


@pytest.mark.parametrize(
    ("actual", "expected", "zero_point", "text"),
    [
        (FLOATS, np.maximum(FLOATS, 0), None, "the kernel has no element of y below 0, but the ONNX model has"),
        (np.maximum(FLOATS, 0), FLOATS, None, "the ONNX model has no element of y below 0, but the kernel has"),
        (FLOATS, np.clip(FLOATS, -1, 1), None, "the kernel has no element of y below -1 or above 1, but"),
        (QUANTIZED, np.maximum(QUANTIZED, 7), 7, "no element of y below the zero point, but the ONNX model has"),
    ],
)
def test_clamp_of_one_side_is_described(actual: Array, expected: Array, zero_point: int | None, text: str) -> None:
    difference = describe_difference("y", [actual], [expected], "the kernel", zero_point)
    assert difference is not None
    assert difference.text.startswith("missing clamp: ")
    assert text in difference.text


@pytest.mark.parametrize(("axis", "side"), [(0, 1), (1, 1), (1, -1), (2, -1)])
def test_shift_along_an_axis_is_described(axis: int, side: int) -> None:
    shifted = np.roll(FLOATS, -side, axis)
    edge = np.take(np.arange(FLOATS.shape[axis]), -1 if side > 0 else 0)
    np.moveaxis(shifted, axis, 0)[edge] = 9.0
    difference = describe_difference("y", [shifted], [FLOATS], "the kernel", None)
    assert difference is not None
    direction = "higher" if side > 0 else "lower"
    assert difference.text.startswith(
        f"shifted by one: each element of y in the kernel is at an index that is 1 {direction} along axis {axis} than in "
    )


def test_offset_of_integers_without_scale_is_not_a_wrong_zero_point() -> None:
    numbers = np.arange(9, dtype=np.int32)
    difference = describe_difference("y", [numbers + 2], [numbers], "the kernel", None)
    assert difference is not None
    assert difference.text == "wrong constant: each element of y is 2 higher in the ONNX model than in the kernel"


# --- fusions ----------------------------------------------------------------------------------

x, low, high = operands("x low high")
PATTERN = Call("MINIMUM", Call("MAXIMUM", x, low), high)


def clip(model: Net, low: Any) -> None:
    like = tensor(2, 3)
    model.output(
        model.call("MINIMUM", [model.call("MAXIMUM", [model.input(like), constant(low)], like), constant(0.75)], like)
    )


def bounds(match: Match) -> dict[str, float]:
    """Accept every constant, although a constant may have one element per channel."""
    return {"low": float(np.ravel(match.constant(low))[0])}


def with_fusion(high: float) -> Host:
    declare = fusion("CLIPPED", pattern=PATTERN, inputs=[x], check=bounds, layout=Transparent(), types="float32")
    entry: Any = SimpleNamespace(
        name="it", value="m:it", load=lambda: declare(lambda ctx, x: ctx.ops.Clip(x, ctx.options.low, high))
    )
    return Host(offers=[*discover(), Offer("CLIPPED", "a-pack", FUSIONS, entry)])


REPLACED = (
    "the fusion CLIPPED of a-pack with the pattern MINIMUM(MAXIMUM(x, low), high) replaced op 0 MAXIMUM, op 1 MINIMUM"
)


def test_fusion_that_accepts_too_much_is_named() -> None:
    case = net("MINIMUM", "per channel", lambda model: clip(model, np.float32([-1, 0, 0.5])))
    reason = run_case(case, with_fusion(0.75)).reasons[0]
    assert f"{REPLACED}; without it the case passes, so its check accepts too much (" in reason
    assert "test_attribution.py:" in reason
    assert "in bounds) or its lowering is wrong (" in reason


def test_fusion_that_a_case_requires_has_a_wrong_lowering_first() -> None:
    case = net("MINIMUM", "of one number", lambda model: clip(model, -0.5), fusions=["CLIPPED"])
    reason = run_case(case, with_fusion(0.25)).reasons[0]
    assert f"{REPLACED}; without it the case passes, so its lowering is wrong (" in reason


def test_unexpected_node_names_the_fusion_that_emitted_it() -> None:
    case = net("MINIMUM", "not fused", lambda model: clip(model, -0.5), nodes={"Clip": 0})
    assert run_case(case, with_fusion(0.75)).reasons == (
        f"onnxruntime least, generic least: expected 0 Clip nodes, found 1; all nodes: Clip (1); {REPLACED}",
    )


def test_fusion_that_did_not_apply_comes_before_missing_nodes() -> None:
    case = net("MINIMUM", "x", lambda model: clip(model, np.float32([-1, 0, 0.5])), fusions=["SOFT"], nodes={"Clip": 1})
    first, second = run_case(case, Host(packs="builtin")).reasons
    assert "the fusion SOFT was not loaded" in first
    assert "expected 1 Clip nodes, found 0" in second


def test_difference_without_pack_fusions_is_not_attributed_to_one() -> None:
    wrong_handler = handler(CODE, max_version=1, layout=Transparent(), kernel=lambda op, x: np.abs(x))(lambda ctx, x: x)
    result = run_case(unary(CODE, "float32", tensor(2, 3)), Host(handlers={CODE: wrong_handler}, prefer=["inline"]))
    assert "fusion" not in result.text
