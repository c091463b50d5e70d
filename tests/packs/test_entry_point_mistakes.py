"""Messages on wrong entry points and requirements of a pack: fact and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.command import run
from conformance.models import tensor, unary
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.errors import ConversionError, PackError
from onnx_tflite_plugin.host import Host
from tests.helpers.author_pack import HANDLER, FailingOutput
from tests.helpers.pack_files import install


def test_error_on_a_missing_module_suggests_a_name(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.acme:acme", "author.acmee:acme"))
    assert "there is no module 'author.acmee'; did you mean 'author.acme'? correct the entry point" in printed
    assert "pip install -e" in printed


def test_error_on_a_missing_package_names_the_packages_of_setup_cfg(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.acme:acme", "author.sub.acme:acme"))
    assert "the installed pack has no package 'author.sub'; write packages = find: in setup.cfg" in printed


def test_suggested_attribute_is_defined_in_the_module(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.cases:cases", "author.cases:case"))
    assert "module 'author.cases' has no 'case'; did you mean 'cases'?" in printed


def test_error_on_a_missing_attribute_suggests_a_name(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.acme:acme", "author.acme:acmee"))
    assert "module 'author.acme' has no 'acmee'; did you mean 'acme'? correct the entry point" in printed
    assert "pip install -e" in printed


def test_error_on_an_unknown_group_suggests_a_name(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "onnx_tflite_plugin.handlers", "onnx_tflite_plugin.handler"))
    unused = "entry point CUSTOM.Acme = author.acme:acme of author is unused"
    assert (
        f"{unused}: there is no group 'onnx_tflite_plugin.handler'; did you mean 'onnx_tflite_plugin.handlers'?"
        in printed
    )
    assert "'onnx_tflite_plugin.handlers'? correct setup.cfg, and install the pack again (pip install -e)" in printed


def test_entry_point_of_a_module_names_its_handlers(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.acme:acme", "author.acme"))
    assert "it is a module, not a handler; write author.acme:acme, and install the pack again" in printed


def test_list_of_handlers_reports_commands_and_passes_that_do_not_load(write_pack: Callable[..., Path]) -> None:
    commands = "[options.entry_points]\nonnx_tflite_plugin.commands =\n    go = author.my_npu:TARGET"
    edits = ("author/my_npu.py", "my_npu_passes:", "my_npu_pases:"), ("setup.cfg", "[options.entry_points]", commands)
    write_pack(*edits, op="my-npu", like="pass")
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert listed.exit_code == 1
    assert "2 problems" in listed.output
    assert "command 'go' of author failed: author.my_npu:TARGET is a Target, not a click.Command" in listed.output
    assert "there is no module 'author.my_npu_pases'; correct `passes` of the target" in listed.output


def test_misspelled_group_is_a_problem_of_the_pack(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "onnx_tflite_plugin.handlers", "onnx_tflite.handlers"))
    problem = "entry points in the group 'onnx_tflite.handlers' are unused: there is no such group"
    remedy = "write onnx_tflite_plugin.handlers in setup.cfg"
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert listed.exit_code == 1
    for text in (printed, listed.output):
        assert f"{problem} ({remedy}" in text


def test_competing_handlers_are_a_problem_of_both_packs(tmp_path: Path, write_pack: Callable[..., Path]) -> None:
    write_pack()
    install(
        tmp_path / "site",
        "second",
        "second_pack",
        "",
        "[onnx_tflite_plugin.handlers]\nCUSTOM.Acme = author.acme:acme\n",
    )
    problem = "CUSTOM.Acme: author and second each have a handler for it"
    for pack in ("author", "second"):
        listed = CliRunner().invoke(cli, ["handlers", "--pack", pack])
        assert listed.exit_code == 1
        assert problem in listed.output
    assert CliRunner().invoke(cli, ["handlers"]).output.count(problem) == 1


def test_missing_custom_prefix_is_reported_once(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "CUSTOM.Acme = ", "Acme = "))
    reason = "TFLite has no operator 'Acme'; a custom operator is named CUSTOM.Acme, in setup.cfg and in @handler"
    assert printed.count(f"Acme: entry point Acme = author.acme:acme of author is unused: {reason}") == 1
    assert "6 failed, 1 problem" in printed
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert "1 problem" in listed.output


def test_entry_point_must_match_its_handler(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "CUSTOM.Acme = ", "CUSTOM.Acmee = "))
    assert "it is a handler of 'CUSTOM.Acme'; name the entry point CUSTOM.Acme, or declare aliases=" in printed
    assert printed.count("author defines a handler for the operator, acme in ") == 1
    assert "6 failed, 1 problem" in printed


def test_misnamed_entry_point_is_noted_in_a_run_of_its_operator(write_pack: Callable[..., Path]) -> None:
    write_pack(("setup.cfg", "CUSTOM.Acme = ", "CUSTOM.Acmee = "))
    with redirect_stdout(StringIO()) as printed:
        assert run("author", ["CUSTOM.Acme"]) == 1
    assert "CUSTOM.Acmee: entry point CUSTOM.Acmee = author.acme:acme of author failed" in printed.getvalue()


def test_run_of_a_new_operator_names_its_missing_entry_point(write_pack: Callable[..., Path]) -> None:
    folder = write_pack()
    with (folder / HANDLER).open("a", encoding="utf-8") as file:
        file.write('\n\n@handler("CUSTOM.New", max_version=1, layout=Transparent())\ndef new(ctx, x):\n    return x\n')
    with pytest.raises(PackError, match=r"author defines a handler for the operator, new in .*install the pack again"):
        run("author", ["CUSTOM.New"])


def test_missing_module_of_cases_suggests_a_name(failing_output: FailingOutput) -> None:
    printed = failing_output(("setup.cfg", "author.cases:cases", "author.casses:cases"))
    assert "there is no module 'author.casses'; did you mean 'author.cases'? correct the entry point" in printed


@pytest.mark.parametrize(
    ("requirement", "fact"),
    [
        ("onnx-tflite-plugin", "its requirement on onnx-tflite-plugin also allows version "),
        ("onnx-tflite-plugin>=0.2", "its requirement on onnx-tflite-plugin also allows version "),
        ("numpy", "it does not require a version of "),
    ],
)
def test_requirement_without_api_version_only_warns(
    write_pack: Callable[..., Path], capsys: pytest.CaptureFixture[str], requirement: str, fact: str
) -> None:
    write_pack(("setup.cfg", f"onnx-tflite-plugin~={VERSION}", requirement))
    assert run("author") == 0
    warning = f"although the API of that version differs; write onnx-tflite-plugin~={VERSION} in install_requires"
    assert warning in capsys.readouterr().out
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "author"])
    assert "1 problem" in listed.output
    assert re.search(rf"^problem +author: {fact}.*{re.escape(warning)}", listed.output, re.M)
    assert "warning" not in listed.output


def test_pack_for_another_version_is_named_with_the_version_to_require(write_pack: Callable[..., Path]) -> None:
    write_pack(("setup.cfg", f"onnx-tflite-plugin~={VERSION}", "onnx-tflite-plugin~=9.1.0"))
    warnings = Host().warnings
    assert any(f"write onnx-tflite-plugin~={VERSION} in its install_requires" in text for text in warnings)


def test_error_on_an_operator_suggests_a_similar_installed_name(write_pack: Callable[..., Path]) -> None:
    write_pack()
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
    write_pack: Callable[..., Path], edit: tuple[str, str], fact: str, remedy: str
) -> None:
    folder = write_pack(("setup.cfg", *edit))
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
