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
        "lowering/state_values",
        (
            "a variable begins with its zero point whatever its dtype",
            "lowering/state.py",
            'affine(tensor) if tensor.dtype == "int8" else None',
            "affine(tensor)",
        ),
    ),
    *of_tests(
        "lowering/variables",
        (
            "a variable is left in the order that its operator has it in",
            "lowering/scope.py",
            "state.set(self.values.get(tensor, source_order(tensor.dims), FILE))",
            "state.set(self.values.get(tensor, order, FILE))",
        ),
        (
            "what has no results is taken for what computes nothing",
            "lowering/walk.py",
            "return bool(bound.op.outputs) and empty",
            "return empty",
        ),
    ),
    *of_tests(
        "lowering/biases",
        (
            "an integer bias beside weights that are floats",
            "lowering/operands.py",
            'tensor.dtype == "int64" or float_weights or self',
            'tensor.dtype == "int64" or self',
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
