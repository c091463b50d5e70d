"""Models that the command converts in tests."""

from __future__ import annotations

import io
import zipfile

from conformance.builder import ModelBuilder


def model(code: str = "NEG", *, signatures: int = 0) -> bytes:
    builder = ModelBuilder()
    g = builder.main
    x, y = g.input("x", (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
    g.operator(code, [x], [y])
    g.output(y)
    if signatures:
        builder.signature("first/one", {"a": x}, {"b": y})
    if signatures > 1:
        other = builder.subgraph("other")
        u, v = other.input("u", (7,)), other.tensor("v", (7,))
        other.operator("EXP", [u], [v])
        other.output(v)
        builder.signature("second", {"a": u}, {"b": v}, subgraph=1)
    return builder.build()


def two_inputs() -> bytes:
    builder = ModelBuilder()
    g = builder.main
    x, y, z = g.input("x", (1, 2)), g.input("y", (1, 2)), g.tensor("z", (1, 2))
    g.operator("ADD", [x, y], [z])
    g.output(z)
    return builder.build()


def zip_entries(entries: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


def unary(code: str, name: str = "x") -> bytes:
    """Return a model with one operator; ADD reads its input twice."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input(name, (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
    g.operator(code, [x, x] if code == "ADD" else [x], [y])
    g.output(y)
    return model.build()
