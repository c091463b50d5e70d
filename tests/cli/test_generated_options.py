"""Options, keywords, checks and documentation are generated from the dataclass."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click
import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.cli.bench import bench
from onnx_tflite_plugin.cli.convert import convert
from onnx_tflite_plugin.cli.options import GroupedOption
from onnx_tflite_plugin.cli.verify import verify
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.keywords import python_help
from onnx_tflite_plugin.options import BenchOptions, ConvertKeywords, ConvertOptions, Option, VerifyOptions, options_of
from tests.helpers.command import Run
from tools.command_page import PAGE, page

PYTHON_PAGE = PAGE.with_name("python.md")
DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
CONVERT = options_of(ConvertOptions)
DATA = [option for option in options_of(VerifyOptions) if option.name != "partial"]
ids = {"ids": lambda value: getattr(value, "name", None)}


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((convert, option) for option in (*CONVERT, *DATA)),
        *((verify, option) for option in options_of(VerifyOptions)),
        *((bench, option) for option in options_of(BenchOptions)),
    ],
    **ids,
)
def test_each_field_is_a_command_option(command: click.Command, option: Option) -> None:
    (param,) = (param for param in command.params if param.name == option.name)
    assert isinstance(param, GroupedOption)
    assert param.opts == [option.flag]
    assert param.group == option.group
    assert (param.help or "").removesuffix(" Repeatable.") == option.help
    with command.make_context(command.name, ["a.tflite", "b.onnx"]) as context:
        assert context.params[option.name] == option.default or not (context.params[option.name] or option.default)


def test_help_groups_options(run: Run) -> None:
    headings = re.findall(r"^(\w.*):$", run("convert", "--help").out, re.MULTILINE)
    assert headings == [
        "Common", "Shapes and parts", "Layout", "Quantization", "Verification", "Advanced", "Output",
    ]  # fmt: skip


@pytest.mark.parametrize("option", CONVERT, **ids)
def test_each_field_is_a_documented_keyword(option: Option) -> None:
    parameter = inspect.signature(otp.convert).parameters[option.name]
    assert (parameter.default, parameter.annotation) == (option.default, option.type)
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert f" {option.name}: {python_help(option)}" in " ".join((otp.convert.__doc__ or "").split())
    assert re.search(rf"^\| `{option.flag}\b.*?`<br>`{option.name}`: ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_command_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.command_page"


def test_typed_keywords_match_the_fields() -> None:
    """Mapping options may also be None."""
    expected = {option.name: option.type | None if option.default == {} else option.type for option in CONVERT}
    assert get_type_hints(ConvertKeywords) == expected


def test_method_verify_has_the_keywords_of_the_function() -> None:
    expected = [*inspect.signature(otp.verify).parameters.values()][2:]
    parameters = inspect.signature(otp.Conversion.verify).parameters.values()
    assert [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY] == expected


def test_page_names_only_fields_of_graph_values() -> None:
    (row,) = re.findall(r"^\| `otp\.GraphValue` \|(.*)", PYTHON_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", row)} <= {field.name for field in fields(otp.GraphValue)}


def test_keywords_override_equal_options() -> None:
    options = ConvertOptions(opset=15, dynamic_batch=True)
    from_options, from_keywords = otp.convert(DIGITS, options), otp.convert(DIGITS, opset=15, dynamic_batch=True)
    assert from_options.proto.SerializeToString() == from_keywords.proto.SerializeToString()
    assert otp.convert(DIGITS, options, opset=17, layout=None).report.opset == 17
    wrong: Any = 18
    with pytest.raises(TypeError, match="options is the int 18, not a ConvertOptions; give options as keywords"):
        otp.convert(DIGITS, wrong)


# --- messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", [option for option in (*CONVERT, *options_of(VerifyOptions)) if option.type is not Any], **ids
)
def test_type_error_names_option_value_and_remedy(option: Option) -> None:
    cls: Any = ConvertOptions if option in CONVERT else VerifyOptions
    with pytest.raises(TypeError, match=rf"^{option.name} is the float 1j?|^{option.name} is a complex.*; give .+"):
        cls(**{option.name: 1j})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_shape": {"x": (1, 2), "y": "1,2"}}, "input_shape['y'] is the str '1,2'"),
        ({"rename": {1.5: "y"}}, "rename's key is the float 1.5"),
        ({"input_shape": {"x": (2, 1.5)}}, "input_shape['x'][1] is the float 1.5"),
        ({"outputs": ["y", 3]}, "outputs[1] is the int 3"),
        ({"outputs": "y"}, "outputs is the str 'y'"),
        ({"input_shape": [1, 2]}, "input_shape is a list"),
    ],
)
def test_type_error_names_the_wrong_entry(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}, so nothing was done; give a "):
        ConvertOptions(**options)


def test_repr_shows_only_options_that_differ_from_the_defaults() -> None:
    assert repr(ConvertOptions()) == "ConvertOptions()"
    assert repr(ConvertOptions(opset=18, rename={0: "x"})) == "ConvertOptions(opset=18, rename={'0': 'x'})"
    assert repr(VerifyOptions(runs=1)) == "VerifyOptions(runs=1)"


@pytest.mark.parametrize("cls", [VerifyOptions, ConvertOptions, BenchOptions])
def test_docstring_lists_every_field(cls: Any) -> None:
    documented = " ".join(cls.__doc__.split())
    assert all(f" {option.name}: {python_help(option)}" in documented for option in options_of(cls))


def test_a_position_may_be_an_integer() -> None:
    assert ConvertOptions(input_shape={np.int64(0): (1, 2)}) == ConvertOptions(input_shape={"0": (1, 2)})


@pytest.mark.parametrize("option", [option for option in CONVERT if option.choices], **ids)
def test_invalid_choice_lists_valid_ones(option: Option) -> None:
    invalid = option.choices[0] + "x"
    *others, last = map(repr, option.choices)
    values = f"{', '.join(others)} or {last}"
    text = f"^{option.name} is '{invalid}', so nothing was done; give {values}; did you mean '{option.choices[0]}'"
    with pytest.raises(UnsupportedOption, match=text):
        ConvertOptions(**{option.name: invalid})


@pytest.mark.parametrize(
    ("cls", "name", "value", "remedy"),
    [
        (ConvertOptions, "unroll", -1, "give 0 or more"),
        (VerifyOptions, "runs", 0, "give 1 or more"),
        (VerifyOptions, "seed", -1, "give 0 or more"),
        (BenchOptions, "threads", 257, "give 256 or less"),
        (VerifyOptions, "tolerance", -0.5, "give 0 or more"),
        (VerifyOptions, "tolerance", float("nan"), "give 0 or more"),
    ],
)
def test_number_out_of_range_is_reported(cls: Any, name: str, value: float, remedy: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"^{name} is {value}, .*; {remedy}$"):
        cls(**{name: value})


@pytest.mark.parametrize(("name", "similar"), [("optimise", "optimize"), ("input_shapes", "input_shape")])
def test_unknown_keyword_suggests_the_nearest(run: Run, name: str, similar: str) -> None:
    keywords: dict[str, Any] = {name: 3}
    with pytest.raises(TypeError, match=f"convert takes no keyword '{name}'; did you mean '{similar}'"):
        otp.convert(DIGITS, **keywords)
    flag = similar.replace("_", "-")
    assert f"--{flag}" in run("convert", DIGITS, f"--{name.replace('_', '-')}", "3").err


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"keep_unknown": True, "verify": True}, "keep_unknown=True and verify: .*; omit one"),
        ({"layout_plan": "local", "io_layout": "onnx"}, "layout_plan='local' and io_layout='onnx': .*; omit one"),
        ({"opset": 99}, "opset=99: target onnxruntime supports opsets 13 to .*; choose one of them"),
        (
            {"weights_dtype": "int8", "target": "generic"},
            "weights_dtype='int8': target generic .*; use .*'auto' or keep",
        ),
    ],
)
def test_incompatible_options_are_reported_with_a_remedy(options: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UnsupportedOption, match=remedy):
        otp.convert(DIGITS, **options)


# --- an optional value ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "verification"),
    [
        (["m.tflite"], None),
        (["--verify", "m.tflite"], "full"),
        (["m.tflite", "--verify"], "full"),
        (["--verify=full", "m.tflite"], "full"),
        (["--verify=partial", "m.tflite"], "partial"),
        (["m.tflite", "--verify", "--json"], "full"),
    ],
)
def test_verify_value_needs_an_equals_sign(arguments: list[str], verification: str | None) -> None:
    with convert.make_context("convert", arguments) as context:
        assert context.params["verify"] == verification
        assert context.params["model"] == Path("m.tflite")
