"""Search for handlers with misspelled, misplaced or missing entry points."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from onnx_tflite_plugin.codes import CUSTOM, NAMED_BY_THE_FILE
from onnx_tflite_plugin.errors import Problem
from onnx_tflite_plugin.host.offers import ALL_GROUPS, HANDLERS, Offer, canonical_name
from onnx_tflite_plugin.installed import PROJECT, entry_points, iterate_distributions

_SIMILARITY = 0.9  # minimum similarity of custom operators' names
_GROUP = re.compile(r"^\s*\[\s*([^\]]*?)\s*\]", re.M)
_GROUP_SIMILARITY = 0.85
_MAX_FILES = 200  # Python files of a pack that are searched
_DECORATOR = "handler"
_REINSTALL = "then install the pack again (pip install -e)"


class _Source(NamedTuple):
    """A Python file of a pack that defines handlers, with the pack's entry points."""

    pack: str
    entries: Sequence[EntryPoint]
    module: str
    file: Path
    text: str


class RegistrationSearch:
    """Search for packs with a misregistered handler. Files of packs are read once.

    ``unused``: unused entry points, each with its problem; the list may grow between searches. ``is_admitted``: True if
    a pack may be used.
    """

    def __init__(self, unused: Sequence[tuple[Offer, Problem]], is_admitted: Callable[[str], bool]) -> None:
        self._unused, self._is_admitted = unused, is_admitted
        self._problems: dict[str, Problem | None] = {}

    def find(self, code: str) -> Problem | None:
        """Return the problem of a pack with a misregistered handler for the operator.

        Return None if there is no such pack.
        """
        if code not in self._problems:
            self._problems[code] = self._search(code)
        return self._problems[code]

    def _search(self, code: str) -> Problem | None:
        for offer, problem in self._unused:
            if _bare_name(offer.code) == _bare_name(code):
                return Problem(code, f"{problem.where} is unused: {problem.reason.partition(': ')[2]}")
        problems = _problems_of_groups(code, self._is_admitted)
        return next(problems, None) or next(_problems_of_definitions(code, self._sources), None)

    @cached_property
    def _sources(self) -> list[_Source]:
        """Return the files of admitted packs that may define handlers."""
        sources: dict[tuple[str, Path], _Source] = {}
        for distribution in iterate_distributions():
            text = distribution.entry_points_text
            pack = distribution.name_and_requirements()[0] if text else ""
            if text and self._is_admitted(pack):
                for source in _pack_sources(pack, [*entry_points(text, ALL_GROUPS)]):
                    sources.setdefault((pack, source.file), source)
        return [*sources.values()]


def describe_similar_handler(code: str, offers: Mapping[str, Sequence[Offer]]) -> str:
    """Return a remedy that names the handler of a similar custom operator; else ""."""
    if not code.startswith(NAMED_BY_THE_FILE):
        return ""
    codes = {known.lower(): known for known in offers if known.startswith(NAMED_BY_THE_FILE)}
    matches = get_close_matches(code.lower(), codes, 1, _SIMILARITY)
    if not matches:
        return ""
    similar = codes[matches[0]]
    pack = offers[similar][0].pack
    return f"{pack} has a handler for {similar!r}; if it is the same operator, add an entry point named {code}"


def _bare_name(code: str) -> str:
    """Return an operator's name without the often forgotten prefix ``CUSTOM.``."""
    return code.removeprefix(CUSTOM).lower()


def find_misspelled_groups(pack: str) -> list[Problem]:
    """Return a problem per group of a pack that resembles an entry-point group.

    Groups that begin with the project's name are omitted: their entry points are reported as unused.
    """
    return [
        Problem(
            pack,
            f"its entry points in the group {group!r} are unused: there is no such group",
            f"write {suggestion} in setup.cfg, {_REINSTALL}",
        )
        for distribution in iterate_distributions()
        for group, suggestion in _misspelled_groups(distribution.unfiltered_entry_points)
        if canonical_name(distribution.name_and_requirements()[0]) == canonical_name(pack)
    ]


def _problems_of_groups(code: str, is_admitted: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield a problem per entry point of the operator in a misspelled group."""
    for distribution in iterate_distributions():
        text = distribution.unfiltered_entry_points
        for group, suggestion in _misspelled_groups(text) if code in unquote(text) else ():
            pack = distribution.name_and_requirements()[0]
            if code in [unquote(e.name) for e in entry_points(text, [group])] and is_admitted(pack):
                fact = f"{pack} has an entry point for the operator in the group {group!r}, which does not exist"
                yield Problem(code, fact, f"write {suggestion} in setup.cfg, {_REINSTALL}")


def _misspelled_groups(text: str) -> Iterator[tuple[str, str]]:
    """Yield (group, similar group of this project) of misspelled groups."""
    for group in _GROUP.findall(text):
        suggestion = get_close_matches(group, ALL_GROUPS, 1, _GROUP_SIMILARITY)
        if suggestion and group not in ALL_GROUPS and not group.startswith(f"{PROJECT}."):
            yield group, suggestion[0]


def _problems_of_definitions(code: str, sources: Sequence[_Source]) -> Iterator[Problem]:
    """Yield a problem per function that is decorated as a handler of the operator."""
    for source in sources:
        for function, line in _definitions(source.text, code):
            target = f"{source.module}:{function}"
            handlers = (entry for entry in source.entries if entry.group == HANDLERS)
            wrong_name = next((entry.name for entry in handlers if entry.value.replace(" ", "") == target), "")
            fact = (
                f"the entry point of the function is named {wrong_name}"
                if wrong_name
                else "the function has no entry point"
            )
            remedy = (
                f"rename the entry point to {code} in setup.cfg"
                if wrong_name
                else f"make sure that setup.cfg lists {code} = {target} in {HANDLERS}"
            )
            where = f"{source.file}:{line}"
            yield Problem(
                code,
                f"{source.pack} defines a handler for the operator, {function} in {where}, but {fact}",
                f"{remedy}, {_REINSTALL}",
            )


def _pack_sources(pack: str, entries: Sequence[EntryPoint]) -> Iterator[_Source]:
    """Yield files that may define handlers, in the packages that entry points name."""
    for name in dict.fromkeys(entry.value.partition(":")[0].partition(".")[0].strip() for entry in entries):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):  # a module without a specification
            continue
        if spec is None:
            continue
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
        files = [file for folder in folders for file in sorted(folder.rglob("*.py"))[:_MAX_FILES]]
        for file in files or [Path(spec.origin or "")]:
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, ValueError):  # the file is not reported: its import fails with a message
                continue
            if _DECORATOR in text:
                root = next((folder.parent for folder in folders if file.is_relative_to(folder)), file.parent)
                parts = file.relative_to(root).with_suffix("").parts
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                yield _Source(pack, entries, module, file, text)


def _definitions(text: str, code: str) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each function decorated as a handler of the operator."""
    try:
        body = ast.parse(text).body if code in text else []
    except (ValueError, SyntaxError):
        return
    constant_names = {
        target.id
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == code
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in (node for node in body if isinstance(node, ast.FunctionDef)):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == _DECORATOR and call.args:
                argument = call.args[0]
                is_code = isinstance(argument, ast.Constant) and argument.value == code
                if is_code or (isinstance(argument, ast.Name) and argument.id in constant_names):
                    yield node.name, node.lineno
