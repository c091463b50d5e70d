"""Declarations are read once per instance, and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from conformance.cases import builtin_cases
from conformance.models import Net, between_convolutions, constant, tensor
from onnx_tflite_plugin.api import (
    Attribute,
    AxisPrice,
    Call,
    Context,
    Decline,
    Dequantized,
    Effects,
    Fusion,
    Handler,
    Instance,
    Match,
    Price,
    Refusal,
    Transparent,
    builtin,
    fusion,
    handler,
    operands,
)
from onnx_tflite_plugin.binding.fusion import fuse
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

CODE = "CUSTOM.Plain"


def make_handler(**declared: Any) -> Handler:
    """Return a handler that emits Abs."""

    @handler(CODE, max_version=1, **{"layout": Transparent(), "quantization": Dequantized(), **declared})
    def plain(ctx: Context, x: Any) -> Any:
        return ctx.ops.Abs(x)

    return plain


def network(times: int = 2, dtype: str = "float32", code: str = CODE) -> bytes:
    model = Net()
    x = tensor(2, 3, dtype=dtype)
    y: Any = x
    for _ in range(times):
        y = model.call(code, [y], x)
    model.output(y)
    return model.build()


def convert_with(declared: Handler, data: bytes, **options: Any) -> Conversion:
    return convert(data, host=Host(packs="builtin", handlers={declared.code: declared}), **options)


MakeFunction = Callable[[str, Any], Callable[[Instance], Any]]


@pytest.fixture
def call_record() -> tuple[Counter[tuple[str, int, str]], list[Instance], MakeFunction]:
    """Return call counts by name, operator and dtype, the instances, and a factory.

    The factory makes declared functions that record their calls.
    """
    calls: Counter[tuple[str, int, str]] = Counter()
    instances: list[Instance] = []

    def function(name: str, value: Any) -> Callable[[Instance], Any]:
        def declare(at: Instance) -> Any:
            calls[name, at.op.index, at.op[0].dtype] += 1
            instances.append(at)
            return value

        return declare

    return calls, instances, function


def all_declarations(function: MakeFunction) -> dict[str, Any]:
    return {
        "layout": function("layout", Attribute()),
        "axes": function("axes", "a b -> a b"),
        "axis_price": function("axis_price", AxisPrice("Softmax", "b")),
        "indexed_by_axis": function("indexed_by_axis", {}),
        "reshapes": function("reshapes", {}),
        "quantization": function("quantization", Dequantized()),
        "types": function("types", "float32 int8"),
        "activation": function("activation", "RELU"),
        "min_opset": function("min_opset", 14),
        "accepts": function("accepts", None),
        "evaluate": function("evaluate", None),
    }


@pytest.mark.parametrize("options", [{}, {"optimize": "speed"}, {"layout_plan": "local"}], ids=str)
def test_each_declared_function_is_called_once_per_operator(options: dict[str, Any], call_record: Any) -> None:
    calls, _, function = call_record
    convert_with(make_handler(**all_declarations(function)), network(dtype="int8"), **options)
    assert calls == {(name, index, "int8"): 1 for name in all_declarations(function) for index in (0, 1)}


def test_declarations_are_read_again_if_quantization_is_dropped(call_record: Any) -> None:
    calls, _, function = call_record
    convert_with(make_handler(**all_declarations(function)), network(1, dtype="int8"), quantization="float")
    expected = {(name, 0, dtype): 1 for name in all_declarations(function) for dtype in ("int8", "float32")}
    del expected["evaluate", 0, "float32"]  # constants are evaluated earlier
    assert calls == expected


@pytest.mark.parametrize(("requested_opset", "used_opset"), [(None, 26), (15, 15)])
def test_instance_has_operator_target_and_opset(requested_opset: int | None, used_opset: int, call_record: Any) -> None:
    _, instances, function = call_record
    convert_with(make_handler(**all_declarations(function)), network(), target="generic", opset=requested_opset)
    assert {at.op.code for at in instances} == {CODE}
    assert {at.op.index for at in instances} == {0, 1}
    assert {at.target.has_kernel("Pad", "int16") for at in instances} == {False}
    assert {at.opset for at in instances} == {used_opset}


def test_context_is_an_instance() -> None:
    def double(at: Instance) -> int:
        return 2 * at.op[0].rank + (at.opset > 0) + at.target.has_kernel("Abs", "float32")

    @handler(CODE, max_version=1, layout=Transparent())
    def plain(ctx: Context, x: Any) -> Any:
        return ctx.ops.Mul(x, float(double(ctx)))

    proto = convert_with(plain, network(1)).proto
    x = np.ones((2, 3), np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    assert (y == 6).all()


def test_declared_function_may_raise_refusal() -> None:
    def layout(at: Instance) -> Transparent:
        raise Refusal("it is too odd; make it even")

    message = rf"^the model cannot be converted:\n  op 0 {CODE}.*too odd; make it even"
    with pytest.raises(HandlerError, match=message):
        convert_with(make_handler(layout=layout), network(1))


def test_refusal_raised_by_accepts_is_a_decline() -> None:
    def accepts(at: Instance) -> Decline | None:
        raise Refusal("it is too odd")

    with pytest.raises(Exception, match="declined by inline: it is too odd"):
        convert_with(make_handler(accepts=accepts), network(1))


def test_activation_option_that_does_not_exist_is_an_error() -> None:
    """An activation that is silently ignored would cause wrong results."""
    add = replace(builtin("ADD"), activation="fused_activation")
    model = Net()
    model.output(model.call("ADD", [tensor(2, 3), tensor(2, 3)], tensor(2, 3), fused_activation_function="RELU"))
    with pytest.raises(HandlerError, match="no option 'fused_activation'; did you mean 'fused_activation_function'"):
        convert_with(add, model.build())


def test_absent_activation_option_names_the_declaration_for_it() -> None:
    wrong_handler = make_handler(activation="act")
    model = Net()
    model.output(model.call(CODE, [tensor(2, 3)], tensor(2, 3), custom_options={"stride": 2}))
    with pytest.raises(
        HandlerError, match=r"no option 'act'; if .* declare activation=lambda at: at.op.options.get\('act', 'NONE'\)"
    ):
        convert_with(wrong_handler, model.build())


@pytest.mark.parametrize(("price", "transposes"), [(None, 2), (Price(inner=1000.0), 4)])
def test_axis_price_moves_an_operator_to_its_fast_layout(price: Price | None, transposes: int) -> None:
    axis_price = None if price is None else AxisPrice("Mine", "c", price=price)
    declared = make_handler(layout=Attribute(), axes="n h w c -> n h w c", axis_price=axis_price)
    x = tensor(1, 16, 16, 32)
    case = between_convolutions(CODE, "", [x], x)
    assert convert_with(declared, case.build()).report.transposes == transposes


def test_target_price_overrides_handler_price() -> None:
    axis_price = AxisPrice("Softmax", "c", price=Price(last=7.0))
    assert TARGETS["onnxruntime"].price(axis_price, last=True, nbytes=10) == 0
    assert TARGETS["generic"].price(axis_price, last=True, nbytes=10) == 70


def test_builtin_returns_the_built_in_handler() -> None:
    assert builtin("ADD").code == "ADD"
    with pytest.raises(LookupError, match=r"no built-in handler 'CUSTOM.No'"):
        builtin("CUSTOM.No")


def test_state_name_function_is_called_once() -> None:
    handle, call_counts = builtin("VAR_HANDLE"), Counter[tuple[int, int]]()
    assert handle.effects is not None
    assert handle.effects.state_key is not None
    state_key = handle.effects.state_key

    def counted_state_key(at: Instance) -> str:
        call_counts[at.op.subgraph, at.op.index] += 1
        return state_key(at)

    case = next(case for case in builtin_cases() if case.op == "ASSIGN_VARIABLE" and case.expects_success)
    assert convert_with(replace(handle, effects=Effects(state_key=counted_state_key)), case.build()).report.states
    assert call_counts
    assert set(call_counts.values()) == {1}


# --- fusions ----------------------------------------------------------------------------------


def two_abs_fusion(**declared: Any) -> Fusion:
    (x,) = operands("x")

    @fusion("TWICE", pattern=Call("ABS", Call("ABS", x)), inputs=(x,), layout=Transparent(), **declared)
    def lower(ctx: Context, x: Any) -> Any:
        return ctx.ops.Abs(x)

    return lower


NEEDS_18 = "needs opset 18, the model has opset 17"


@pytest.mark.parametrize(("opset", "applied", "declined"), [(17, 0, [NEEDS_18]), (18, 1, []), (None, 1, [])])
def test_fusion_opset_may_depend_on_the_instance(opset: int | None, applied: int, declined: list[str]) -> None:
    calls: list[str] = []

    def required_opset(at: Instance) -> int:
        calls.append(at.op.code)
        return 16 + at.op[0].rank

    target = TARGETS["onnxruntime"]
    bound = Host(packs="builtin").bind(read(network(2, code="ABS")), target, 18)
    fused = fuse(bound, [("mine", two_abs_fusion(min_opset=required_opset))], target, opset=opset)
    assert fused.applied.get("TWICE", 0) == applied
    assert [reason.rpartition(": ")[2] for reason in fused.declined] == declined
    assert calls == ["TWICE"]


@pytest.mark.parametrize(("opset", "declined"), [(17, [f"TWICE at op 1 ABS v1 'y0': {NEEDS_18}"]), (18, [])])
def test_fusion_of_a_newer_opset_is_reported_as_declined(opset: int, declined: list[str]) -> None:
    target = TARGETS["onnxruntime"]
    bound = Host(packs="builtin").bind(read(network(2, code="ABS")), target, 18)
    assert fuse(bound, [("mine", two_abs_fusion(min_opset=18))], target, opset=opset).declined == declined


def test_failed_fusion_keeps_its_operators() -> None:
    target = TARGETS["onnxruntime"]
    bound = Host(packs="builtin").bind(read(network(4, code="ABS")), target, 18)
    fused = fuse(bound, [("mine", two_abs_fusion(check=lambda match: 1 / 0))], target)
    assert [bound_operator.op.code for bound_operator in fused.model.operators()] == ["ABS"] * 4
    assert "check of fusion TWICE of mine failed: ZeroDivisionError" in fused.failed["TWICE"].reason


def softsign(*, activation: str | None = None, **options: str) -> Fusion:
    x, one = operands("x one")
    pattern = Call("DIV", x, Call("ADD", Call("ABS", x), one, **options))

    def check(match: Match) -> Mapping[str, str]:
        return {"fused_activation_function": match.calls[pattern].options.fused_activation_function}

    @fusion("SOFTSIGN", pattern=pattern, inputs=(x,), check=check, layout=Transparent(), activation=activation)
    def lower(ctx: Context, x: Any) -> Any:
        return ctx.ops.Softsign(x)

    return lower


@pytest.mark.parametrize(
    ("inner", "outer", "declared", "applied"),
    [
        ("NONE", "NONE", softsign(), 1),
        ("RELU6", "NONE", softsign(), 0),
        ("NONE", "RELU", softsign(), 0),
        ("RELU", "NONE", softsign(fused_activation_function="RELU"), 1),
        ("NONE", "RELU", softsign(activation="fused_activation_function"), 1),
    ],
)
def test_fusion_does_not_drop_a_fused_activation(inner: str, outer: str, declared: Fusion, applied: int) -> None:
    model, like = Net(), tensor(3, 5)
    x = model.input(like)
    total = model.call("ADD", [model.call("ABS", [x], like), constant(1.0)], like, fused_activation_function=inner)
    model.output(model.call("DIV", [x, total], like, fused_activation_function=outer))
    target = TARGETS["onnxruntime"]
    fused = fuse(Host(packs="builtin").bind(read(model.build()), target, 18), [("mine", declared)], target)
    assert fused.applied.get("SOFTSIGN", 0) == applied
    assert all("has the fused activation RELU" in reason for reason in fused.declined)
    assert len(fused.declined) == 1 - applied


# --- shapes declared for a lowering ---------------------------------------------------------------


def reshaping_handler(reshapes: Any) -> Handler:
    @handler(
        CODE, max_version=1, layout=Transparent(), axes="a b -> a b", quantization=Dequantized(), reshapes=reshapes
    )
    def lower(ctx: Context, x: Any) -> Any:
        return ctx.ops.Abs(x)

    return lower


@pytest.mark.parametrize(
    ("dtype", "op_types"),
    [
        ("float32", ["Reshape", "Abs", "Reshape"]),
        ("int16", ["Reshape", "Cast", "Mul", "Abs", "QuantizeLinear", "Reshape"]),
    ],
)
def test_quantized_operands_are_reshaped_without_dequantization(dtype: str, op_types: list[str]) -> None:
    conversion = convert_with(reshaping_handler({0: (None,), ~0: (6,)}), network(1, dtype=dtype))
    assert [node.op_type for node in conversion.proto.graph.node if node.op_type != "Sub"] == op_types
    x = (np.arange(6).reshape(2, 3) - 2).astype(dtype)
    session = onnxruntime.InferenceSession(conversion.proto.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x0": x})[0], abs(x))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({1: (6,)}, "the operator has no tensor in slot 1"),
        ({0: (None, None)}, "for slot 0 has more than one dynamic dimension"),
        (lambda at: {0: 6}, "it returned a dict, not a mapping of int to"),
    ],
)
def test_declared_shape_that_does_not_fit_is_an_error(shapes: Any, text: str) -> None:
    with pytest.raises(HandlerError, match=f"^declarations of handlers do not match their operators:\n.*{text}"):
        convert_with(reshaping_handler(shapes), network(1))


@pytest.mark.parametrize("axis", [2, -3, 7])
def test_axis_beyond_the_rank_is_an_error(axis: int) -> None:
    @handler(CODE, max_version=1, layout=Attribute(), quantization=Dequantized())
    def softmax(ctx: Context, x: Any) -> Any:
        return ctx.ops.Softmax(x, axis=ctx.axis(axis))

    with pytest.raises(HandlerError, match=rf"axis {axis} does not exist: '.*' has rank 2"):
        convert_with(softmax, network(1))
