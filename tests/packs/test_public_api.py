"""The public API changes only with its version.

``python tests/packs/test_public_api.py`` updates the record, after an entry in CHANGELOG.md (CONTRIBUTING.md, "Versions").
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest

from onnx_tflite_plugin import api
from onnx_tflite_plugin.api import hooks as hookspecs

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("public_api.txt")
UPDATE = "if intended, add it to CHANGELOG.md, update api.VERSION, and run: python tests/packs/test_public_api.py"


def describe_api() -> str:
    """Return every public name with its signature, fields and members, one per line."""
    lines = [line for name in api.__all__ if name != "VERSION" for line in _describe(name, getattr(api, name))]
    marker = f"{hookspecs.PROJECT}_spec"
    hooks = {name: function for name, function in vars(hookspecs).items() if hasattr(function, marker)}
    lines += [f"hook {name}{_signature(function)}" for name, function in hooks.items()]
    return "\n".join(lines) + "\n"


def test_reference_lists_every_name_once() -> None:
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    section = text.partition("\n## `conformance`")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.M)) == sorted(api.__all__)


def _describe(name: str, value: Any) -> Iterator[str]:
    if value is Any:
        yield f"{name} = Any"
    elif inspect.isclass(value):
        yield f"class {name}"
        yield from (f"    {line}" for line in _members(value))
    elif inspect.isfunction(value):
        yield f"def {name}{_signature(value)}"
    elif isinstance(value, UnionType):
        yield f"{name} = {' | '.join(member.__name__ for member in get_args(value))}"
    else:
        yield f"{name} = {getattr(get_origin(value), '__name__', type(value).__name__)}"


def _members(kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield from kind.__members__
        return
    dataclass_fields = {field.name: field for field in fields(kind)} if is_dataclass(kind) else {}
    for field in dataclass_fields.values():
        optional = "" if field.default is field.default_factory else " = ..."
        yield f"{field.name}: {field.type}{optional}"
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if name.startswith("_") or name in dataclass_fields or not base.__module__.startswith("onnx_tflite_plugin"):
                continue
            if isinstance(value, property):
                yield f"{name}: {inspect.signature(value.fget).return_annotation}"  # type: ignore[arg-type]
            elif inspect.isfunction(value):
                yield f"def {name}{_signature(value)}"


def _signature(function: Any) -> str:
    text = str(inspect.signature(function))
    return re.sub(r"<function <lambda> at 0x[0-9a-f]+>", "...", text).replace("'", "")


def test_public_api_matches_its_record() -> None:
    recorded, current = (text.splitlines() for text in (FILE.read_text(encoding="utf-8"), describe_api()))
    removed, added = ([line for line in a if line not in b] for a, b in ((recorded, current), (current, recorded)))
    assert (removed, added) == ([], []), UPDATE
    assert recorded == current, UPDATE


def test_distribution_has_the_version_of_the_api() -> None:
    assert "version = attr: onnx_tflite_plugin.api.VERSION" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert version("onnx-tflite-plugin") == api.VERSION, "install the checkout again: pip install -e ."
    newest = next(
        line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "
    )
    assert newest.split()[1] == api.VERSION


HANDLERS = sorted((ROOT / "op_handlers").rglob("*.py"))
TEMPLATES = sorted((ROOT / "onnx_tflite_plugin" / "templates" / "pack").glob("*handler*.txt"))


@pytest.mark.parametrize("file", [*HANDLERS, *TEMPLATES], ids=lambda file: file.stem)
def test_handlers_import_only_the_api(file: Path) -> None:
    source = re.sub(r"\$\w+", "name", file.read_text(encoding="utf-8"))
    assert [module for module in imported_modules(ast.parse(source)) if is_private(module)] == []


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield all imported modules, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def is_private(module: str) -> bool:
    """True for modules that a pack must not import."""
    return module.split(".")[0] in ("onnx_tflite_plugin", "conformance", "onnx", "onnx_ir", "tflite") and (
        module != "onnx_tflite_plugin.api"
    )


def test_import_rule_finds_violations() -> None:
    source = "import onnx\nfrom onnx_tflite_plugin.api.axes import axis_names\nfrom onnx_tflite_plugin.api import out\nimport numpy"
    assert [module for module in imported_modules(ast.parse(source)) if is_private(module)] == [
        "onnx",
        "onnx_tflite_plugin.api.axes",
    ]


if __name__ == "__main__":
    FILE.write_text(describe_api(), encoding="utf-8")
