"""A chain of operators, for tests that search for a wrong operator."""

from __future__ import annotations

from conformance.builder import ModelBuilder


def chain(*, repeated: bool = False) -> bytes:
    """Return the model x → NEG a → EXP b → (b + z) c → ABS y.

    ``repeated``: a and b have the same name.
    """
    model = ModelBuilder()
    g = model.main
    x, z = g.input("x", (2, 3)), g.input("z", (2, 3))
    a, b, c, y = (g.tensor("a" if repeated and name == "b" else name, (2, 3)) for name in "abcy")
    g.operator("NEG", [x], [a])
    g.operator("EXP", [a], [b])
    g.operator("ADD", [b, z], [c])
    g.operator("ABS", [c], [y])
    g.output(y)
    return model.build()
