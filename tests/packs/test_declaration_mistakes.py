"""A declaration that can match nothing is an error when the pack loads."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from conformance.models import Net, net, tensor, unary
from conformance.one import convert_one
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.api import (
    Behavior,
    Call,
    Context,
    Target,
    Terminate,
    Transparent,
    Value,
    fusion,
    handler,
    operands,
)
from onnx_tflite_plugin.errors import ConversionError, HandlerError, VerificationError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, Offer, discover
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.targets.operator_names import find_unknown_operator
from onnx_tflite_plugin.verify.causes import describe_pack_fusions


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ('layout=Terminate(), axes="zz -> q("', r"axes 'zz -> q\(' cannot be parsed at '\(': '\)' is missing"),
        ("", r"@handler requires layout=, such as Transparent\(\), Implicit\("),
        ('layout=Transparent(), types="float"', "types: 'float' is not a dtype; did you mean 'float32'"),
        ('layout=Terminate(), axes="n, o -> n"', r"axes 'n, o -> n' have 2 operands, but the lowering lower takes 1"),
        ('layout=Terminate(unordered="h z"), axes="n h -> n h"', r"unordered='h z': .* have no letter 'z', only n, h"),
        (
            "layout=Transparent(), requires_constant={3}",
            r"requires_constant names slot 3, but the lowering lower takes",
        ),
        ("layout=Transparent(), quantization=Dequantized(weights=(1,))", r"quantization=Dequantized names slot 1, but"),
        ('layout=Transparent(), quantization=Lookup(print, dtypes=("in16",))', r"'in16' is not a dtype; did you mean"),
        (
            'layout=Transparent(), result_dtypes={"int8": ("in16",)}',
            r"result_dtypes: 'in16' is not a dtype; did you mean 'int16'",
        ),
        ("layout=Implicit(onnx={0: 'n c h w'})", "layout=Implicit requires axes=, such as axes='n h w c -> n h w c'"),
        (
            "layout=Implicit(onnx={0: 'n q h w'}), axes='n h w c -> n h w c'",
            "slot 0: 'n q h w' does not reorder the axes declared in 'n h w c -> n h w c': q is unknown, c is missing",
        ),
        (
            "layout=Implicit(onnx={0: 'c 1 j k'}), axes='1 j k c -> n c'",
            "slot 0: 'c 1 j k' cannot permute the axis that '1 j k c -> n c' writes as 1, because a 1 has no letter; "
            "give this axis a letter, such as m,",
        ),
        (
            "layout=Implicit(onnx={0: 'nchw'}), axes='nhwc -> nhwc'",
            "nchw is unknown, nhwc is missing; separate letters by spaces: 'n c h w'",
        ),
    ],
)
def test_declaration_that_matches_nothing_is_an_error(declared: str, text: str) -> None:
    namespace: dict[str, Any] = {}
    exec("from onnx_tflite_plugin.api import *\ndef lower(ctx, x):\n    return x", namespace)
    with pytest.raises(TypeError, match=text):
        exec(f'handler("CUSTOM.Acme", max_version=1, {declared})(lower)', namespace)


def test_axes_of_the_files_layout_must_have_its_rank() -> None:
    rolled = handler("CUSTOM.Acme", max_version=1, layout=Terminate(), axes="n h -> n h")(lambda ctx, x: x)
    with pytest.raises(HandlerError, match="axes 'n h' of operand 0 do not fit a tensor of rank 3"):
        convert_one(rolled, [tensor(2, 5, 7)], show=False)


def test_axes_without_spaces_are_reported_with_their_letters() -> None:
    rolled = handler("CUSTOM.Acme", max_version=1, layout=Terminate(), axes="nhwc -> nhwc")(lambda ctx, x: x)
    with pytest.raises(HandlerError, match="rank 4; separate letters by spaces: 'n h w c'"):
        convert_one(rolled, [tensor(2, 5, 7, 3)], show=False)


def test_trait_of_a_wrong_type_is_an_error() -> None:
    class Offsets(Behavior):
        @property
        def takes_floats(self) -> bool:
            return "yes"  # type: ignore[return-value]

    with pytest.raises(TypeError, match=r"Offsets\.takes_floats must be bool, not the str 'yes'"):
        handler("CUSTOM.Acme", max_version=1, layout=Transparent(), quantization=Offsets())(lambda ctx, x: x)


def test_fusion_has_one_input_per_operand_of_its_lowering() -> None:
    (x,) = operands("x")
    with pytest.raises(TypeError, match=r"@fusion\('ACME'\): inputs= has 0 operands, the lowering takes 1"):
        fusion("ACME", pattern=Call("ABS", x), layout=Transparent())(lambda ctx, x: x)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("pattern=Call('ABS', x), inputs=[x]", r"@fusion requires layout=, such as Transparent\(\)"),
        (
            "pattern='ABS', inputs=[x], layout=Transparent()",
            r"pattern= takes a Call or a list of them, not the str 'ABS'",
        ),
        ("pattern=Call('ABS', x), inputs=x, layout=Transparent()", r"inputs= takes a list of operands, such as \[x\]"),
        (
            "pattern=Call('ABS', 'x'), layout=Transparent()",
            r"Call\('ABS'\): the str 'x' is not an operand of a pattern; make",
        ),
    ],
)
def test_wrong_parts_of_a_fusion_are_named_with_a_remedy(declared: str, text: str) -> None:
    namespace: dict[str, Any] = {}
    exec("from onnx_tflite_plugin.api import *\n(x,) = operands('x')", namespace)
    with pytest.raises(TypeError, match=text):
        exec(f"fusion('ACME', {declared})(lambda ctx, x: x)", namespace)


def test_target_traits_name_dtypes() -> None:
    with pytest.raises(TypeError, match=r"Target\(quantizes=...\): 'in8' is not a dtype; did you mean 'int8'"):
        Target("acme", (13, 18, 26), quantizes=frozenset({"in8"}))


@pytest.mark.parametrize("target", [target for target in TARGETS.values() if not target.domains], ids=lambda t: t.name)
def test_operators_in_traits_of_targets_exist(target: Target) -> None:
    assert find_unknown_operator(target) == ""
    wrong_target = replace(target, missing_operators={"Iff": ""})
    assert (
        find_unknown_operator(wrong_target)
        == "its trait missing_operators names 'Iff', which is no operator of ONNX; did you mean 'If'?"
    )


def test_failed_verification_names_the_pack_that_replaced_a_handler() -> None:
    wrong_handler = handler("ABS", max_version=5, layout=Transparent())(lambda ctx, x: ctx.ops.Neg(x))
    case = unary("ABS", "float32", tensor(2, 3))
    with pytest.raises(VerificationError, match="inline converts ABS instead of the built-in handler"):
        convert(case.build(), host=Host(handlers={"ABS": wrong_handler}), verify=True)


def test_wrong_sizes_of_a_pack_name_their_function() -> None:
    declare = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), result_shape=lambda at: (3, 4))
    with pytest.raises(
        ConversionError, match=r"has shape \[2, 5\], but result_shape= of handler .* returned \[3, 4\], at .*\.py:"
    ):
        convert_one(declare(lambda ctx, x: ctx.ops.Identity(x)), [tensor(2, 5)], show=False)


def test_opset_beyond_the_target_names_its_newest() -> None:
    future = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), min_opset=99)(lambda ctx, x: x)
    with pytest.raises(ConversionError, match=r"needs opset 99 \(target onnxruntime has opsets up to \d+\)"):
        convert_one(future, [tensor(2, 5)], show=False)


(X_OPERAND,) = operands("x")


@fusion("NEGATED_ABS", layout=Transparent(), pattern=Call("NEG", Call("ABS", X_OPERAND)), inputs=(X_OPERAND,))
def wrong_negated_abs(ctx: Context, x: Value) -> Value:
    """Lack the Neg."""
    return ctx.ops.Abs(x)


def negate_abs(model: Net) -> None:
    like = tensor(2, 3)
    model.output(model.call("NEG", [model.call("ABS", [model.input(like)], like)], like))


def test_failed_verification_names_the_fusion_of_a_pack() -> None:
    entry = EntryPoint("NEGATED_ABS", f"{__name__}:wrong_negated_abs [ABS]", FUSIONS)
    host = Host(offers=[*discover(), Offer("NEGATED_ABS", "a-pack", FUSIONS, entry)])
    fact = r"operators 0, 1 were replaced by the fusion .*:wrong_negated_abs of a-pack; block=\['a-pack'\] leaves"
    with pytest.raises(VerificationError, match=fact):
        convert(net("NEG", "of ABS", negate_abs).build(), host=host, verify=True)


def test_submodel_without_the_fusion_does_not_name_it() -> None:
    proto = convert(net("NEG", "of ABS", negate_abs).build()).proto
    for node in proto.graph.node:
        for entry in node.metadata_props:
            changed = {"handler": f"{__name__}:wrong_negated_abs", "pack": "a-pack", "operators": "0:0,0:1"}
            entry.value = changed.get(entry.key.rpartition(".")[2], entry.value)
    installed = [("a-pack", wrong_negated_abs)]
    assert describe_pack_fusions(proto, {1}, lambda: installed)
    assert not describe_pack_fusions(proto, {2}, lambda: installed)
    assert not describe_pack_fusions(proto, {1}, lambda: [])  # a handler that is no fusion
    for node in proto.graph.node:
        for entry in node.metadata_props:
            entry.value = entry.value.replace("0:0,0:1", "0:1,1:0")  # a call, and one operator of its subgraph
    assert not describe_pack_fusions(proto, {1}, lambda: installed)


def test_fusion_takes_patterns_and_inputs_of_any_iterable() -> None:
    calls = (Call(code, X_OPERAND, None) for code in ("ABS", "NEG"))
    declared = fusion("ANY", layout=Transparent(), pattern=calls, inputs=iter([X_OPERAND]))(lambda ctx, x: x)
    assert [call.operands for call in declared.patterns] == [(X_OPERAND,), (X_OPERAND,)]
    assert declared.inputs == (X_OPERAND,)


@fusion("LATER", layout=Transparent(), pattern=Call("ABS", X_OPERAND), inputs=(X_OPERAND,), after=("NEGATED_ABBS",))
def later(ctx: Context, x: Value) -> Value:
    return ctx.ops.Abs(x)


def test_fusion_after_an_unknown_fusion_is_reported() -> None:
    values = {"NEGATED_ABS": "wrong_negated_abs", "LATER": "later"}
    entries = [EntryPoint(name, f"{__name__}:{function}", FUSIONS) for name, function in values.items()]
    host = Host(offers=[Offer(entry.name, "a-pack", FUSIONS, entry) for entry in entries])
    host.fusions()
    fact = "the fusion LATER of a-pack is declared to run after 'NEGATED_ABBS', which is not a fusion"
    assert host.warnings == [f"{fact}; did you mean 'NEGATED_ABS'?"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("at[0].rank", r"a declared function gets an Instance; write at.op\[0\]"),
        ("at.rank", "a declared function gets an Instance, which has no 'rank'; the operator is at.op"),
    ],
)
def test_instance_used_as_an_operator_has_a_remedy(expression: str, text: str) -> None:
    function = eval(f"lambda at: {expression}")
    wrong_handler = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), axes=function)(lambda ctx, x: x)
    with pytest.raises(ConversionError, match=text):
        convert_one(wrong_handler, [tensor(2, 5)], show=False)
