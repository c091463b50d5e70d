"""Print the oldest versions that setup.cfg allows, as a constraints file for pip.

python -m tools.minimum_versions            requirements of the converter, ``verify`` and the tests
python -m tools.minimum_versions images     requirements of the converter and one extra
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
"""Packages of the test extra that are omitted, because no quick test imports them."""


def minimum_versions(extras: Sequence[str] = EXTRAS) -> Iterator[str]:
    """Yield ``name==version`` for each package of the requirements and the extras."""
    setup = ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    requirement_texts = [
        setup["options"]["install_requires"],
        *(setup["options.extras_require"][extra] for extra in extras),
    ]
    versions: dict[str, str] = {}
    for line in "\n".join(requirement_texts).splitlines():
        if text := line.partition("#")[0].strip():
            requirement = Requirement(text)
            versions.setdefault(requirement.name, minimum(requirement))
    return (f"{name}=={version}" for name, version in versions.items() if name not in TOOLS)


def minimum(requirement: Requirement) -> str:
    """Return the version after ``>=``.

    Raises ValueError unless the requirement has exactly one.
    """
    versions = [specifier.version for specifier in requirement.specifier if specifier.operator == ">="]
    if len(versions) != 1:
        raise ValueError(f"setup.cfg: the requirement {requirement} must have one minimum version, >=VERSION")
    return versions[0]


if __name__ == "__main__":
    print(*minimum_versions(sys.argv[1:] or EXTRAS), sep="\n")
