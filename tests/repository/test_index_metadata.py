"""Metadata that depends on the address of the repository, which may not be known yet."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = runpy.run_path(str(ROOT / "setup.py"))


@pytest.mark.parametrize("address", ["", "https://example.org/us/project"])
def test_readme_of_an_index_has_no_relative_links(address: str) -> None:
    text = SETUP["long_description"](address)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith(("https://", "http://", "#")) for link in links)
    assert ("/blob/main/docs/index.md" in text) is bool(address)


def test_no_address_is_invented() -> None:
    address = SETUP["repository"]()
    assert not address or address.startswith("https://")


def test_every_lint_of_ci_runs_before_a_commit() -> None:
    ci, hooks = (ROOT / ".ci" / "run").read_text(), (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in ("ruff check", "ruff format", "mypy"):
        assert tool in ci
        assert f"entry: {tool}" in hooks
