"""The reference names every member of the pack API, and every kind of pack."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from conformance.case import Case
from onnx_tflite_plugin.api import ActivationKernel, Call, Context, Handler, Match, Operator, Tensor, axes
from onnx_tflite_plugin.cli.scaffold import KINDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEMPLATES = ROOT / "onnx_tflite_plugin" / "templates"
HANDLERS = (DOCS / "reference" / "handlers.md").read_text(encoding="utf-8")
DECLARATIONS = (DOCS / "reference" / "declarations.md").read_text(encoding="utf-8")


def test_the_guide_names_every_kind_of_pack() -> None:
    page = (DOCS / "how-to" / "write-a-handler.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def members(kind: type) -> set[str]:
    """Return the public members of a class: fields, properties, methods."""
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
    name_pattern = re.compile(rf"`{re.escape(prefix)}(\w+)")
    assert members(kind) - set(name_pattern.findall(HANDLERS)) == set()


def test_reference_names_each_axis_helper_and_activation_kernel() -> None:
    helpers = [name for name, value in vars(axes).items() if getattr(value, "__module__", "") == axes.__name__]
    assert [name for name in helpers if not name.startswith("_") and not re.search(rf"\b{name}\b", DECLARATIONS)] == []
    assert [kernel.name for kernel in ActivationKernel if f"`{kernel.name}`" not in DECLARATIONS] == []


def test_the_reference_names_every_keyword_of_a_pattern() -> None:
    keywords = [
        name
        for name, parameter in signature(Call.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert keywords
    assert [name for name in keywords if f"{name}=" not in HANDLERS] == []


def test_the_reference_lists_every_name_of_the_kit_in_use() -> None:
    api = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), *TEMPLATES.rglob("*.txt"))]
    lines = [line for text in texts for line in re.findall(r"^ *from (conformance\.\w+) import ([\w, ]+)$", text, re.M)]
    assert lines
    unlisted = {
        f"{module}.{name}"
        for module, names in lines
        for name in names.split(", ")
        if not re.search(rf"^### `{module}`$(?:(?!^#).)*?^\| `{name}` \|", api, re.M | re.S)
    }
    assert unlisted == set()
