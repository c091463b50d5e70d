"""Names and texts of a new pack, and entry points added to an existing pack."""

from __future__ import annotations

import ast
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.cli.failures import UsageProblem
from onnx_tflite_plugin.cli.new_pack import _default_kind, _distribution
from onnx_tflite_plugin.cli.pack_config import Pack
from onnx_tflite_plugin.cli.scaffold import KINDS, check_kind, files, files_for_pack, identifier, literal
from tools.language import read_rules
from tools.texts import page_texts, python_texts

GROUP = "onnx_tflite_plugin.handlers"


@pytest.mark.parametrize("text", ["plain", 'a "quote"', "back\\slash", "it's", "new\nline", "", "žluť"])
def test_literals_use_double_quotes_unless_escaped(text: str) -> None:
    source = literal(text)
    assert ast.literal_eval(source) == text
    assert "\n" not in source
    assert source.startswith('"') is (text in ("plain", "it's", "", "žluť"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My.Op-2", "my_op_2"),
        ("__x__", "x"),
        ("é", "p"),
        ("3d", "p_3d"),
        ("class", "p_class"),
        ("match", "p_match"),
        ("handler", "p_handler"),
        ("json", "p_json"),
        ("x" * 39 + "_yz", "x" * 39),
        ("y" * 50, "y" * 40),
    ],
)
def test_identifiers_are_valid_and_not_reserved(text: str, name: str) -> None:
    assert identifier(text, "p") == name


@pytest.mark.parametrize(
    ("like", "accepted", "refused"),
    [
        ("conv", "CUSTOM.x", ("ADD", "CUSTOM.x*", "COMPOSITE.x")),
        ("fusion", "MY_2", ("My", "2MY", "MY-2", "MY_2 ")),
        ("claim", "CUSTOM.x*", ("CUSTOM.x", "CUSTOM.*x*", "X*", "CUSTOM.*x")),
    ],
)
def test_each_kind_accepts_only_its_operators(like: str, accepted: str, refused: tuple[str, ...]) -> None:
    check_kind(accepted, like)
    for code in refused:
        with pytest.raises(UsageProblem, match=f"--like {like} takes {KINDS[like].expected_code[:9]}"):
            check_kind(code, like)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("CUSTOM.x", "elementwise"), ("COMPOSITE.x", "reference"), ("ADD", "wrapped")],
)
def test_kind_of_a_pack_follows_from_its_operator(code: str, kind: str) -> None:
    assert _default_kind(code) == kind


@pytest.mark.parametrize("folder", ["---", "é"])
def test_distribution_name_defaults_to_op_pack(tmp_path: Path, folder: str) -> None:
    assert _distribution(tmp_path / folder, None) == "op-pack"
    assert _distribution(tmp_path / "My_Ops 2", None) == "my-ops-2"


@pytest.mark.parametrize(
    ("code", "title"),
    [("CUSTOM.50% more", "CUSTOM.50% more"), ('CUSTOM.a"b', "a_b"), ("CUSTOM.a\\b", "a_b"), ("CUSTOM.a\nb", "a_b")],
)
def test_readme_title_is_the_operator_code_unless_it_needs_escaping(code: str, title: str) -> None:
    """A percent sign in setup.cfg starts an interpolation."""
    pack_files = files(code, "elementwise", "mine", "mine")
    assert title in pack_files["README.md"]
    assert "%%" not in pack_files["README.md"]
    config = ConfigParser()
    config.read_string(pack_files["setup.cfg"])
    assert config["metadata"]["description"] == "Op pack mine for onnx-tflite-plugin"
    assert config["metadata"]["name"] == "mine"
    assert config["options"]["install_requires"].strip().endswith(f"~={VERSION}")


def test_added_operator_has_its_own_files_and_entry_points() -> None:
    pack_files, entries = files_for_pack("CUSTOM.my Op", "elementwise", "mine", "package")
    assert [*pack_files] == ["package/my_op.py", "package/my_op_cases.py", "tests/test_package_my_op.py"]
    assert entries == {
        GROUP: "CUSTOM.my%%20Op = package.my_op:my_op",
        "onnx_tflite_plugin.cases": "my_op = package.my_op_cases:cases",
    }


# --- an existing pack -------------------------------------------------------------------------


def lines_with_entry_point(text: str, entry: str = "B = p.b:b") -> list[str]:
    return Pack(Path(), "mine", "p", text).with_entry_points({GROUP: entry}).splitlines()


def test_appends_an_entry_point_to_its_group() -> None:
    elsewhere = f"[x]\n{GROUP} =\n    no = group\n[options.entry_points]\nother =\n    A = a\n\n"
    before = f"{elsewhere}{GROUP} =\n    A = p.a:a\n\nlast:\n    Z = z\n[y]\n"
    lines = before.splitlines()
    position = lines.index("    A = p.a:a") + 1
    assert lines_with_entry_point(before) == [*lines[:position], "    B = p.b:b", *lines[position:]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[x]\na = 1\n", ["[x]", "a = 1", "", "[options.entry_points]", f"{GROUP} =", "    B = p.b:b"]),
        ("[options.entry_points]\n\n[x]\n", ["[options.entry_points]", f"{GROUP} =", "    B = p.b:b", "", "[x]"]),
        (
            "[options.entry_points]\nother =\n    A = a\n\n[x]\n",
            ["[options.entry_points]", "other =", "    A = a", f"{GROUP} =", "    B = p.b:b", "", "[x]"],
        ),
        (
            f"[options.entry_points]\n{GROUP}:\n    B2 = p.b:b\n",
            ["[options.entry_points]", f"{GROUP}:", "    B2 = p.b:b", "    B = p.b:b"],
        ),
    ],
)
def test_creates_a_missing_group_or_section(before: str, after: list[str]) -> None:
    assert lines_with_entry_point(before) == after


def test_rejects_an_existing_entry_point() -> None:
    with pytest.raises(UsageProblem, match=f"the pack already has an entry point B in {GROUP}"):
        lines_with_entry_point(f"[options.entry_points]\n{GROUP} =\n    A = a\n    B=elsewhere\n")


@pytest.mark.parametrize(("packages", "package"), [("z", "z"), ("z u", "z"), ("find:", "u"), ("", "u")])
def test_finds_the_package_of_a_pack(tmp_path: Path, packages: str, package: str) -> None:
    for name in ("u", "tests", "z", "a"):
        (tmp_path / name).mkdir()
        if name != "a":
            (tmp_path / name / "__init__.py").touch()
    assert Pack.read(tmp_path) is None
    assert Pack.read(tmp_path / "none") is None
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = %mine\n[options]\npackages = {packages}\n")
    pack = Pack.read(tmp_path)
    assert pack is not None
    assert (pack.folder, pack.distribution, pack.package) == (tmp_path, "%mine", package)


@pytest.mark.parametrize("packages", ["elsewhere", "p-q", "tests/p"])
def test_rejects_a_pack_without_a_package(tmp_path: Path, packages: str) -> None:
    (tmp_path / "p-q").mkdir()
    (tmp_path / "tests" / "p").mkdir(parents=True)
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = mine\n[options]\npackages = {packages}\n")
    with pytest.raises(UsageProblem, match="does not name the distribution and the package"):
        Pack.read(tmp_path)


OPERATOR_OF_KIND = {
    **dict.fromkeys(("elementwise", "conv", "reduction", "custom-struct", "behavior"), "CUSTOM.Acme"),
    "fusion": "ACME",
    "claim": "CUSTOM.acme.*",
    "target": "my-acme",
    "wrapped": "ABS",
    "reference": "COMPOSITE.acme",
}


@pytest.fixture
def scaffold(tmp_path: Path, like: str) -> Path:
    """Create a folder with the files of a pack."""
    for name, content in files(OPERATOR_OF_KIND[like], like, "acme", "acme").items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("like", OPERATOR_OF_KIND)
def test_new_pack_is_formatted_and_passes_linters(scaffold: Path) -> None:
    pytest.importorskip("ruff")  # the environment with minimum dependency versions has no linters
    for command in (
        ["check", "--select", "E,F,I,UP", "--line-length", "140"],
        ["format", "--check", "--line-length", "120"],
    ):
        completed = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", "."],
            cwd=scaffold,
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize("like", OPERATOR_OF_KIND)
def test_new_pack_passes_the_language_check(scaffold: Path) -> None:
    rules = read_rules()
    pages = [text for page in scaffold.rglob("*.md") for text in page_texts(str(page))]
    modules = [text for module in scaffold.rglob("*.py") for text in python_texts(str(module))]
    assert [problem for text in (*pages, *modules) for problem in rules.problems(text)] == []
