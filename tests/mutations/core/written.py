"""Bugs to plant of lowering, sizes and what is told of a conversion."""

from __future__ import annotations

from ..planted import Planted, of_tests

MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "conversion/cutting",
        (
            "an output may be where the part begins",
            "shapes/cutting.py",
            "        if tensor in ends:\n",
            "        if False:\n",
        ),
    ),
    *of_tests(
        "conversion/resizing",
        (
            "sizes that broadcast have one name",
            "shapes/dimensions.py",
            "is None for size in (1, large)):",
            "is None for size in (large,)):",
        ),
        (
            "every input has the batch in front",
            "shapes/resizing.py",
            "if t.rank and t.dims[0] == stored}",
            "if t.rank}",
        ),
    ),
    *of_tests(
        "lowering/states",
        (
            "two states share the value that comes next",
            "lowering/state.py",
            " or following in outputs or",
            " or",
        ),
    ),
    *of_tests(
        "lowering/values",
        (
            "a size of 0 is the operand's",
            "lowering/values.py",
            '{"allowzero": 1} if 0 in dims and self.emitter.opset >= 14 else {}',
            "{}",
        ),
        (
            "an operand that is handed on loses its sizes",
            "lowering/values.py",
            "dims = _as_known(value, physical_dims(tensor, order))",
            "dims = physical_dims(tensor, order)",
        ),
    ),
)
