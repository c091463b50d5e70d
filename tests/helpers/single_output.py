"""Models whose only output is the result of a function."""

from __future__ import annotations

from collections.abc import Callable

from conformance.builder import GraphBuilder, ModelBuilder

BuildGraph = Callable[[GraphBuilder], int]


def build_model(build: BuildGraph) -> bytes:
    """Return a model whose output is the result of ``build``."""
    model = ModelBuilder()
    model.main.output(build(model.main))
    return model.build()
