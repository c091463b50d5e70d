"""Models of one output, drawn by a function."""

from __future__ import annotations

from collections.abc import Callable

from conformance.builder import GraphBuilder, ModelBuilder

Draw = Callable[[GraphBuilder], int]


def build_model(draw: Draw) -> bytes:
    """A model whose output ``draw`` returns."""
    model = ModelBuilder()
    model.main.output(draw(model.main))
    return model.build()
