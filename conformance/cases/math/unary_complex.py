"""REAL, IMAG and COMPLEX_ABS of complex numbers, and BUCKETIZE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import between_convolutions, in_isolation, random_array, tensor

IMAGE = (2, 5, 7, 3)
BOUNDARIES = (-1.5, -0.25, 0.5, 0.5, 100.0)


def cases() -> Iterator[Case]:
    for op in ("REAL", "IMAG", "COMPLEX_ABS"):
        for shape in ((2, 5, 7), (), (0, 3)):
            x = tensor(*shape, dtype="complex64")
            yield in_isolation(op, f"complex64 of shape {list(shape)}", [x], tensor(*shape), opsets=EVERY_OPSET)
    numbers = np.array([0, 3 + 4j, 1e30 - 1e30j, 1e-30 + 1e-30j, -5j, -7, np.inf - 1j], np.complex64)
    yield in_isolation(
        "COMPLEX_ABS",
        "magnitudes whose squares overflow or underflow",
        [tensor(7, dtype="complex64")],
        tensor(7),
        input_arrays={"x0": numbers},
    )
    yield from bucketize_cases()


def bucketize_cases() -> Iterator[Case]:
    """Yield cases of BUCKETIZE, some with values equal to a boundary."""
    values = [-np.inf, -1.5, -1.49, -0.25, 0.0, 0.5, 99.99, 100.0, np.inf, np.nan]
    for dtype in ("float32", "float64"):
        yield bucketize_case(
            f"{dtype} at boundaries", dtype, (10,), input_arrays={"x0": np.array(values, dtype)}, opsets=EVERY_OPSET
        )
    for dtype in ("int32", "int64"):
        large = np.array([2**24 + 1, 2**24, 2**24 + 2, -1, 0, 7], dtype)
        yield bucketize_case(
            f"{dtype}, compared as float32", dtype, (6,), (-0.5, 7.0, 2.0**24), input_arrays={"x0": large}
        )
    for shape in (IMAGE, (), (0, 3)):
        yield bucketize_case(f"shape {list(shape)}", "float32", shape)
    yield bucketize_case("one boundary", "float32", (7,), (0.0,))
    yield bucketize_case("no boundary", "float32", (7,), ())
    yield bucketize_case("float32", "float32", IMAGE, place=between_convolutions)
    yield bucketize_case(
        "descending boundaries", "float32", (7,), (1.0, 0.0), kernel_refusal="Expected sorted boundaries"
    )
    arrays = [{"x0": random_array(n, 3)} for n in (1, 5)]
    x, y = tensor(None, 3), tensor(None, 3, dtype="int32")
    yield in_isolation(
        "BUCKETIZE", "dynamic batch", [x], y, options={"boundaries": list(BOUNDARIES)}, input_arrays=arrays, runs=2
    )


def bucketize_case(
    name: str,
    dtype: str,
    shape: Sequence[int],
    boundaries: Sequence[float] = BOUNDARIES,
    place: Any = in_isolation,
    **case_fields: Any,
) -> Case:
    x, y = tensor(*shape, dtype=dtype), tensor(*shape, dtype="int32")
    return place("BUCKETIZE", name, [x], y, options={"boundaries": list(boundaries)}, **case_fields)  # type: ignore[no-any-return]
