"""Print the oldest version of each package that setup.cfg allows, as ``pip install --constraint`` takes them.

python -m tools.minimum_versions            what the converter, ``verify`` and the tests import
python -m tools.minimum_versions images     an extra alone
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from pathlib import Path

from packaging.requirements import Requirement

SETUP = Path(__file__).parent.parent / "setup.cfg"
EXTRAS = ("verify", "images", "test")
TOOLS = frozenset({"matplotlib", "mypy", "ruff"})
"""Packages of the test extra that no quick test imports: linters, and matplotlib."""


def minimum_versions(extras: Sequence[str] = EXTRAS) -> Iterator[str]:
    """Return ``name==version`` for all packages in the requirements and the extras."""
    setup = ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    listed = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in extras)]
    found: dict[str, str] = {}
    for line in "\n".join(listed).splitlines():
        if text := line.partition("#")[0].strip():
            requirement = Requirement(text)
            found.setdefault(requirement.name, minimum(requirement))
    return (f"{name}=={version}" for name, version in found.items() if name not in TOOLS)


def minimum(requirement: Requirement) -> str:
    """Return the version after ``>=``. Raises ValueError if the requirement has none."""
    versions = [specifier.version for specifier in requirement.specifier if specifier.operator == ">="]
    if len(versions) != 1:
        raise ValueError(f"setup.cfg: the requirement {requirement} must have one minimum version, >=VERSION")
    return versions[0]


if __name__ == "__main__":
    print(*minimum_versions(sys.argv[1:] or EXTRAS), sep="\n")
