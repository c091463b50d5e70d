"""Seeds of the fuzzer: models of the conformance cases, as builder tables."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple
from unittest.mock import patch

from conformance.builder import ModelBuilder
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.schema import Table

MAX_BYTES = 20_000  # in larger models, most mutations would change weights


@cache
def cases() -> tuple[Case, ...]:
    """Return the cases that convert and that LiteRT runs."""
    return tuple(
        case for case in builtin_cases() if case.expects_success and case.reference is None and case.kernel is None
    )


@cache
def ids() -> tuple[bytes, ...]:
    return tuple(case.id.encode() for case in cases())


class Seed(NamedTuple):
    """Model of a case, as a builder table and as a file."""

    table: Table
    data: bytes


@lru_cache(maxsize=1)
def seed_model(number: int) -> Seed | None:
    """Return the model of a case.

    It is ``None`` if the model is large, or if the case does not build exactly one model with ``ModelBuilder``.
    """
    tables: list[Table] = []

    def build(self: ModelBuilder) -> bytes:
        tables.append(self.table())
        return original(self)

    original = ModelBuilder.build
    with patch.object(ModelBuilder, "build", build):
        data = cases()[number].build()
    return Seed(tables[-1], data) if len(tables) == 1 and len(data) <= MAX_BYTES else None
