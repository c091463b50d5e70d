"""Random numbers: certain properties only. tests/lowering/test_random.py compares distributions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, constant, in_isolation, int32_arrays, net, tensor

OPSETS = (None, 13, 17, 21)
CERTAIN = {"RANDOM_UNIFORM": (0.0, 1.0), "RANDOM_STANDARD_NORMAL": (-9.0, 9.0)}


def cases() -> Iterator[Case]:
    for op, bounds in CERTAIN.items():
        for seeds in ((0, 0), (7, 0), (3, 11)):
            yield bounds_case(op, f"seeds {list(seeds)}", seeds, bounds, opsets=OPSETS)
        yield bounds_case(op, "a shape known at runtime", (3, 11), bounds, fixed=False)
    for dtype in ("int32", "int64"):
        for fixed in (True, False):
            yield certain_class_case(dtype, fixed)
    yield from empty_case()


def bounds_case(
    op: str, name: str, seeds: tuple[int, int], bounds: tuple[float, float], fixed: bool = True, **more: Any
) -> Case:
    """Return a case whose numbers must be within the bounds."""

    def build(model: Net) -> None:
        shape = constant([2, 5, 7]) if fixed else tensor(3, dtype="int32", name="shape")
        y = tensor(2, 5, 7) if fixed else tensor(None, None, None)
        numbers = model.call(op, [shape], y, seed=seeds[0], seed2=seeds[1])
        flags = tensor(*y.shape, dtype="bool")
        model.output(
            model.call("GREATER_EQUAL", [numbers, constant(bounds[0])], flags),
            model.call("LESS", [numbers, constant(bounds[1])], flags),
        )

    return net(op, name, build, input_arrays=None if fixed else int32_arrays(shape=[2, 5, 7]), **more)


def certain_class_case(dtype: str, fixed: bool) -> Case:
    """Return a case in which one class has probability 1; infinite logits have probability 0."""
    low = np.float32(-200)
    logits = np.array([[0, low, np.inf], [low, np.nan, 3], [-np.inf, 5, low], [1e30, np.inf, -1e30]], np.float32)
    samples = constant(5) if fixed else tensor(dtype="int32", name="samples")
    given = {"x0": logits, **({} if fixed else int32_arrays(samples=5))}
    y = tensor(4, 5 if fixed else None, dtype=dtype)
    name = f"{dtype}, one class certain{'' if fixed else ', samples known at runtime'}"
    opsets = OPSETS if fixed else (None,)
    return in_isolation(
        "MULTINOMIAL", name, [tensor(4, 3), samples], y, options={"seed": 3}, input_arrays=given, opsets=opsets
    )


def empty_case() -> Iterator[Case]:
    shape = constant([2, 3], "int64")
    for op in CERTAIN:
        fixed = constant([2, 3])
        yield in_isolation(op, "opset 22", [fixed], tensor(2, 3), refusal="try --opset 21", opsets=(22,))
        yield in_isolation(op, "an int64 shape", [shape], tensor(2, 3), kernel_refusal="shape->type")
