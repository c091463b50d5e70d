"""docs/packs.md as written: its files are a pack that passes its cases; docs/handlers.md names every member."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from conformance.case import Case
from onnx_tflite_plugin.api import Call, Context, Handler, Match, Operator, Tensor, axes
from onnx_tflite_plugin.cli.new_pack import new_pack
from onnx_tflite_plugin.cli.scaffold import KINDS
from tests.helpers.pack_files import installed, python

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"^`([\w./-]+)`:\n```\w+\n(.*?)^```", re.M | re.S)
BLOCK = re.compile(r"^```py\n(.*?)^```", re.M | re.S)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of the pack that the page builds, and where it is installed."""
    root = tmp_path_factory.mktemp("docs")
    for path, text in FILE.findall((DOCS / "packs.md").read_text(encoding="utf-8")):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    installed(root / "vendor-ops", root / "site")
    return root / "vendor-ops", root / "site"


def test_the_pack_of_the_page_passes_its_cases_and_leaves_nothing_untried(pack: tuple[Path, Path]) -> None:
    folder, site = pack
    done = python(folder, site, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(folder), "--op-pack", "vendor-ops")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing-untried PASSED" in done.stdout


def test_the_page_shows_how_to_look_at_one_handler(pack: tuple[Path, Path]) -> None:
    page = (DOCS / "packs.md").read_text(encoding="utf-8")
    (shown,) = BLOCK.findall(page)
    done = python(*pack, "-c", shown)
    assert done.returncode == 0, done.stderr
    assert "Shrink" in done.stdout


def test_the_page_names_every_kind_of_pack() -> None:
    page = (DOCS / "packs.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in page for kind in KINDS)
    assert {parameter.name for parameter in new_pack.params} >= {"like", "op"}


def members(kind: type) -> set[str]:
    """The public members of a class: fields, properties, methods."""
    names = {name for name in vars(kind) if not name.startswith("_")}
    return names | {field.name for field in fields(kind)} if hasattr(kind, "__dataclass_fields__") else names


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        ("ctx.", Context),
        ("case.", Case),
        ("handler.", Handler),
        ("op.", Operator),
        ("tensor.", Tensor),
        ("match.", Match),
    ],
)
def test_the_reference_names_every_member(prefix: str, kind: type) -> None:
    page = (DOCS / "handlers.md").read_text(encoding="utf-8")
    assert [name for name in sorted(members(kind)) if not re.search(rf"`{re.escape(prefix)}{name}\b", page)] == []


def test_the_reference_names_every_ready_made_axes_and_every_keyword_of_a_pattern() -> None:
    page = (DOCS / "handlers.md").read_text(encoding="utf-8")
    public = [name for name, value in vars(axes).items() if getattr(value, "__module__", "") == axes.__name__]
    assert [name for name in public if not name.startswith("_") and not re.search(rf"\b{name}\b", page)] == []
    keywords = [name for name, one in signature(Call.__init__).parameters.items() if one.kind is one.KEYWORD_ONLY]
    assert keywords
    assert [name for name in keywords if f"{name}=" not in page] == []
