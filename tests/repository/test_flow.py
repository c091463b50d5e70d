"""Tests of the import order: no import cycles, and no import of a later package.

The graph is read from the syntax trees, so imports inside functions and those for type checkers count: a circle that
runs late is a circle. Rooms may be imported only by rooms further down in :data:`ROOMS`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import conformance
import onnx_tflite_plugin
import op_handlers

PACKAGE = "onnx_tflite_plugin"

ROOMS = (
    "deferral",
    "pytest_plugin",
    "codes",
    "errors",
    "checked",
    "renamed",
    "options",
    "progress",
    "installed",
    "source",
    "api",
    "guard",
    "targets",
    "graph",
    "files",
    "shared_weights",
    "binding",
    "host",
    "quantization",
    "layout",
    "lowering",
    "rewrite",
    "normalize",
    "presentation",
    "verify",
    "target_options",
    "report",
    "diagnosis",
    "pipeline",
    "conversion",
    "runtime",
    "inspection",
    "page",
    "cli",
    "__main__",
)
"""Modules and subpackages at the top of the package, each after all that it imports."""

Graph = Mapping[str, frozenset[str]]


def graph(roots: Mapping[str, Path]) -> Graph:
    """Return each module with the modules of these packages that it imports anywhere."""
    files = {}
    for name, folder in roots.items():
        for file in folder.rglob("*.py"):
            parts = (name, *file.relative_to(folder).with_suffix("").parts)
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    texts = {module: (file.read_text(encoding="utf-8"), file.name == "__init__.py") for module, file in files.items()}
    return imports(texts)


def imports(texts: Mapping[str, tuple[str, bool]]) -> Graph:
    """Return the same from texts; the flag is True for a package's ``__init__``."""
    edges = {}
    for module, (text, package) in texts.items():
        inside = module if package else module.rpartition(".")[0]
        edges[module] = frozenset(_imported_modules(ast.parse(text), inside, texts.keys())) - {module}
    return edges


def _imported_modules(tree: ast.AST, inside: str, modules: Collection[str]) -> Iterator[str]:
    """Return the imported modules; ``from package import module`` counts as the module, not the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = inside.rsplit(".", node.level - 1)[0] if node.level > 1 else inside
                base = f"{parent}.{base}" if base else parent
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in modules or base in modules:
                    yield full if full in modules else base


def circles(edges: Graph) -> list[list[str]]:
    """Return import cycles: strongly connected components of more than one module, each sorted."""
    reached = {module: _reachable_from(module, edges) for module in edges}
    rings = {tuple(sorted({a, *(b for b in reached[a] if a in reached[b])})) for a in edges}
    return [list(ring) for ring in sorted(rings) if len(ring) > 1]


def _reachable_from(start: str, edges: Graph) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), frozenset()) - seen
        seen |= new
        waiting.extend(new)
    return seen


def upward(edges: Graph, rooms: Sequence[str]) -> list[str]:
    """Return ``module -> module`` for each import of a later package."""
    rank = {room: k for k, room in enumerate(rooms)}
    return sorted(
        f"{module} -> {other}"
        for module, others in edges.items()
        for other in others
        if rank[_room(module)] < rank[_room(other)]
    )


def _room(module: str) -> str:
    """Return the room of a module; the root package belongs to the room of ``convert``, which it re-exports."""
    return [*module.split("."), "inspection"][1]


@pytest.fixture(scope="module")
def package() -> Graph:
    return graph({PACKAGE: Path(onnx_tflite_plugin.__file__).parent})


def test_no_import_cycles() -> None:
    roots = {
        module.__name__: Path(str(module.__file__)).parent for module in (onnx_tflite_plugin, op_handlers, conformance)
    }
    edges = graph(roots)
    assert len(edges) > 250
    assert circles(edges) == []


def test_no_room_imports_a_later_room(package: Graph) -> None:
    assert upward(package, ROOMS) == []


def test_every_room_is_in_the_import_order(package: Graph) -> None:
    assert sorted({_room(module) for module in package}) == sorted(ROOMS)
    assert len(set(ROOMS)) == len(ROOMS)


@pytest.mark.parametrize(
    "text",
    [
        "from p.b import x",
        "from p import b",
        "import p.b",
        "from .b import x",
        "from . import b",
        "def f():\n    from p.b import x",
        "if TYPE_CHECKING:\n    from p.b import x",
    ],
)
def test_every_form_of_import_counts_for_cycles(text: str) -> None:
    edges = imports(
        {"p": ("", True), "p.a": (text, False), "p.b": ("import p.c", False), "p.c": ("from . import a", False)}
    )
    assert circles(edges) == [["p.a", "p.b", "p.c"]]
    assert upward(edges, ["a", "b", "c"]) == ["p.a -> p.b", "p.b -> p.c"]
    assert upward(edges, ["c", "b", "a"]) == ["p.c -> p.a"]


def test_relative_import_from_the_parent_package_is_followed() -> None:
    edges = imports({"p.r": ("", True), "p.r.a": ("from ..s.b import x", False), "p.s.b": ("from ..r import a", False)})
    assert circles(edges) == [["p.r.a", "p.s.b"]]


def test_only_one_module_uses_metadata_keys() -> None:
    """All other modules use its functions."""
    folder = Path(onnx_tflite_plugin.__file__).parent
    key = re.compile(
        r"onnx_tflite_plugin\.(state|weights|operators|handler|pack|tensor|form|order|shift|signature|part)\b"
    )
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert "PREFIX" not in names, file
        assert [text for text in texts if key.fullmatch(text)] == [], file
