"""Metadata that depends on the address of the repository."""

from __future__ import annotations

import re
import runpy
from configparser import ConfigParser
from pathlib import Path

import pytest

from tools import texts

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = [ROOT, *sorted(file.parent for file in (ROOT / "packs").glob("*/setup.cfg"))]
SETUP = runpy.run_path(str(ROOT / "setup.py"))


@pytest.mark.parametrize("address", ["", "https://example.org/us/project"])
def test_readme_for_the_package_index_has_no_relative_links(address: str) -> None:
    text = SETUP["long_description"](address)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith(("https://", "http://", "#")) for link in links)
    assert ("/blob/main/docs/index.md" in text) is bool(address)


def test_no_address_is_invented() -> None:
    address = SETUP["repository"]()
    assert not address or address.startswith("https://")


def test_every_ci_lint_runs_before_a_commit() -> None:
    ci, hooks = (ROOT / ".ci" / "run").read_text(), (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in ("ruff check", "ruff format", "mypy", "python -m tools.language"):
        assert tool in ci
        assert f"entry: {tool}" in hooks


def test_ci_tests_each_system_and_python_version_of_the_readme() -> None:
    jobs = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "os: [ubuntu-latest, macos-latest, windows-latest]" in jobs
    assert 'python: ["3.11", "3.12", "3.13"]' in jobs
    assert "Python 3.11 to 3.13 on Linux, macOS or Windows" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_files_are_found_outside_of_a_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The language check also works in an unpacked archive, without git."""
    for name in ("a.py", "docs/b.md", ".venv/c.py", "x.egg-info/d.py", "build/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(texts, "ROOT", tmp_path)
    assert texts.list_files(".py", ".md") == ["a.py", "docs/b.md"]


def read_setup(folder: Path) -> ConfigParser:
    config = ConfigParser()
    config.read(folder / "setup.cfg", encoding="utf-8")
    return config


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_every_distribution_has_the_metadata_of_a_package_index(folder: Path) -> None:
    metadata = read_setup(folder)["metadata"]
    assert metadata["license_expression"] == "Apache-2.0"
    licenses = metadata["license_files"].split()
    assert licenses[0] == "LICENSE"
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert metadata["author"]
    assert metadata["keywords"]
    classifiers = metadata["classifiers"].split("\n")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= {*classifiers}
    assert not any(
        classifier.startswith("License ::") for classifier in classifiers
    )  # not allowed together with license_expression


@pytest.mark.parametrize("folder", DISTRIBUTIONS[1:], ids=lambda folder: folder.name)
def test_packs_require_the_same_versions_as_the_converter(folder: Path) -> None:
    converter_requirements = {*read_setup(ROOT)["options"]["install_requires"].split("\n")}
    requirement_of = {re.split(r"[<>=~!]", text)[0]: text for text in converter_requirements}
    for text in filter(None, read_setup(folder)["options"]["install_requires"].split("\n")):
        assert text == requirement_of.get(re.split(r"[<>=~!]", text)[0], text)
