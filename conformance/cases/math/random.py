"""RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL.

Only outputs that do not depend on the random numbers are compared.

``tests/lowering/test_random.py`` compares the distributions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, constant, in_isolation, int32_arrays, net, tensor

OPSETS = (None, 13, 17, 21)
BOUNDS = {"RANDOM_UNIFORM": (0.0, 1.0), "RANDOM_STANDARD_NORMAL": (-9.0, 9.0)}


def cases() -> Iterator[Case]:
    for op, bounds in BOUNDS.items():
        for seeds in ((0, 0), (7, 0), (3, 11)):
            yield bounds_case(op, f"seeds {list(seeds)}", seeds, bounds, opsets=OPSETS)
        yield bounds_case(op, "a shape known at runtime", (3, 11), bounds, constant_shape=False)
    for dtype in ("int32", "int64"):
        for is_constant in (True, False):
            yield certain_class_case(dtype, is_constant)
    yield from refusal_cases()


def bounds_case(
    op: str,
    name: str,
    seeds: tuple[int, int],
    bounds: tuple[float, float],
    constant_shape: bool = True,
    **case_fields: Any,
) -> Case:
    """Return a case that checks that all numbers are within the bounds."""

    def build_bounds_check(model: Net) -> None:
        shape = constant([2, 5, 7]) if constant_shape else tensor(3, dtype="int32", name="shape")
        y = tensor(2, 5, 7) if constant_shape else tensor(None, None, None)
        numbers = model.call(op, [shape], y, seed=seeds[0], seed2=seeds[1])
        flags = tensor(*y.shape, dtype="bool")
        model.output(
            model.call("GREATER_EQUAL", [numbers, constant(bounds[0])], flags),
            model.call("LESS", [numbers, constant(bounds[1])], flags),
        )

    return net(
        op,
        name,
        build_bounds_check,
        input_arrays=None if constant_shape else int32_arrays(shape=[2, 5, 7]),
        **case_fields,
    )


def certain_class_case(dtype: str, constant_samples: bool) -> Case:
    """Return a case in which one class has probability 1.

    Infinite logits have probability 0.
    """
    low = np.float32(-200)
    logits = np.array([[0, low, np.inf], [low, np.nan, 3], [-np.inf, 5, low], [1e30, np.inf, -1e30]], np.float32)
    samples = constant(5) if constant_samples else tensor(dtype="int32", name="samples")
    arrays = {"x0": logits, **({} if constant_samples else int32_arrays(samples=5))}
    y = tensor(4, 5 if constant_samples else None, dtype=dtype)
    name = f"{dtype}, one class certain{'' if constant_samples else ', number of samples known at runtime'}"
    opsets = OPSETS if constant_samples else (None,)
    return in_isolation(
        "MULTINOMIAL", name, [tensor(4, 3), samples], y, options={"seed": 3}, input_arrays=arrays, opsets=opsets
    )


def refusal_cases() -> Iterator[Case]:
    for op in BOUNDS:
        yield in_isolation(op, "opset 22", [constant([2, 3])], tensor(2, 3), refusal="try --opset 21", opsets=(22,))
        yield in_isolation(
            op, "an int64 shape", [constant([2, 3], "int64")], tensor(2, 3), kernel_refusal="shape->type"
        )
