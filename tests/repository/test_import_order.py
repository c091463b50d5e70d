"""Tests of the import order: no import cycles, and no import of a later package.

The graph is read from the syntax trees, so imports package functions and those for type checkers count too.
A package may be imported only by packages after it in :data:`IMPORT_ORDER`.
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

IMPORT_ORDER = (
    "deferral",
    "pytest_plugin",
    "codes",
    "errors",
    "checked",
    "renamed",
    "options",
    "installed",
    "keywords",
    "garbage",
    "progress",
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
    "stage_results",
    "report_builder",
    "pipeline",
    "conversion",
    "runtime",
    "inspection",
    "page",
    "cli",
    "__main__",
)
"""Top-level modules and subpackages, in import order."""

Graph = Mapping[str, frozenset[str]]


def graph(roots: Mapping[str, Path]) -> Graph:
    """Return module -> the modules of the packages ``roots`` that it imports, at any depth."""
    files = {}
    for name, folder in roots.items():
        for file in folder.rglob("*.py"):
            parts = (name, *file.relative_to(folder).with_suffix("").parts)
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    texts = {module: (file.read_text(encoding="utf-8"), file.name == "__init__.py") for module, file in files.items()}
    return import_graph(texts)


def import_graph(texts: Mapping[str, tuple[str, bool]]) -> Graph:
    """Return the import graph of modules.

    ``texts``: module -> (source text, True for an ``__init__.py``).
    """
    edges = {}
    for module, (text, is_init) in texts.items():
        package = module if is_init else module.rpartition(".")[0]
        edges[module] = frozenset(_imported_modules(ast.parse(text), package, texts.keys())) - {module}
    return edges


def _imported_modules(tree: ast.AST, package: str, modules: Collection[str]) -> Iterator[str]:
    """Yield the imported modules.

    ``from package import module`` counts as the module, not the package.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{parent}.{base}" if base else parent
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in modules or base in modules:
                    yield full if full in modules else base


def import_cycles(edges: Graph) -> list[list[str]]:
    """Return import cycles: strongly connected components of several modules.

    Each is sorted.
    """
    reached = {module: _reachable_from(module, edges) for module in edges}
    cycles = {tuple(sorted({a, *(b for b in reached[a] if a in reached[b])})) for a in edges}
    return [list(cycle) for cycle in sorted(cycles) if len(cycle) > 1]


def _reachable_from(start: str, edges: Graph) -> set[str]:
    reachable: set[str] = set()
    pending = [start]
    while pending:
        new = edges.get(pending.pop(), frozenset()) - reachable
        reachable |= new
        pending.extend(new)
    return reachable


def forbidden_imports(edges: Graph, packages: Sequence[str]) -> list[str]:
    """Return ``module -> module`` for each import of a later package."""
    rank = {package_name: k for k, package_name in enumerate(packages)}
    return sorted(
        f"{module} -> {imported}"
        for module, imported_modules in edges.items()
        for imported in imported_modules
        if rank[_package_name(module)] < rank[_package_name(imported)]
    )


def _package_name(module: str) -> str:
    """Return the top-level name of a module.

    The root package has the rank of ``inspection``: it imports modules up to there, and ``page`` and ``cli`` import it.
    """
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
    assert import_cycles(edges) == []


def test_no_package_imports_a_later_package(package: Graph) -> None:
    assert forbidden_imports(package, IMPORT_ORDER) == []


def test_every_package_is_in_the_import_order(package: Graph) -> None:
    assert sorted({_package_name(module) for module in package}) == sorted(IMPORT_ORDER)
    assert len(set(IMPORT_ORDER)) == len(IMPORT_ORDER)


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
    edges = import_graph(
        {"p": ("", True), "p.a": (text, False), "p.b": ("import p.c", False), "p.c": ("from . import a", False)}
    )
    assert import_cycles(edges) == [["p.a", "p.b", "p.c"]]
    assert forbidden_imports(edges, ["a", "b", "c"]) == ["p.a -> p.b", "p.b -> p.c"]
    assert forbidden_imports(edges, ["c", "b", "a"]) == ["p.c -> p.a"]


def test_relative_import_from_the_parent_package_is_followed() -> None:
    edges = import_graph(
        {"p.r": ("", True), "p.r.a": ("from ..s.b import x", False), "p.s.b": ("from ..r import a", False)}
    )
    assert import_cycles(edges) == [["p.r.a", "p.s.b"]]


def test_only_metadata_modules_use_metadata_keys() -> None:
    """All other modules call the functions of the metadata modules."""
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
        in_graph = file.parent.name == "graph" and file.stem in ("model_metadata", "node_metadata", "value_metadata")
        assert "PREFIX" not in names or in_graph, file
        assert [text for text in texts if key.fullmatch(text)] == [], file
