"""Addition of entry points to the ``setup.cfg`` of an existing pack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass
from pathlib import Path

from onnx_tflite_plugin.cli.failures import UsageProblem

FILE = "setup.cfg"
_SECTION = "[options.entry_points]"


@dataclass(frozen=True)
class Pack:
    """Folder, names and ``setup.cfg`` text of a pack.

    ``package``: the Python package to which handlers are added.
    """

    folder: Path
    distribution: str
    package: str
    text: str

    @classmethod
    def read(cls, folder: Path) -> Pack | None:
        """Return the pack in a folder, or ``None`` if the folder has no ``setup.cfg``.

        Raises UsageProblem if the file lacks the distribution name or the package.
        """
        try:
            text = (folder / FILE).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        config = ConfigParser(interpolation=None)
        try:
            config.read_string(text)
        except Error as error:
            raise UsageProblem(f"{folder / FILE} cannot be read: {' '.join(str(error).split())}") from error
        name = config.get("metadata", "name", fallback="").strip()
        packages = config.get("options", "packages", fallback="").split()
        if not packages or packages[0].startswith("find"):
            packages = sorted(path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name != "tests")
        if not name or not packages or not packages[0].isidentifier() or not (folder / packages[0]).is_dir():
            raise UsageProblem(
                f"{folder / FILE} does not name the distribution and the package to which a handler is added"
            )
        return cls(folder, name, packages[0], text)

    def with_entry_points(self, entries: Mapping[str, str]) -> str:
        """Return the text of ``setup.cfg`` with one more entry point per group.

        ``entries``: the new entry point of each group. Raises UsageProblem if the name of an entry point is taken.
        """
        lines = self.text.splitlines()
        if _SECTION not in map(str.strip, lines):
            lines += ["", _SECTION]
        for group, entry in entries.items():
            _add_entry(lines, group, entry)
        return "\n".join(lines) + "\n"


def _add_entry(lines: list[str], group: str, entry: str) -> None:
    """Insert an entry point at the end of its group; create a missing group.

    Raises UsageProblem if the name is taken.
    """
    first = next(k for k, line in enumerate(lines) if line.strip() == _SECTION) + 1
    end = next((k for k in range(first, len(lines)) if lines[k].startswith("[")), len(lines))
    start = next((k for k in range(first, end) if re.match(rf"{re.escape(group)}\s*[=:]", lines[k])), None)
    if start is None:
        filled = [k for k in range(first, end) if lines[k].strip()]
        insert_at = filled[-1] + 1 if filled else first
        lines[insert_at:insert_at] = [f"{group} =", f"    {entry}"]
        return
    last = next((k for k in range(start + 1, end) if lines[k].strip() and not lines[k][0].isspace()), end)
    block = [k for k in range(start, last) if lines[k].strip()]
    name = entry.partition(" = ")[0]
    if any(lines[k].partition("=")[0].strip() == name for k in block[1:]):
        raise UsageProblem(f"the pack already has an entry point {name} in {group}")
    lines.insert(block[-1] + 1, f"    {entry}")
