"""A bug of the core as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """``old`` stands once in ``module``, and ``new`` in its place is wrong; ``tests`` are files, one of which must fail."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]


def of_tests(tests: str, *rows: tuple[str, str, str, str]) -> tuple[Planted, ...]:
    """``tests``: test modules as ``folder/name``, separated by spaces."""
    folders = [name.partition("/") for name in tests.split()]
    return tuple(Planted(*row, tuple(f"tests/{folder}/test_{name}.py" for folder, _, name in folders)) for row in rows)
