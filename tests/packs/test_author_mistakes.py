"""Messages on mistakes of pack authors: location, reason and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.models import tensor, unary
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.api import Target, Terminate
from onnx_tflite_plugin.errors import ConversionError
from tests.helpers.author_pack import CASES, FLOAT_CASE, HANDLER, INT8_CASE, RETURN, Edits, FailingOutput


def test_missing_import_of_a_handler_is_reported_once(failing_output: FailingOutput) -> None:
    printed = failing_output((HANDLER, "import numpy as np", "import numpyy as np"))
    assert printed.count("No module named 'numpyy'") == 1
    assert "acme.py:5" in printed
    assert "6 cases of CUSTOM.Acme were not run" in printed


def test_cases_of_one_name_are_reported(failing_output: FailingOutput) -> None:
    printed = failing_output((CASES, f"yield {INT8_CASE}", f"yield {INT8_CASE.replace('int8', 'float32', 1)}"))
    assert "two cases are named 'CUSTOM.Acme-float32_between_convolutions'; give each case" in printed


@pytest.mark.parametrize(
    ("edits", "more", "reason"),
    [
        (
            (
                (
                    CASES,
                    "def cases() -> Iterator[Case]:",
                    "def cases() -> None:\n    return None\n\n\ndef rest() -> Iterator[Case]:",
                ),
            ),
            {},
            "\n  entry point author = author.cases:cases of author failed: it returned None, not cases; is a `yield` or `return` missing?",
        ),
        (
            ((HANDLER, "return ctx.ops.Softsign(x)", "return x * 2.0"),),
            {},
            "whose elements exist only at runtime; write ctx.ops.Mul(x, ctx.scalar(2.0)), at ",
        ),
        (
            ((HANDLER, "(ctx: Context, x: Value)", "(x: Value)"),),
            {},
            "the operator has 1 operand, the lowering takes 0 besides its first parameter, ctx, at ",
        ),
        (
            ((CASES, '"CUSTOM.Acme"', '"CUSTOM.Acmee"'),),
            {},
            "no installed pack has a handler for it; did you mean 'CUSTOM.Acme'? otherwise add an entry point CUSTOM.Acmee = ",
        ),
        (
            (("author/mine.py", "inputs=(x,)", 'inputs=[*operands("z")]'),),
            {"op": "MINE", "like": "fusion"},
            "@fusion('MINE'): none of the operands in inputs= ('z') occurs in a pattern; list operands that do, at ",
        ),
    ],
)
def test_message_states_what_to_write(
    failing_output: FailingOutput, edits: Edits, more: dict[str, str], reason: str
) -> None:
    assert reason in failing_output(*edits, **more)


def test_wrong_axes_are_printed_once(failing_output: FailingOutput) -> None:
    layout = 'layout=Implicit(onnx={0: "n c h q"}), axes="n h w c -> n h w c"'
    edits = (HANDLER, "layout=Transparent()", layout), (HANDLER, "Transparent", "Implicit")
    printed = failing_output(*edits)
    (line,) = [line for line in printed.splitlines() if "'n c h q' does not reorder the axes declared in" in line]
    assert line.count("'n h w c -> n h w c'") == 1


def test_wrong_number_of_outputs_is_located_at_the_return(write_pack: Callable[..., Path]) -> None:
    folder = write_pack((HANDLER, "return ctx.ops", "return x, ctx.ops"))
    lines = (folder / HANDLER).read_text(encoding="utf-8").splitlines()
    line = next(k for k, text in enumerate(lines, 1) if text.startswith("    return x, ctx.ops"))
    with pytest.raises(ConversionError, match=rf"returned 2 values, .* at .*acme\.py:{line} in acme"):
        convert(unary("CUSTOM.Acme", "", tensor(2, 3)).build())


def test_handler_exception_is_reported_once_for_all_cases(failing_output: FailingOutput) -> None:
    printed = failing_output((HANDLER, "return ctx.ops.Softsign(x)", "return ctx.ops.Softsign(y)"))
    assert printed.count("NameError: name 'y'") == 1
    assert "for the same reason as CUSTOM.Acme-rank_1: CUSTOM.Acme-rank_3, CUSTOM.Acme-rank_4" in printed
    assert "--block" not in printed


FLATTENED = 'between_convolutions(OP, "float32", [tensor(2, 5, 7, 3)], tensor(2, 105))'


def test_wrong_axes_are_shown_if_every_layout_fails(failing_output: FailingOutput) -> None:
    axes = "n h w c, o j k c, o -> n y x o", "n w h c, o j k c, o -> n y x o"
    odd_sizes = "author/cases.py", "8, 13, 5", "7, 13, 5"  # with a height of 8, the result has a wrong shape
    printed = failing_output((HANDLER, *axes), odd_sizes, like="conv")
    assert (
        "the result differs in every layout: the lowering or the kernel is wrong, or axes='n w h c, o j k c" in printed
    )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"ABS"', '"NEG"', "the pattern has NEG where the model has op 0 ABS v1 't1'"),
        ('"DIV"', '"MUL"', "the model has no MUL, the last operator of the pattern"),
        ('Call("ABS", x)', 'x', "operand 0 of op 1 ADD v1 't3' is 't1', but the pattern's operand 'x' already matched 'x0'"),
        ('Call("ABS", x)', 'Call("ABS", x, x)', "op 0 ABS v1 't1' has 1 operands, but ABS has 2 in the pattern"),
        (
            "operands(\"x\")",
            "operands(\"x\", constant=True)",
            "operand 0 of op 2 DIV v1 'y0' is computed, but 'x' of the pattern must be constant",
        ),
        ('"ABS", x', '"ABS", x, keep=True', "op 0 ABS v1 't1' has keep=None, but the pattern has keep=True"),
    ],
)  # fmt: skip
def test_unmatched_fusion_names_the_first_mismatch(
    failing_output: FailingOutput, old: str, new: str, text: str
) -> None:
    assert f"the fusion ACME did not apply: {text}" in failing_output((HANDLER, old, new), op="ACME", like="fusion")


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        (HANDLER, "import annotations", "import annotations\nimport numpyy", "No module named 'numpyy'"),
        (HANDLER, '@fusion(\n    "ACME"', '@fusion(\n    "ACNE"', "has a fusion of this name; did you mean 'ACNE'?"),
    ],
)
def test_unloaded_fusion_is_reported(failing_output: FailingOutput, file: str, old: str, new: str, text: str) -> None:
    printed = failing_output((file, old, new), op="ACME", like="fusion")
    assert "the fusion ACME was not loaded: " in printed
    assert text in printed
    assert "the fusion ACME did not apply" not in printed


def test_unlisted_operator_of_a_fusion_is_reported_once(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "[ABS]", "[NEG]"), op="ACME", like="fusion")
    assert printed.count("NEG") == 1
    assert "lists NEG, but one pattern of ACME consists only of ABS, ADD, DIV" in printed
    assert "3 cases of ACME not run" in printed
    assert "has no case that requires the fusion" not in printed


def test_fusion_cases_detect_a_check_that_ignores_shapes(failing_output: FailingOutput) -> None:
    edit = (
        "author/acme.py",
        "value.size != 1 or value.ndim > match[x].rank or value.item() != 1",
        "(value != 1).any()",
    )
    printed = failing_output(edit, op="ACME", like="fusion")
    assert "DIV-ACME_with_a_result_larger_than_x" in printed


def test_failing_target_fails_conformance_of_its_pack(failing_output: FailingOutput) -> None:
    printed = failing_output(
        ("author/my_npu.py", "missing_operators=", "missing_operator="), op="my-npu", like="target"
    )
    assert "target my-npu: entry point my-npu = author.my_npu:TARGET of author failed: TypeError" in printed
    assert "takes no keyword 'missing_operator'; did you mean 'missing_operators'?" in printed


def test_uncalled_hook_is_reported_before_failing_cases(failing_output: FailingOutput) -> None:
    printed = failing_output((HANDLER, "@hookimpl\n", ""), op="CUSTOM.Acme*", like="claim")
    assert printed.index("'claim' is not called, because it lacks @hookimpl") < printed.index("failed:")


def test_unknown_hook_argument_gets_a_suggestion(failing_output: FailingOutput) -> None:
    printed = failing_output(
        (HANDLER, "target: Target, opset", "targt: Target, opset"), op="CUSTOM.Acme*", like="claim"
    )
    assert "hook 'claim' has no argument 'targt'; did you mean 'target'? arguments: op, opset, target" in printed


@pytest.mark.parametrize(
    ("like", "old", "new", "text"),
    [
        (
            "conv", "n h w c, o j k c, o -> n y x o", "n h w c, o j k c, o -> n h w o",
            "size 8 in operand 0 but 3 in result 0; use different letters for axes of different sizes, or correct the shapes in the ",
        ),
        (
            "conv", "Dequantized(bias={2: (0, 1)})", "Dequantized()",
            "slot 2 is int32: if it is a bias, declare Dequantized(bias={2: (0, 1)})",
        ),
        (
            "conv", "Dequantized(bias={2: (0, 1)})", "Dequantized(bias={1: (0, 2)})",
            "slot 2 is int32: if it is a bias, declare Dequantized(bias={2: (0, 1)})",
        ),
        (
            "behavior", "np.int32(before.zero_point[0])", "5.0",
            "int32 (cast from int8) and float32, but must have one dtype; write np.int32(5) instead of 5.0 for an integer",
        ),
        (
            "behavior", "def choose_arithmetic", "needs_scales = True\n\n    def choose_arithmetic",
            "Offsets.needs_scales is not a trait of behaviors; did you mean 'needs_scale'?",
        ),
    ],
)  # fmt: skip
def test_mistake_in_a_declaration_is_reported_with_its_remedy(
    failing_output: FailingOutput, like: str, old: str, new: str, text: str
) -> None:
    assert failing_output((HANDLER, old, new), like=like).count(text) == 1


@pytest.mark.parametrize("group", ["n (c h w)", "n (h c w)"])
def test_group_of_axes_in_the_wrong_order_is_reported(failing_output: FailingOutput, group: str) -> None:
    printed = failing_output(
        (HANDLER, "Transparent", "Terminate"),
        (HANDLER, "layout=Terminate()", f"layout=Terminate(unordered='h w c'), axes='n h w c -> {group}'"),
        (HANDLER, "np.asarray(x / (1 + np.abs(x)))", "x.reshape(len(x), -1)"),
        (HANDLER, RETURN, "return ctx.ops.Flatten(x)"),
        (CASES, "import between_convolutions,", "import between_convolutions, in_isolation,"),
        (CASES, FLOAT_CASE, FLATTENED),
        (CASES, "for shape in ((7,), (2, 3, 5), (2, 5, 7, 3)):", "for shape in ():"),
        (CASES, f"yield {INT8_CASE}", ""),
        (CASES, 'yield unary(OP, "dynamic shape", tensor(None, 5, None, 3))', ""),
    )
    assert "may list the axes of a group in the wrong order" in printed


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Terminate(unordered=("h", "w")), r'takes str, not the tuple \(\'h\', \'w\'\); write "h w"'),  # type: ignore[arg-type]
        (
            lambda: Target(missing_operator={}),
            "Target takes no keyword 'missing_operator'; did you mean 'missing_operators'",
        ),  # type: ignore[call-arg]
    ],
)
def test_wrong_field_of_a_declaration_is_a_type_error_with_the_remedy(call: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


def test_trait_of_wrong_type_is_shown_with_its_value(failing_output: FailingOutput) -> None:
    printed = failing_output(("author/my_npu.py", "(13, 17, 21)", "(13, 21)"), op="my-npu", like="target")
    meaning = "(the lowest, default and highest opset, such as (13, 17, 21))"
    assert f"Target(opsets=...) takes a tuple of int, int, int {meaning}, not the tuple (13, 21)" in printed


def test_claim_of_wrong_type_is_reported_once(failing_output: FailingOutput) -> None:
    edit = (HANDLER, "return replace(elementwise, code=op.code)", "return elementwise.lower")
    printed = failing_output(edit, op="CUSTOM.Acme*", like="claim")
    reason = "hook claim of author failed: it returned a function, not a Handler, a Decline or None"
    assert reason in printed
    assert printed.count("the case cannot be run") == 1
    assert "for the same reason as CUSTOM.AcmeSoftsign-float32: " in printed


def test_behavior_of_wrong_type_is_reported_once(failing_output: FailingOutput) -> None:
    edit = (HANDLER, "return Arithmetic.QUANTIZED_AS_IN_FILE", "return 'QUANTIZED'")
    printed = failing_output(edit, like="behavior")
    assert printed.count("Offsets.choose_arithmetic of author failed: it returned the str 'QUANTIZED'") == 1
