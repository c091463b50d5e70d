"""Addition of entry points to the ``setup.cfg`` of an existing pack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass
from pathlib import Path

from onnx_tflite_plugin.cli.failures import UsageProblem

SETUP_CFG = "setup.cfg"
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
            text = (folder / SETUP_CFG).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        config = ConfigParser(interpolation=None)
        try:
            config.read_string(text)
        except Error as error:
            raise UsageProblem(f"{folder / SETUP_CFG} cannot be read: {' '.join(str(error).split())}") from error
        name = config.get("metadata", "name", fallback="").strip()
        packages = config.get("options", "packages", fallback="").split()
        if not packages or packages[0].startswith("find"):
            packages = sorted(path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name != "tests")
        if not name or not packages or not packages[0].isidentifier() or not (folder / packages[0]).is_dir():
            raise UsageProblem(
                f"{folder / SETUP_CFG} does not name the distribution and the package to which a handler is added"
            )
        return cls(folder, name, packages[0], text)

    def with_entry_points(self, entries: Mapping[str, str]) -> str:
        """Return the text of ``setup.cfg`` with one more entry point per group.

        ``entries``: group -> its new entry point. Raises UsageProblem if the name of an entry point is taken.
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
    section_start = next(k for k, line in enumerate(lines) if line.strip() == _SECTION) + 1
    section_end = next((k for k in range(section_start, len(lines)) if lines[k].startswith("[")), len(lines))
    section = range(section_start, section_end)
    group_start = next((k for k in section if re.match(rf"{re.escape(group)}\s*[=:]", lines[k])), None)
    if group_start is None:
        last_filled_line = max((k for k in section if lines[k].strip()), default=section_start - 1)
        lines[last_filled_line + 1 : last_filled_line + 1] = [f"{group} =", f"    {entry}"]
        return
    after_group = range(group_start + 1, section_end)
    group_end = next((k for k in after_group if lines[k].strip() and not lines[k][0].isspace()), section_end)
    group_lines = [k for k in range(group_start, group_end) if lines[k].strip()]
    name = entry.partition(" = ")[0]
    if any(lines[k].partition("=")[0].strip() == name for k in group_lines[1:]):
        raise UsageProblem(f"the pack already has an entry point {name} in {group}; choose another name")
    lines.insert(group_lines[-1] + 1, f"    {entry}")
