"""Installed distributions, read without importing any of them.

``importlib.metadata`` makes a path of each, and parses all of a file, ``METADATA`` as an email: of 300 packs that takes 100 ms.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint
from typing import NamedTuple

PROJECT = "onnx_tflite_plugin"
"""The prefix of the entry point groups; equal to ``api.hooks.PROJECT``, which would take numpy to import."""

_NAME, _REQUIRED = (re.compile(rf"^{field}:(.*)$", re.M | re.I) for field in ("Name", "Requires-Dist"))


class Installed(NamedTuple):
    """One distribution: the folder of its metadata, or as another finder than that of ``sys.path`` has it."""

    place: str | Distribution

    @property
    def offered(self) -> str:
        """The text of its entry points, empty where none is of the project's groups."""
        text = self._text("entry_points.txt")
        return text if f"[{PROJECT}." in text else ""

    def name_and_requirements(self) -> tuple[str, tuple[str, ...]]:
        """The headers before the first empty line of METADATA."""
        headers = self._text("METADATA").replace("\r\n", "\n").partition("\n\n")[0]
        name = _NAME.search(headers)
        if name is None:  # installed by an older tool, as PKG-INFO
            whole = Distribution.at(self.place) if isinstance(self.place, str) else self.place
            return whole.metadata["Name"] or "unknown", tuple(whole.requires or ())
        return name[1].strip(), tuple(text.strip() for text in _REQUIRED.findall(headers))

    def _text(self, name: str) -> str:
        """One file of the metadata, empty where there is none."""
        if isinstance(self.place, Distribution):
            return self.place.read_text(name) or ""
        try:
            with open(f"{self.place}/{name}", "rb", buffering=0) as file:
                return file.read().decode()
        except (FileNotFoundError, NotADirectoryError):
            return ""


def installed() -> Iterator[Installed]:
    """Every distribution, first on the path first."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            for folder in sys.path:
                yield from map(Installed, _listed(folder))
        elif find := getattr(finder, "find_distributions", None):
            yield from map(Installed, find())


def _listed(folder: str) -> Iterator[str | Distribution]:
    """What lies in one entry of the path: in a folder the folders of metadata, else (a zip archive) what Python finds."""
    if os.path.isdir(folder) and not folder.endswith(".egg"):
        yield from (
            os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))
        )
    else:
        yield from Distribution.discover(path=[folder])


def entry_points(text: str, groups: Collection[str]) -> Iterator[EntryPoint]:
    """Those of some groups in the text of a file (https://packaging.python.org/specifications/entry-points).

    Raises ValueError where it does not parse.
    """
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in groups and line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} is no entry point")
            yield EntryPoint(name.strip(), value.strip(), group)
