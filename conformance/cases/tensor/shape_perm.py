"""TRANSPOSE with a runtime permutation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.models import PLACEMENTS, Placement, Spec, in_isolation, int32_arrays, random_array, tensor

OP = "TRANSPOSE"
SIZES = (2, 5, 7, 3, 2, 3)


def cases() -> Iterator[Case]:
    perms: tuple[Sequence[int], ...] = ((0,), (1, 0), (2, 0, 1), (3, 1, 2, 0), (4, 2, 0, 3, 1), (5, 3, 1, 0, 4, 2))
    for perm in perms:
        tested_opsets = EVERY_OPSET if len(perm) == 4 else (None,)
        yield runtime_perm_case(
            f"perm {list(perm)} known at runtime", tensor(*SIZES[: len(perm)]), perm, opsets=tested_opsets
        )
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool"):
        yield runtime_perm_case(f"{dtype}, perm known at runtime", tensor(2, 5, 7, dtype=dtype), (2, 0, 1))
    yield runtime_perm_case("perm known at runtime", tensor(2, 5, 7, 3), (0, 2, 1, 3), PLACEMENTS[1], max_transposes=4)
    sizes = [{"x0": random_array(n, 5, 7), **int32_arrays(perm=[1, 2, 0])} for n in (2, 3)]
    operands = [tensor(None, 5, 7), tensor(3, dtype="int32", name="perm")]
    yield in_isolation(
        OP, "dynamic batch, perm known at runtime", operands, tensor(None, None, None), input_arrays=sizes
    )
    counted = [int32_arrays(perm=perm) for perm in ([0, 1, 2], [2, 1, 0], [1, 0, 2])]
    operands = [tensor(2, 5, 7), operands[1]]
    yield in_isolation(OP, "different perm in each run", operands, tensor(None, None, None), input_arrays=counted)


def runtime_perm_case(name: str, x: Spec, perm: Sequence[int], place: Placement = in_isolation, **case: Any) -> Case:
    operands = [x, tensor(len(perm), dtype="int32", name="perm")]
    y = x.with_shape(*(x.shape[axis] for axis in perm))
    return place(OP, name, operands, y, **{"dtype": x.dtype, "input_arrays": int32_arrays(perm=perm), **case})
