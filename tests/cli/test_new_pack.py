"""Packs written by ``new-pack`` install, and pass their tests and conformance."""

from __future__ import annotations

from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from onnx_tflite_plugin.api import VERSION, Arithmetic
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.host.offers import unmet_requirement
from tests.helpers.pack_files import install_pack, run_python

ODD = "CUSTOM.my op/50% é=:x"
KINDS = {
    "elementwise": "CUSTOM.vendor.Soft",
    "conv": "CUSTOM.conv",
    "reduction": ODD,
    "custom-struct": "CUSTOM.Settings",
    "behavior": "CUSTOM.Halved",
    "fusion": "MY_SOFTSIGN",
    "claim": "CUSTOM.Vendor*",
}


def write_pack(folder: Path, op: str, like: str = "") -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["new-pack", str(folder), "--op", op, *(["--like", like] if like else [])], prog_name="otp")
    assert exit_info.value.code == 0


PACKS = {
    "sinh-ops": "CUSTOM.Sinh",
    "Odd Name 50%": ODD,
    "composites": "COMPOSITE.odml.new_thing",
    "wrapped": "NEG",
    "lambda": "CUSTOM.class",
}


def run_pack_tests(folders: Sequence[Path], site: Path, *options: str) -> str:
    """Return the output of the packs' own tests, run in this process for speed."""
    arguments = ["-v", "-p", "no:cacheprovider", *options, *map(str, folders)]
    completed = run_python(folders[0], site, "-m", "pytest", *arguments, more_paths=folders[1:])
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_packs_pass_their_own_tests_unmodified(tmp_path: Path) -> None:
    folders, site = [tmp_path / name for name in PACKS], tmp_path / "site"
    for folder, op in zip(folders, PACKS.values(), strict=True):
        write_pack(folder, op)
        install_pack(folder, site)
    output = run_pack_tests(folders, site)
    assert output.count("::test_the_pack_is_installed PASSED") == len(PACKS)
    assert output.count("::test_conformance[") >= 5 * len(PACKS)
    assert "skipped" not in output
    assert "warning" not in output


def test_packs_of_each_kind_pass_and_cover_their_handlers(tmp_path: Path) -> None:
    folders, site = [tmp_path / f"pack-{like}" for like in KINDS], tmp_path / "site"
    for folder, (like, op) in zip(folders, KINDS.items(), strict=True):
        write_pack(folder, op, like)
        install_pack(folder, site)
    options = [f"--op-pack={folder.name}" for folder in folders]
    output = run_pack_tests(folders, site, *options)
    assert "skipped" not in output
    assert output.count("::test_the_pack_is_installed PASSED") == len(KINDS)
    assert output.count("::test_conformance[") >= len(KINDS)
    for folder in folders:
        assert f"::{folder.name}::declarations-covered PASSED" in output
    for text in ("between_convolutions] PASSED", "dynamic_shape] PASSED"):
        assert output.count(text) >= len(KINDS)


@pytest.mark.parametrize(("like", "passed"), [("target", 4), ("pass", 3)])
def test_target_pack_passes_its_own_tests(tmp_path: Path, like: str, passed: int) -> None:
    folder, site = tmp_path / "npu-pack", tmp_path / "site"
    write_pack(folder, "my-npu", like)
    install_pack(folder, site)
    output = run_pack_tests([folder], site)
    assert output.count(" PASSED") == passed
    assert "skipped" not in output
    assert not (folder / "npu_pack" / "cases.py").exists()
    assert "onnx_tflite_plugin.cases" not in (folder / "setup.cfg").read_text()


def test_printed_command_installs_what_the_tests_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tmp_path / "p", "my-npu", "pass")
    assert f'pip install -e "{tmp_path / "p"}[test]" && pytest {tmp_path / "p"}' in capsys.readouterr().out
    assert "| `p/my_npu_passes.py` |" in (tmp_path / "p" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("like", "op", "text"),
    [
        ("target", "My NPU", "--like target takes a name for the target, in lowercase: my-npu, not 'My NPU'"),
        ("target", "generic", "'generic' is a built-in target, which a pack cannot replace; choose another name"),
        ("conv", "ADD", "--like conv takes a custom operator, CUSTOM.<code>, not 'ADD'"),
        ("claim", "CUSTOM.One", "--like claim takes a family of custom operators, CUSTOM.<prefix>*, not 'CUSTOM.One'"),
        ("fusion", "CUSTOM.One", "--like fusion takes a name for the fusion, in capitals"),
        ("sum", "CUSTOM.One", "'sum' is not one of"),
    ],
)
def test_error_names_what_the_kind_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], like: str, op: str, text: str
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["new-pack", str(tmp_path / "pack"), "--op", op, "--like", like], prog_name="otp")
    assert exit_info.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("name", "op"), [("sinh-ops", "CUSTOM.Sinh"), ("wrapped", "NEG")])
def test_new_pack_passes_conformance(tmp_path: Path, name: str, op: str) -> None:
    folder, site = tmp_path / name, tmp_path / "site"
    write_pack(folder, op)
    install_pack(folder, site)
    completed = run_python(folder, site, "-m", "onnx_tflite_plugin", "conformance", "--pack", name)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_unhandled_schema_operator_gets_a_placeholder(tmp_path: Path) -> None:
    """Use any operator without a handler; the test is skipped if all have one."""
    from onnx_tflite_plugin.host.offers import discover
    from onnx_tflite_plugin.source.options import operator_names

    handled = {offer.code for offer in discover()}
    missing = sorted(
        {*operator_names().values()} - handled - {"CUSTOM", "STABLEHLO_COMPOSITE", "PLACEHOLDER_FOR_GREATER_OP_CODES"}
    )
    if not missing:
        pytest.skip("every operator has a built-in handler")
    folder, site = tmp_path / "pack", tmp_path / "site"
    write_pack(folder, missing[0])
    install_pack(folder, site)
    completed = run_python(folder, site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "remove ``reference``" in (folder / "pack" / "cases.py").read_text()


def test_adding_an_operator_keeps_existing_files(tmp_path: Path) -> None:
    folder, site = tmp_path / "grown", tmp_path / "site"
    write_pack(folder, "CUSTOM.vendor.Soft", "elementwise")
    settings = folder / "setup.cfg"
    settings.write_text(settings.read_text() + "\n[mypy]\nstrict = true\n")
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    for op, like in ((ODD, "reduction"), ("MY_SOFTSIGN", "fusion"), ("CUSTOM.Vendor*", "claim")):
        write_pack(folder, op, like)
    lines = iter(settings.read_text().splitlines())
    assert all(line in lines for line in before.pop(settings).splitlines())  # in this order
    readme = folder / "README.md"
    assert readme.read_text().startswith(before.pop(readme).rstrip())
    assert [line for line in readme.read_text().splitlines() if line.startswith("## ")][-3:] == [
        f"## {ODD}", "## MY_SOFTSIGN", "## CUSTOM.Vendor*",
    ]  # fmt: skip
    assert "\n\n\n" not in readme.read_text()
    assert {path: path.read_text() for path in before} == before
    assert {(entry.group.partition(".")[2], entry.name) for entry in install_pack(folder, site)} == {
        ("handlers", "CUSTOM.vendor.Soft"),
        ("handlers", "CUSTOM.my%20op%2F50%25%20%C3%A9%3D%3Ax"),
        ("fusions", "my_softsign"),
        ("hooks", "vendor"),
        *(("cases", name) for name in ("grown", "my_op_50_x", "my_softsign", "vendor")),
    }
    completed = run_python(
        folder, site, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(folder), "--op-pack", "grown"
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "declarations-covered PASSED" in completed.stdout
    assert "skipped" not in completed.stdout


@pytest.mark.parametrize(
    ("settings", "op", "text"),
    [
        ("[metadata]\nname = mine\n[options]\npackages = mine\n", "CUSTOM.Taken", "taken.py exists already"),
        (
            "[metadata]\nname = mine\n[options]\npackages = mine\n"
            "[options.entry_points]\nonnx_tflite_plugin.handlers =\n    CUSTOM.Other = mine.elsewhere:other\n",
            "CUSTOM.Other",
            "the pack already has an entry point CUSTOM.Other in onnx_tflite_plugin.handlers",
        ),
        ("[metadata]\nname = mine\n", "CUSTOM.Other", None),
        ("[options]\npackages = mine\n", "CUSTOM.Other", "does not name the distribution and the package"),
        ("[metadata\n", "CUSTOM.Other", "cannot be read"),
    ],
)
def test_failed_addition_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, op: str, text: str | None
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "taken.py").write_text("mine")
    (tmp_path / "setup.cfg").write_text(settings)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["new-pack", str(tmp_path), "--op", op], prog_name="otp")
    assert exit_info.value.code == (2 if text else 0)
    if text:
        assert text in capsys.readouterr().err
        assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
    else:  # the settings name no package, so the folder's only package is used
        assert (tmp_path / "mine" / "other.py").exists()


def test_test_modules_of_packs_have_distinct_names(tmp_path: Path) -> None:
    """pytest imports them by base name if it runs in the folder of several packs."""
    for name in ("one", "two"):
        write_pack(tmp_path / name, "CUSTOM.Sinh")
        write_pack(tmp_path / name, "CUSTOM.Cosh")
    modules = [path.name for path in tmp_path.rglob("test_*.py")]
    assert sorted(modules) == ["test_one.py", "test_one_cosh.py", "test_two.py", "test_two_cosh.py"]
    for name in ("one", "two"):
        assert f"| `tests/test_{name}.py` |" in (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert f"| `tests/test_{name}_cosh.py` |" in (tmp_path / name / "README.md").read_text(encoding="utf-8")


def test_behavior_scaffold_names_every_arithmetic_except_unquantized(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", "CUSTOM.Halved", "behavior")
    text = (tmp_path / "pack" / "pack" / "halved.py").read_text(encoding="utf-8")
    named = {member.name for member in Arithmetic if f"``{member.name}``: " in text}
    assert named == {*Arithmetic.__members__} - {"UNQUANTIZED"}


def test_new_pack_includes_subpackages_and_its_readme(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", "CUSTOM.Sinh")
    config = ConfigParser()
    config.read(tmp_path / "pack" / "setup.cfg", encoding="utf-8")
    assert (config["options"]["packages"], config["options.packages.find"]["exclude"]) == ("find:", "tests*")
    assert config["metadata"]["long_description"] == "file: README.md"
    assert config["metadata"]["long_description_content_type"] == "text/markdown"


def test_new_pack_is_typed(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", "CUSTOM.Sinh")
    config = ConfigParser()
    config.read(tmp_path / "pack" / "setup.cfg", encoding="utf-8")
    assert config["options.package_data"]["pack"] == "py.typed"
    assert (tmp_path / "pack" / "pack" / "py.typed").read_text() == ""


def test_new_pack_requires_the_current_version(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", "CUSTOM.Sinh")
    config = ConfigParser()
    config.read(tmp_path / "pack" / "setup.cfg", encoding="utf-8")
    requirement = config["options"]["install_requires"].strip()
    assert requirement == f"onnx-tflite-plugin~={VERSION}"
    assert not unmet_requirement((requirement,))
    assert unmet_requirement((requirement,), "9.0.0")


def test_unusual_names_are_percent_encoded(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    write_pack(folder, ODD)
    (entry,) = install_pack(folder, tmp_path / "site").select(group="onnx_tflite_plugin.handlers")
    assert entry.name == "CUSTOM.my%20op%2F50%25%20%C3%A9%3D%3Ax"
    assert "%%20op" in (folder / "setup.cfg").read_text(encoding="utf-8")
    again = tmp_path / "again"
    write_pack(again, entry.name)  # percent-encoded, as error messages print it
    assert (again / "setup.cfg").read_text(encoding="utf-8").count(entry.name.replace("%", "%%")) == 1


@pytest.mark.parametrize(
    ("name", "op", "text"),
    [
        ("taken", "ADD", "is not empty"),
        ("taken/file", "ADD", "is a file"),
        ("numpy", "ADD", "a distribution 'numpy' is installed already"),
        ("builtin", "ADD", "a pack cannot have the name 'builtin', which --packs reserves"),
        ("fine", "ADDD", "no operator 'ADDD'; did you mean ADD"),
        ("fine", "Sinh", "a custom operator is CUSTOM.Sinh"),
        ("fine", "CUSTOM", "no operator 'CUSTOM'"),
        ("fine", "CUSTOM.", "the operator's name after the dot is missing"),
        ("fine", "CUSTOM.Flex*", "is a family of operators, which a pack claims with the hook `claim`"),
    ],
)
def test_invalid_pack_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, op: str, text: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["new-pack", str(tmp_path / name), "--op", op], prog_name="otp")
    assert exit_info.value.code == 2
    assert text in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert (tmp_path / "taken" / "file").read_text() == "mine"


def test_name_option_sets_the_distribution_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, site = tmp_path / "here", tmp_path / "site"
    cli.main(["new-pack", str(folder), "--op", "CUSTOM.Sinh", "--name", "Vendor.Ops"], "otp", standalone_mode=False)
    assert "conformance --pack Vendor.Ops" in capsys.readouterr().out
    install_pack(folder, site)
    assert (folder / "vendor_ops" / "sinh.py").exists()
    assert run_pack_tests([folder], site).count("::test_the_pack_is_installed PASSED") == 1
    for name, text in (("other", "is named Vendor.Ops; leave --name out"), ("Vendor.Ops", "")):
        arguments = ["new-pack", str(folder), "--op", "CUSTOM.Cosh", "--name", name]
        with pytest.raises(SystemExit) as exit_info:
            cli.main(arguments, prog_name="otp")
        assert exit_info.value.code == (2 if text else 0)
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(("name", "text"), [("my pack", "letters, digits and . _ - only"), ("numpy", "with --name")])
def test_invalid_pack_name_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["new-pack", str(tmp_path / "pack"), "--op", "CUSTOM.Sinh", "--name", name], prog_name="otp")
    assert exit_info.value.code == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "pack").exists()


def test_new_pack_compiles_and_has_no_placeholders(tmp_path: Path) -> None:
    odd = [("", op) for op in ("CUSTOM.Sinh", "NEG", 'CUSTOM.quote"s\\and\nlines', "CUSTOM.int")]
    for number, (like, op) in enumerate([*odd, *KINDS.items()]):
        folder = tmp_path / f"pack-{number}"
        write_pack(folder, op, like)
        for path in folder.rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
