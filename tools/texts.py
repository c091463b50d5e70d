"""Human-readable texts of the repository: docstrings, messages and pages."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MIN_WORDS = 4
"""Minimum number of words of a message; shorter strings are names, keys and formats."""
_UNTRACKED = re.compile(r"(^|/)(\.|__pycache__/|build/|dist/|node_modules/|[^/]*\.egg-info/)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Text:
    """A text with its path and line.

    Whitespace is collapsed; expressions of f-strings are in braces.
    """

    path: str
    line: int
    text: str
    is_docstring: bool = False

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def list_files(*suffixes: str) -> list[str]:
    """Return the files under version control with one of these suffixes.

    Paths are relative to the repository. In an unpacked archive without git, all files are listed except those in
    hidden and generated folders.
    """
    try:
        output = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        paths = output.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file())
        paths = [path for path in paths if not _UNTRACKED.search(path)]
    return [path for path in paths if path.endswith(suffixes)]


def python_texts(path: str) -> Iterator[Text]:
    """Yield the docstrings and messages of a Python file, in the order of its lines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    docstrings = {
        id(statement.value)  # includes docstrings after constants and fields
        for node in ast.walk(tree)
        if isinstance(node, _DOCUMENTED)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    yield from _python_texts(path, tree, docstrings)


def page_texts(path: str) -> Iterator[Text]:
    """Yield the lines of a Markdown page without code."""
    page = (ROOT / path).read_text(encoding="utf-8")
    prose = _CODE.sub(lambda code: "\n" * code[0].count("\n"), page)
    yield from (Text(path, number, line) for number, line in enumerate(prose.splitlines(), 1) if line.strip())


def _python_texts(path: str, node: ast.AST, docstrings: set[int]) -> Iterator[Text]:
    literal = _literal(node)
    if literal is None:
        for child in ast.iter_child_nodes(node):
            yield from _python_texts(path, child, docstrings)
        return
    assert isinstance(node, ast.expr)
    text = " ".join(literal.split())
    is_docstring = id(node) in docstrings
    if is_docstring or len(text.split()) >= MIN_WORDS:
        yield Text(path, node.lineno, text, is_docstring)


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{ast.unparse(p.value)}}}" if isinstance(p, ast.FormattedValue) else str(p.value)
            for p in node.values
            if isinstance(p, ast.FormattedValue | ast.Constant)
        )
    return None
