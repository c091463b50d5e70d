"""Messages on mistakes of pack authors: location, reason and remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from conformance.command import run
from conformance.models import tensor, unary
from onnx_tflite_plugin import convert, pytest_plugin
from onnx_tflite_plugin.api import VERSION, Target, Terminate
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from tests.helpers.pack_files import install, install_pack, run_python

Edits = tuple[tuple[str, str, str], ...]
Provoke = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return a function that installs the pack ``author`` with some edits.

    An edit is ``(file, old, new)``.
    """
    folder, site = tmp_path / "author", tmp_path / "site"

    def write_pack(*edits: tuple[str, str, str], op: str = "CUSTOM.Acme", like: str = "elementwise") -> Path:
        result = CliRunner().invoke(cli, ["new-pack", str(folder), "--op", op, "--like", like])
        assert result.exit_code == 0, result.output
        for name, old, new in edits:
            file = folder / name
            text = file.read_text(encoding="utf-8")
            assert old in text
            file.write_text(text.replace(old, new), encoding="utf-8")
        install_pack(folder, site)
        for path in (folder, site):
            monkeypatch.syspath_prepend(str(path))
        return folder

    yield write_pack
    for name in [name for name in sys.modules if name.partition(".")[0] == "author"]:
        del sys.modules[name]


@pytest.fixture
def provoke(write: Callable[..., Path]) -> Provoke:
    """Return a function that returns the output of a failing ``conformance`` run.

    It runs ``conformance --pack author`` with edits.
    """

    def conformance(*edits: tuple[str, str, str], **pack_files: str) -> str:
        write(*edits, **pack_files)
        with redirect_stdout(StringIO()) as printed:
            try:
                code = run("author")
            except ConversionError as error:
                return str(error)
        assert code == 1
        return printed.getvalue()

    return conformance


HANDLER, CASES = "author/acme.py", "author/cases.py"


def test_missing_import_of_a_handler_is_reported_once(provoke: Provoke) -> None:
    printed = provoke((HANDLER, "import numpy as np", "import numpyy as np"))
    assert printed.count("No module named 'numpyy'") == 1
    assert "acme.py:5" in printed
    assert "6 cases of CUSTOM.Acme were not run" in printed


def test_error_on_a_missing_module_suggests_a_name(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.acme:acme", "author.acmee:acme"))
    assert "there is no module 'author.acmee'; did you mean 'author.acme'? correct the entry point" in printed
    assert "pip install -e" in printed


def test_error_on_a_missing_package_names_the_packages_of_setup_cfg(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.acme:acme", "author.sub.acme:acme"))
    assert "the installed pack has no package 'author.sub'; write packages = find: in setup.cfg" in printed


def test_cases_of_one_name_are_reported(provoke: Provoke) -> None:
    printed = provoke((CASES, f"yield {INT8_CASE}", f"yield {INT8_CASE.replace('int8', 'float32', 1)}"))
    assert "two cases are named 'CUSTOM.Acme-float32_between_convolutions'; give each case" in printed


def test_suggested_attribute_is_defined_in_the_module(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.cases:cases", "author.cases:case"))
    assert "module 'author.cases' has no 'case'; did you mean 'cases'?" in printed


def test_error_on_a_missing_attribute_suggests_a_name(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.acme:acme", "author.acme:acmee"))
    assert "module 'author.acme' has no 'acmee'; did you mean 'acme'? correct the entry point" in printed
    assert "pip install -e" in printed


def test_error_on_an_unknown_group_suggests_a_name(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "onnx_tflite_plugin.handlers", "onnx_tflite_plugin.handler"))
    unused = "entry point CUSTOM.Acme = author.acme:acme of author is unused"
    assert (
        f"{unused}: there is no group 'onnx_tflite_plugin.handler'; did you mean 'onnx_tflite_plugin.handlers'?"
        in printed
    )
    assert "'onnx_tflite_plugin.handlers'? correct setup.cfg, and install the pack again (pip install -e)" in printed


def test_entry_point_of_a_module_names_its_handlers(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.acme:acme", "author.acme"))
    assert "it is a module, not a handler; write author.acme:acme, and install the pack again" in printed


def test_tests_of_a_pack_without_handler_name_the_missing_entry_point(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    folder = write(("setup.cfg", "onnx_tflite_plugin.handlers =\n    CUSTOM.Acme = author.acme:acme\n", ""))
    output = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert (
        "the pack 'author' is installed, but registers no handler, fusion, hook or target; add an entry point" in output
    )
    assert "During handling" not in output


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
            "Python's operators do not work on values; write ctx.ops.Mul(x, y), at ",
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
            "@fusion('MINE'): no pattern has an operand of inputs=, 'z'; list operands of the pattern, at ",
        ),
    ],
)
def test_message_states_what_to_write(provoke: Provoke, edits: Edits, more: dict[str, str], reason: str) -> None:
    assert reason in provoke(*edits, **more)


def test_list_of_handlers_reports_commands_and_passes_that_do_not_load(write: Callable[..., Path]) -> None:
    commands = "[options.entry_points]\nonnx_tflite_plugin.commands =\n    go = author.my_npu:TARGET"
    edits = ("author/my_npu.py", "my_npu_passes:", "my_npu_pases:"), ("setup.cfg", "[options.entry_points]", commands)
    write(*edits, op="my-npu", like="pass")
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert listed.exit_code == 1
    assert "2 problems" in listed.output
    assert "command 'go' of author failed: author.my_npu:TARGET is a Target, not a click.Command" in listed.output
    assert "there is no module 'author.my_npu_pases'; correct `passes` of the target" in listed.output


def test_wrong_axes_are_printed_once(provoke: Provoke) -> None:
    layout = 'layout=Implicit(onnx={0: "n c h q"}), axes="n h w c -> n h w c"'
    edits = (HANDLER, "layout=Transparent()", layout), (HANDLER, "Transparent", "Implicit")
    printed = provoke(*edits)
    (line,) = [line for line in printed.splitlines() if "'n c h q' does not reorder the axes declared in" in line]
    assert line.count("'n h w c -> n h w c'") == 1


def test_wrong_number_of_outputs_is_located_at_the_return(write: Callable[..., Path]) -> None:
    folder = write((HANDLER, "return ctx.ops", "return x, ctx.ops"))
    lines = (folder / HANDLER).read_text(encoding="utf-8").splitlines()
    line = next(k for k, text in enumerate(lines, 1) if text.startswith("    return x, ctx.ops"))
    with pytest.raises(ConversionError, match=rf"returned 2 values, .* at .*acme\.py:{line} in acme"):
        convert(unary("CUSTOM.Acme", "", tensor(2, 3)).build())


def test_misspelled_group_is_a_problem_of_the_pack(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "onnx_tflite_plugin.handlers", "onnx_tflite.handlers"))
    problem = "entry points in the group 'onnx_tflite.handlers' are unused: there is no such group"
    remedy = "write onnx_tflite_plugin.handlers in setup.cfg"
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert listed.exit_code == 1
    for text in (printed, listed.output):
        assert f"{problem} ({remedy}" in text


def test_competing_handlers_are_a_problem_of_both_packs(tmp_path: Path, write: Callable[..., Path]) -> None:
    write()
    install(
        tmp_path / "site",
        "second",
        "second_pack",
        "",
        "[onnx_tflite_plugin.handlers]\nCUSTOM.Acme = author.acme:acme\n",
    )
    for pack, other_pack in (("author", "second"), ("second", "author")):
        listed = CliRunner().invoke(cli, ["handlers", "--pack", pack])
        assert listed.exit_code == 1
        assert f"CUSTOM.Acme: {pack} and {other_pack} each have a handler for it" in listed.output


def test_missing_custom_prefix_is_reported_once(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "CUSTOM.Acme = ", "Acme = "))
    reason = "TFLite has no operator 'Acme'; a custom operator is named CUSTOM.Acme, in setup.cfg and in @handler"
    assert printed.count(f"Acme: entry point Acme = author.acme:acme of author is unused: {reason}") == 1
    assert "6 failed, 1 problem" in printed
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert "1 problem" in listed.output


def test_entry_point_must_match_its_handler(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "CUSTOM.Acme = ", "CUSTOM.Acmee = "))
    assert "it is a handler of 'CUSTOM.Acme'; name the entry point CUSTOM.Acme, or declare aliases=" in printed
    assert printed.count("author defines a handler for the operator, acme in ") == 1
    assert "6 failed, 1 problem" in printed


def test_misnamed_entry_point_is_noted_in_a_run_of_its_operator(write: Callable[..., Path]) -> None:
    write(("setup.cfg", "CUSTOM.Acme = ", "CUSTOM.Acmee = "))
    with redirect_stdout(StringIO()) as printed:
        assert run("author", "CUSTOM.Acme") == 1
    assert "CUSTOM.Acmee: entry point CUSTOM.Acmee = author.acme:acme of author failed" in printed.getvalue()


def test_handler_exception_is_reported_once_for_all_cases(provoke: Provoke) -> None:
    printed = provoke((HANDLER, "return ctx.ops.Softsign(x)", "return ctx.ops.Softsign(y)"))
    assert printed.count("NameError: name 'y'") == 1
    assert "for the same reason as CUSTOM.Acme-rank_1: CUSTOM.Acme-rank_3, CUSTOM.Acme-rank_4" in printed
    assert "--block" not in printed


@pytest.mark.parametrize("selected", ["--op-pack=author", "tests"])
def test_pytest_reports_a_load_error_in_one_failure(tmp_path: Path, write: Callable[..., Path], selected: str) -> None:
    folder = write((HANDLER, "import numpy as np", "import numpyy as np"))
    target = str(folder / "tests") if selected == "tests" else str(folder / "author")
    options = ["-q", "-p", "no:cacheprovider", *([] if selected == "tests" else [selected])]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *options, target).stdout
    assert "INTERNALERROR" not in output
    assert len(output.splitlines()) < 12
    assert "failed: ModuleNotFoundError: No module named 'numpyy'" in output


def test_tests_of_a_missing_pack_print_the_pip_command(tmp_path: Path, write: Callable[..., Path]) -> None:
    folder = write()
    (tmp_path / "site" / "author-0.1.0.dist-info").rename(tmp_path / "gone")
    site = tmp_path / "site"  # and not the folder of the pack, so that its modules cannot be imported
    output = run_python(site, site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert "no op pack 'author' is installed" in output
    assert "pip install -e DIR" in output
    assert len(output.splitlines()) < 12


def test_failing_case_shows_no_traceback_in_pytest(tmp_path: Path, write: Callable[..., Path]) -> None:
    folder = write((HANDLER, "return ctx.ops.Softsign(x)", "return ctx.ops.Softsign(y)"))
    output = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)).stdout
    assert "run_case" not in output
    assert "CUSTOM.Acme-rank_3 failed for the same reason as CUSTOM.Acme-rank_1" in output


# --- one mistake each, with the expected texts ---------------------------------------------------

RETURN = "return ctx.ops.Softsign(x)"
INT8_CASE = 'unary(OP, "int8", tensor(2, 5, 7, 3, dtype="int8"), place=between_convolutions)'
FLATTENED = 'between_convolutions(OP, "float32", [tensor(2, 5, 7, 3)], tensor(2, 105))'
FLOAT_CASE = 'unary(OP, "float32", tensor(2, 5, 7, 3), place=between_convolutions)'
OTHER_SHAPE = 'in_isolation(OP, "float32", [tensor(2, 5, 7, 3)], tensor(2, 5, 7, 4))'
NO_SCALE = 'in_isolation(OP, "int8", [tensor(2, 5, 7, 3, dtype="int8")], replace(tensor(2, 5, 7, 3, dtype="int8"), scale=None))'
IMPORTS = "from dataclasses import replace\nfrom conformance.models import in_isolation,"
MISTAKES = {
    "wrong operator name": (
        [(HANDLER, "ctx.ops.Softsign", "ctx.ops.SoftSign")],
        ["ONNX has no operator SoftSign; did you mean 'Softsign'?"],
    ),
    "operator name of another framework": (
        [(HANDLER, RETURN, "return ctx.ops.Subtract(x, x)")],
        ["ONNX has no operator Subtract; did you mean 'Sub'?"],
    ),
    "wrong attribute": (
        [(HANDLER, RETURN, "return ctx.ops.LeakyRelu(x, aplha=0.1)")],
        ["LeakyRelu has no attribute aplha; did you mean 'alpha'?"],
    ),
    "int operand of a float operator": (
        [(HANDLER, RETURN, "return ctx.ops.Add(x, 1)")],
        ["the operands of Add are float32 and int64, but must have one dtype", "write 1.0 instead of 1"],
    ),
    "no return": ([(HANDLER, RETURN, "ctx.ops.Softsign(x)")], ["None for output 0, which is used; is a `return` missing?"]),
    "too many results": ([(HANDLER, RETURN, RETURN + ", x")], ["2 values, but the operator has 1 output"]),
    "axes of another rank": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='n h w c -> n h w',")],
        ["axes 'n h w' of output 0 do not fit a tensor of rank 4; write a letter for each axis", "axes='n h w c -> n h w', at "],
    ),
    "axes of an output that the operator lacks": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='... -> ..., n',")],
        ["axes '... -> ..., n' have 2 outputs, but the operator has 1; write axes for each output"],
    ),
    "an ellipsis in axes where a layout is required": (
        [
            (HANDLER, "layout=Transparent(),", "layout=Implicit(onnx={0: 'n c h w'}), axes='... -> ...',"),
            (HANDLER, "Transparent", "Implicit"),
        ],
        ["layout=Implicit requires the layout 'n c h w', whose letters are not in the axes '...'; write the letter of each axis"],
    ),
    "swapped axes": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='... h w c -> ... w h c',")],
        ["the emitted value has size 5 along axis 1, but 7 is expected from the file and the handler's declarations"],
    ),
    "an output without scale": (
        [(CASES, INT8_CASE, NO_SCALE), (CASES, "from conformance.models import", IMPORTS)],
        ["output 0, 'y0', is int8 without scale and zero point in the file", "give the tensor a scale, or return int8"],
    ),
    "quantized values for a float operator": (
        [(HANDLER, "Dequantized()", "SameScale()"), (HANDLER, "Dequantized, ", "SameScale, ")],
        ["ONNX has no Softsign of int8; quantization=Dequantized() would compute on floats"],
    ),
    "no quantization": (
        [(HANDLER, "    quantization=Dequantized(),\n", "")],
        ["are quantized, but the handler supports only floats", "declare quantization= in @handler of author.acme:acme"],
    ),
    "float16 for a quantized output": (
        [(HANDLER, RETURN, "return ctx.ops.Cast(ctx.ops.Softsign(x), to='float16')")],
        ["output 0 is float16, but its tensor 't4' is int8; the converter quantizes float32; convert it with ctx.ops.Cast"],
    ),
    "floats from a lowering with integer arithmetic": (
        [
            (HANDLER, "Dequantized()", "Integer()"),
            (HANDLER, "Dequantized, ", "Integer, "),
            (HANDLER, RETURN, "return ctx.ops.Softsign(ctx.ops.Cast(x, to='float32'))"),
        ],
        [
            "output 0 is float32, but with quantization=Integer(...) it must hold the quantized values of 't4', int8",
            "return quantized values, for example by ctx.quantize(value, like=out(0)), or declare Dequantized()",
        ],
    ),
    "an operator without a kernel in ONNX Runtime": (
        [
            (HANDLER, "Dequantized()", "SameScale()"),
            (HANDLER, "Dequantized, ", "SameScale, "),
            (HANDLER, RETURN, "return ctx.ops.Relu(x)"),
            (CASES, 'tensor(2, 5, 7, 3, dtype="int8")', 'tensor(2, 5, 7, 3, dtype="int16")'),
        ],
        ["ONNX Runtime has no kernel for Relu of int16 (node 'op1/Relu'), although ONNX defines it; cast its operands"],
    ),
    "an axis that the operand lacks": (
        [(HANDLER, RETURN, "return ctx.ops.ReduceMax(x, [ctx.axis(7)], keepdims=1)")],
        ["axis 7 does not exist: 'x0' has rank 1, by handler author.acme:acme of author, at ", "acme.py:23 in acme"],
    ),
    "a wrong shape in a case": (
        [(CASES, FLOAT_CASE, OTHER_SHAPE), (CASES, "from conformance.models import", IMPORTS)],
        ["output 0 of the kernel has shape [2, 5, 7, 3], but 'y0' has [2, 5, 7, 4] in the model; correct the kernel"],
    ),
    "a lowering with too many operands": (
        [(HANDLER, "x: Value)", "x: Value, y: Value)")],
        ["the operator has 1 operand, the lowering takes 2; give the lowering one parameter per operand after its first one"],
    ),
    "a kernel with too many operands": (
        [(HANDLER, "x: Array)", "x: Array, y: Array)")],
        ["the operator has 1 operand, the kernel takes 2", "the case cannot be run: kernel of CUSTOM.Acme"],
    ),
    "a kernel that changes its operand": (
        [(HANDLER, "np.asarray(x / (1 + np.abs(x)))", "np.divide(x, 1 + np.abs(x), out=x)")],
        ["kernel of CUSTOM.Acme", "read-only", "acme.py:"],
    ),
    "a kernel with a wrong dtype": (
        [(HANDLER, "np.asarray(x / (1 + np.abs(x)))", "np.asarray(x, np.int32)")],
        [
            "output 0 of the kernel is int32, but 'y0' is float32 in the model; return an array of float32",
            "is int8 in the model; return an array of float32, or of quantized values in int8",
        ],
    ),
    "a dtype variable without operand": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), types='float32 int8 -> T',")],
        ["types: 'float32 int8 -> T': the result dtype T is not the dtype variable of any operand; write the result dtypes explicitly"],
    ),
    "options of a custom operator": (
        [(CASES, FLOAT_CASE, FLOAT_CASE.replace("7, 3)", "7, 3), options={'by': 2}"))],
        [
            "1 failed",
            "CUSTOM has no options table, but was given the option 'by'; write custom_options={...} for a custom operator",
        ],
    ),
    "an attribute of the operator on the instance": (
        [(HANDLER, "quantization=Dequantized(),", "quantization=lambda op: op.inputs[0] and Dequantized(),")],
        ["a declared function gets an Instance, which has no 'inputs'; write at.op.inputs"],
    ),
    "a dtype that TFLite lacks in a case": (
        [(CASES, FLOAT_CASE, FLOAT_CASE.replace("7, 3)", "7, 3, dtype='i8')"))],
        ["tensor(dtype='i8'): it is not a dtype; did you mean 'int8'?"],
    ),
    "an operator of a newer opset": (
        [(HANDLER, RETURN, "return ctx.ops.Swish(x)")],
        ["Swish needs opset 24, the model has opset 18; declare min_opset=24 for the handler"],
    ),
    "a dtype that is not quantized": (
        [(HANDLER, RETURN, "return ctx.ops.Cast(x, to='int32')")],
        [
            "is int8; the converter quantizes float32; convert it with ctx.ops.Cast(value, to='float32'), at ",
            "acme.py:23 in acme",
        ],
    ),
    "a result of another rank": (
        [(HANDLER, RETURN, "return ctx.ops.ReduceSum(x, [1], keepdims=0)")],
        ["has rank 3, but 4 is expected", "correct the lowering or the declarations, at ", "acme.py:23 in acme"],
    ),
    "an unclosed group": (
        [(HANDLER, "layout=Transparent(),", "layout=Transparent(), axes='n (h w -> n h w',")],
        ["axes 'n (h w -> n h w' cannot be parsed at '(h w': ')' is missing"],
    ),
    "one result too few": ([(HANDLER, RETURN, "return ()")], ["the lowering returned 0 values, but the operator has 1 output"]),
    "a table of floats": (
        [
            (HANDLER, "Dequantized()", "Lookup(lambda at: np.arange(-128, 128) / 128, dtypes=('int8',))"),
            (HANDLER, "Dequantized, ", "Lookup, "),
        ],
        ["the lookup table has float64 values from -1.0 to 0.9921875, but output 0 is int8: return its quantized values"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_message_of_a_mistake_names_fact_and_remedy(provoke: Provoke, name: str) -> None:
    edits, texts = MISTAKES[name]
    printed = provoke(*edits)
    for text in texts:
        assert text in printed
    assert "Traceback" not in printed


def test_wrong_axes_are_shown_if_every_layout_fails(provoke: Provoke) -> None:
    printed = provoke((HANDLER, "n h w c, o j k c, o -> n y x o", "n w h c, o j k c, o -> n y x o"), like="conv")
    assert "the result differs in every layout: axes='n w h c, o j k c, o -> n y x o' and Implicit(onnx=" in printed


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"ABS"', '"NEG"', "the pattern has NEG in the place of op 0 ABS v1 't1'"),
        ('"DIV"', '"MUL"', "the model has no MUL, the last operator of the pattern"),
        ('Call("ABS", x)', 'x', "operand 0 of op 1 ADD v1 't3' is 't1', but the pattern's operand 'x' already matched 'x0'"),
        ('Call("ABS", x)', 'Call("ABS", x, x)', "op 0 ABS v1 't1' has 1 operands, but ABS has 2 in the pattern"),
        ("operands(\"x\")", "operands(\"x\", constant=True)", "operand 0 of op 2 DIV v1 'y0' is not constant, unlike 'x' of the pattern"),
        ('"ABS", x', '"ABS", x, keep=True', "op 0 ABS v1 't1' has keep=None, but the pattern has keep=True"),
    ],
)  # fmt: skip
def test_unmatched_fusion_names_the_first_mismatch(provoke: Provoke, old: str, new: str, text: str) -> None:
    assert f"the fusion ACME did not apply: {text}" in provoke((HANDLER, old, new), op="ACME", like="fusion")


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        (HANDLER, "import annotations", "import annotations\nimport numpyy", "No module named 'numpyy'"),
        (HANDLER, '@fusion(\n    "ACME"', '@fusion(\n    "ACNE"', "has a fusion of this name; did you mean 'ACNE'?"),
    ],
)
def test_unloaded_fusion_is_reported(provoke: Provoke, file: str, old: str, new: str, text: str) -> None:
    printed = provoke((file, old, new), op="ACME", like="fusion")
    assert "the fusion ACME was not loaded: " in printed
    assert text in printed
    assert "the fusion ACME did not apply" not in printed


def test_unlisted_operator_of_a_fusion_is_reported_once(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "[ABS]", "[NEG]"), op="ACME", like="fusion")
    assert printed.count("NEG") == 1
    assert "lists NEG, but a pattern of ACME has only ABS, ADD, DIV" in printed
    assert "3 cases of ACME not run" in printed
    assert "has no case that requires the fusion" not in printed


def test_missing_module_of_cases_suggests_a_name(provoke: Provoke) -> None:
    printed = provoke(("setup.cfg", "author.cases:cases", "author.casses:cases"))
    assert "there is no module 'author.casses'; did you mean 'author.cases'? correct the entry point" in printed


def test_pytest_runs_each_case_of_a_pack_once(tmp_path: Path, write: Callable[..., Path]) -> None:
    """``--op-pack`` skips cases that the tests of the pack already run."""
    folder = write()
    options = ["-v", "-p", "no:cacheprovider", "--op-pack", "author", str(folder)]
    output = run_python(folder, tmp_path / "site", "-m", "pytest", *options).stdout
    assert output.count("CUSTOM.Acme-rank_3") == 1
    assert "nothing-untried PASSED" in output


def test_pytest_works_beside_a_folder_named_conformance(tmp_path: Path, write: Callable[..., Path]) -> None:
    """``python -m pytest`` imports from the current folder first."""
    folder, project = write(), tmp_path / "project"
    (project / "conformance").mkdir(parents=True)
    (project / "conformance" / "__init__.py").touch()
    (project / "test_one.py").write_text("def test_one() -> None: ...\n")
    completed = run_python(folder, tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", cwd=project)
    assert "1 passed" in completed.stdout, completed.stdout + completed.stderr


def test_hidden_package_conformance_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "conformance.pytest_items", None)
    session, config = SimpleNamespace(), SimpleNamespace(getoption=lambda name: ["author"])
    with pytest.raises(pytest.UsageError, match="conformance hides the package conformance of onnx-tflite-plugin"):
        pytest_plugin.pytest_collection_modifyitems(session, config, [])  # type: ignore[arg-type]


def test_failing_target_fails_conformance_of_its_pack(provoke: Provoke) -> None:
    printed = provoke(("author/my_npu.py", "missing_operators=", "missing_operator="), op="my-npu", like="target")
    assert "target my-npu: entry point my-npu = author.my_npu:TARGET of author failed: TypeError" in printed
    assert "takes no keyword 'missing_operator'; did you mean 'missing_operators'?" in printed


def test_uncalled_hook_is_reported_before_failing_cases(provoke: Provoke) -> None:
    printed = provoke((HANDLER, "@hookimpl\n", ""), op="CUSTOM.Acme*", like="claim")
    assert printed.index("'claim' is not called, because it lacks @hookimpl") < printed.index("failed:")


def test_unknown_hook_argument_gets_a_suggestion(provoke: Provoke) -> None:
    printed = provoke((HANDLER, "target: Target, opset", "targt: Target, opset"), op="CUSTOM.Acme*", like="claim")
    assert "hook 'claim' has no argument 'targt'; did you mean 'target'? arguments: op, opset, target" in printed


@pytest.mark.parametrize(
    ("like", "old", "new", "text"),
    [
        (
            "conv", "n h w c, o j k c, o -> n y x o", "n h w c, o j k c, o -> n h w o",
            "letter h is 7 in operand 0 and 3 in result 0; use different letters for axes of different sizes (the declaration of",
        ),
        (
            "conv", "Dequantized(bias={2: (0, 1)})", "Dequantized()",
            "slot 2 is int32: if it is a bias, declare Dequantized(bias={2: (0, 1)})",
        ),
        (
            "behavior", "def choose_arithmetic", "needs_scales = True\n\n    def choose_arithmetic",
            "Offsets.needs_scales is not a trait of behaviors; did you mean 'needs_scale'?",
        ),
    ],
)  # fmt: skip
def test_mistake_in_a_declaration_is_reported_with_its_remedy(
    provoke: Provoke, like: str, old: str, new: str, text: str
) -> None:
    assert provoke((HANDLER, old, new), like=like).count(text) == 1


@pytest.mark.parametrize("group", ["n (c h w)", "n (h c w)"])
def test_group_of_axes_in_the_wrong_order_is_reported(provoke: Provoke, group: str) -> None:
    printed = provoke(
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
    ("requirement", "fact"),
    [
        ("onnx-tflite-plugin", "its requirement on "),
        ("onnx-tflite-plugin>=0.2", "its requirement on "),
        ("numpy", "without a requirement on "),
    ],
)
def test_requirement_without_api_version_only_warns(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str], requirement: str, fact: str
) -> None:
    write(("setup.cfg", f"onnx-tflite-plugin~={VERSION}", requirement))
    assert run("author") == 0
    warning = f"whose API differs: write onnx-tflite-plugin~={VERSION} in install_requires"
    assert warning in capsys.readouterr().out
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert "1 problem" in listed.output
    assert re.search(rf"^problem +author: {fact}.*{re.escape(warning)}", listed.output, re.M)
    assert "warning" not in listed.output


def test_pack_for_another_version_is_named_with_the_version_to_require(write: Callable[..., Path]) -> None:
    write(("setup.cfg", f"onnx-tflite-plugin~={VERSION}", "onnx-tflite-plugin~=9.1.0"))
    warnings = Host().warnings
    assert any(f"write onnx-tflite-plugin~={VERSION} in its install_requires" in text for text in warnings)


def test_error_on_an_operator_suggests_a_similar_installed_name(write: Callable[..., Path]) -> None:
    write()
    with pytest.raises(ConversionError, match=r"author has a handler for 'CUSTOM\.Acme'; .* named CUSTOM\.acme"):
        convert(unary("CUSTOM.acme", "", tensor(2, 3)).build())


ENTRY = "    CUSTOM.Acme = author.acme:acme"


@pytest.mark.parametrize(
    ("edit", "fact", "remedy"),
    [
        (
            ("onnx_tflite_plugin.handlers", "onnx_tflite_plugin.handler"),
            "entry point CUSTOM.Acme = author.acme:acme of author is unused: there is no group",
            "did you mean 'onnx_tflite_plugin.handlers'?",
        ),
        (
            ("onnx_tflite_plugin.handlers", "onnx-tflite-plugin.handlers"),
            "author has an entry point for the operator in the group 'onnx-tflite-plugin.handlers', which does not exist",
            "write onnx_tflite_plugin.handlers in setup.cfg",
        ),
        (
            (ENTRY, "    Acme = author.acme:acme"),
            "entry point Acme = author.acme:acme of author is unused: TFLite has no operator 'Acme'",
            "a custom operator is named CUSTOM.Acme",
        ),
        (
            (ENTRY, ""),
            "author defines a handler for the operator, acme in {file}, but the function has no entry point",
            "make sure that setup.cfg lists CUSTOM.Acme = author.acme:acme in onnx_tflite_plugin.handlers",
        ),
        (
            (ENTRY, "    CUSTOM.Other = author.acme:acme"),
            "author defines a handler for the operator, acme in {file}, but the entry point of the function is named CUSTOM.Other",
            "rename the entry point to CUSTOM.Acme",
        ),
    ],
)
def test_error_on_an_operator_names_the_pack_that_is_meant_for_it(
    write: Callable[..., Path], edit: tuple[str, str], fact: str, remedy: str
) -> None:
    folder = write(("setup.cfg", *edit))
    lines = (folder / HANDLER).read_text(encoding="utf-8").splitlines()
    line = next(k for k, text in enumerate(lines, 1) if text.startswith("def acme"))
    with pytest.raises(ConversionError) as caught:
        convert(unary("CUSTOM.Acme", "", tensor(2, 3)).build())
    text = str(caught.value)
    assert text.count("of author is unused") <= 1
    assert fact.format(file=f"{folder / HANDLER}:{line}") in text
    assert remedy in text
    assert "new-pack" not in text
    with pytest.raises(ConversionError, match="no installed pack has a handler for it"):
        convert(unary("CUSTOM.Acme", "", tensor(2, 3)).build(), block=["author"])


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


def test_trait_of_wrong_type_is_shown_with_its_value(provoke: Provoke) -> None:
    printed = provoke(("author/my_npu.py", "(13, 17, 21)", "(13, 21)"), op="my-npu", like="target")
    meaning = "(the lowest, default and highest opset, such as (13, 17, 21))"
    assert f"Target(opsets=...) takes a tuple of int, int, int {meaning}, not the tuple (13, 21)" in printed


def test_claim_of_wrong_type_is_reported_once(provoke: Provoke) -> None:
    edit = (HANDLER, "return replace(elementwise, code=op.code)", "return elementwise.lower")
    printed = provoke(edit, op="CUSTOM.Acme*", like="claim")
    reason = "hook claim of author failed: it returned a function, not a Handler, a Decline or None"
    assert reason in printed
    assert printed.count("the case cannot be run") == 1
    assert "for the same reason as CUSTOM.AcmeSoftsign-float32: " in printed


def test_behavior_of_wrong_type_is_reported_once(provoke: Provoke) -> None:
    edit = (HANDLER, "return Arithmetic.QUANTIZED_AS_IN_FILE", "return 'QUANTIZED'")
    printed = provoke(edit, like="behavior")
    assert printed.count("Offsets.choose_arithmetic of author failed: it returned the str 'QUANTIZED'") == 1
