"""STABLEHLO_RNG_BIT_GENERATOR: generators, dtypes, counters, sizes.

Some counters carry, and some sizes end within a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import in_isolation, tensor

STATES = ([7, 11], [2**64 - 1, 2**64 - 1], [0, 2**32 - 2], [2**63 + 5, 2**40 + 2**32 - 1])


def cases() -> Iterator[Case]:
    for algorithm in ("THREEFRY", "PHILOX", "DEFAULT"):
        for dtype in ("int32", "uint32", "int64", "uint64"):
            yield generator_case(
                f"{algorithm} {dtype}", algorithm, dtype, (2, 3, 5), opsets=(None, 26) if dtype == "uint32" else (None,)
            )
        yield generator_case(f"{algorithm}, one number", algorithm, "uint32", (1,))
        yield generator_case(f"{algorithm}, empty", algorithm, "int64", (0, 3))
        yield generator_case(f"{algorithm}, end within a block", algorithm, "int64", (7,))
    for algorithm in ("PHILOX", "DEFAULT"):
        yield generator_case(f"{algorithm}, state of three values", algorithm, "uint32", (11,), 3)
    yield generator_case(
        "THREEFRY, state of three values", "THREEFRY", "uint32", (11,), 3, refusal="which the kernel refuses"
    )
    yield generator_case("opset 17", "PHILOX", "uint32", (5,), refusal="needs opset 18", opsets=(17,))


def generator_case(
    name: str, algorithm: str, dtype: str, shape: tuple[int, ...], state_size: int = 2, **case_fields: Any
) -> Case:
    runs = [{"x0": np.array([*state, 2**35 + 3][:state_size], np.uint64)} for state in STATES]
    state = tensor(state_size, dtype="uint64")
    options = {"algorithm": algorithm}
    case_fields = {"dtype": dtype, "runs": len(runs), "input_arrays": runs, **case_fields}
    return in_isolation(
        "STABLEHLO_RNG_BIT_GENERATOR", name, [state], state, tensor(*shape, dtype=dtype), options=options, **case_fields
    )
