"""RFFT2D of one or two axes, whose inputs are truncated or zero-padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import constant, in_isolation, int32_arrays, tensor

LENGTHS = (8, 4)


def cases() -> Iterator[Case]:
    for shape in ((8, 16), (3, 8, 16), (2, 3, 4, 8)):
        yield rfft_case(f"shape {list(shape)}", shape, shape[-2:], opsets=(None, 17, 20, 26))
    for lengths in ((4, 8), (16, 32), (4, 32), (16, 8), (8, 2), (2, 2)):
        yield rfft_case(f"truncated or padded to {list(lengths)}", (3, 7, 11), lengths)
    yield rfft_case("one row", (3, 7, 11), (1, 8), opsets=(None, 13, 17, 26), nodes=["MatMul"])
    yield rfft_case("one row, padded", (3, 1, 11), (1, 16), nodes=["MatMul"])
    yield rfft_case("one row of many points", (3, 1, 1000), (1, 1024), opsets=(None, 13), nodes={"MatMul": 2})
    yield rfft_case("one row of the maximum length", (2, 5, 2048), (1, 2048), nodes={"MatMul": 2})
    yield rfft_case("one row beyond the maximum length", (1, 16384), (1, 16384), nodes=["DFT"])
    yield rfft_case("zero rows", (3, 0, 11), (4, 8))
    yield rfft_case("zero columns", (3, 7, 0), LENGTHS)
    yield rfft_case("transforms of length 1", (3, 7, 11), (4, 1), refusal="confuses real and imaginary parts")
    yield rfft_case("at opset 13", (8, 16), (8, 16), opsets=(13,), refusal="opset 17")
    yield rfft_case("lengths other than powers of two", (6, 10), (6, 10), kernel_refusal="IsPowerOfTwo")
    x, runtime_lengths = tensor(3, 7, 11), tensor(2, dtype="int32", name="lengths")
    y = tensor(3, None, None, dtype="complex64")
    arrays = int32_arrays(lengths=[4, 16])
    reason = "the kernel confuses real and imaginary parts of transforms of length 1 (Rfft2dReorder, rfft2d.cc)"
    yield in_isolation(
        "RFFT2D",
        "transforms of length 1, known at runtime",
        [x, runtime_lengths],
        y,
        input_arrays=int32_arrays(lengths=[4, 1]),
        known_failure=reason,
    )
    yield in_isolation("RFFT2D", "lengths known at runtime", [x, runtime_lengths], y, input_arrays=arrays)


def rfft_case(name: str, shape: Sequence[int], lengths: Sequence[int], **case_fields: Any) -> Case:
    height, width = lengths
    y = tensor(*shape[:-2], height, width // 2 + 1, dtype="complex64")
    return in_isolation("RFFT2D", name, [tensor(*shape), constant(np.asarray(lengths, np.int32))], y, **case_fields)
