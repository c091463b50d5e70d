"""Metadata of installed distributions, read without importing any of them.

``importlib.metadata`` takes 100 ms for 300 packs: it creates a path for each distribution, and parses whole files
(``METADATA`` as an email).
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
"""Prefix of the entry point groups; equal to ``api.hooks.PROJECT``, whose import would load numpy."""

_NAME, _REQUIRED = (re.compile(rf"^{field}:(.*)$", re.M | re.I) for field in ("Name", "Requires-Dist"))


class InstalledDistribution(NamedTuple):
    """An installed distribution.

    ``location``: the folder of its metadata, or the object that a custom finder returns.
    """

    location: str | Distribution

    @property
    def entry_points_text(self) -> str:
        """Return the text of the entry points; empty if none is in the project's groups."""
        text = self.unfiltered_entry_points
        return text if f"[{PROJECT}." in text else ""

    @property
    def unfiltered_entry_points(self) -> str:
        """Return the text of all entry points, whatever their group."""
        return self._text("entry_points.txt")

    def name_and_requirements(self) -> tuple[str, tuple[str, ...]]:
        """Return name and requirements from the headers of METADATA, up to an empty line."""
        headers = self._text("METADATA").replace("\r\n", "\n").partition("\n\n")[0]
        name = _NAME.search(headers)
        if name is None:  # installed by an older tool, as PKG-INFO
            distribution = Distribution.at(self.location) if isinstance(self.location, str) else self.location
            return distribution.metadata["Name"] or "unknown", tuple(distribution.requires or ())
        return name[1].strip(), tuple(text.strip() for text in _REQUIRED.findall(headers))

    def _text(self, name: str) -> str:
        """Return the text of a metadata file; empty if the file does not exist."""
        if isinstance(self.location, Distribution):
            return self.location.read_text(name) or ""
        try:
            with open(f"{self.location}/{name}", "rb", buffering=0) as file:
                return file.read().decode()
        except (FileNotFoundError, NotADirectoryError):
            return ""


def iterate_distributions() -> Iterator[InstalledDistribution]:
    """Yield every installed distribution, in the order of ``sys.path``."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            for folder in sys.path:
                yield from map(InstalledDistribution, _find_metadata(folder))
        elif find := getattr(finder, "find_distributions", None):
            yield from map(InstalledDistribution, find())


def _find_metadata(folder: str) -> Iterator[str | Distribution]:
    """Yield the metadata folders in an entry of ``sys.path``.

    For a zip archive, yield the distributions that ``importlib.metadata`` finds.
    """
    if os.path.isdir(folder) and not folder.endswith(".egg"):
        yield from (
            os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))
        )
    else:
        yield from Distribution.discover(path=[folder])


def entry_points(text: str, groups: Collection[str]) -> Iterator[EntryPoint]:
    """Yield the entry points of some groups. Raises ValueError for malformed text.

    The format is that of https://packaging.python.org/specifications/entry-points.
    """
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in groups and line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} is not an entry point")
            yield EntryPoint(name.strip(), value.strip(), group)


def target_names() -> list[str]:
    """Return the names of the targets of all installed packs, in alphabetical order."""
    entries = (
        entry
        for distribution in iterate_distributions()
        for entry in entry_points(distribution.entry_points_text, [f"{PROJECT}.targets"])
    )
    return sorted({entry.name for entry in entries})
