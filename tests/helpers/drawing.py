"""Models with one output, built by a function."""

from __future__ import annotations

from collections.abc import Callable

from conformance.builder import GraphBuilder, ModelBuilder

Draw = Callable[[GraphBuilder], int]


def build_model(draw: Draw) -> bytes:
    """Return a model whose output is the result of ``draw``."""
    model = ModelBuilder()
    model.main.output(draw(model.main))
    return model.build()
