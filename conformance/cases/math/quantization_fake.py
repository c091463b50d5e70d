"""FAKE_QUANT: floats rounded to the quantization steps of a range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import between_convolutions, tensor, unary

IMAGE = (2, 5, 7, 3)
RANGES = ((-1.0, 1.0), (0.0, 6.0), (-6.0, 0.0), (-0.1, 5.3), (-1e-3, 2e-3), (-127.5, 127.5))


def cases() -> Iterator[Case]:
    """Yield cases with ranges that the kernel shifts until 0 is a quantization step.

    The kernel rounds half up.
    """
    for low, high in RANGES:
        for bits in (8, 16, 4, 2, 1):
            input_range = (2 * low - 0.1, 2 * high + 0.1)
            yield fake_quant_case(f"{bits} bits from {low:g} to {high:g}", low, high, bits, input_range=input_range)
    halves = np.arange(-300, 301, dtype=np.float32) / 2
    yield fake_quant_case("halves", -100.0, 155.0, 8, (601,), input_arrays={"x0": halves})
    below_halves = np.nextafter(halves, -np.inf, dtype=np.float32)
    yield fake_quant_case("just below halves", -100.0, 155.0, 8, (601,), input_arrays={"x0": below_halves})
    values = np.array([np.inf, -np.inf, -0.0, 1e30, -1e30, 1e-30], np.float32)
    yield fake_quant_case("infinities and tiny values", -1.0, 2.0, 8, (6,), input_arrays={"x0": values})
    yield fake_quant_case("every opset", -1.0, 2.0, 8, opsets=EVERY_OPSET)
    yield fake_quant_case("a scalar", -1.0, 2.0, 8, ())
    yield fake_quant_case("empty", -1.0, 2.0, 8, (0, 3))
    yield fake_quant_case("8 bits", -1.0, 2.0, 8, place=between_convolutions)
    yield fake_quant_case("a narrow range", -1.0, 2.0, 8, narrow=True, kernel_refusal="narrow_range FakeQuant is not")
    yield fake_quant_case("a range without 0", 1.0, 2.0, 8, refusal="choose a range that includes 0")


def fake_quant_case(
    name: str,
    low: float,
    high: float,
    bits: int,
    shape: tuple[int, ...] = IMAGE,
    narrow: bool = False,
    **case_fields: Any,
) -> Case:
    options = {"min": low, "max": high, "num_bits": bits, "narrow_range": narrow}
    return unary("FAKE_QUANT", name, tensor(*shape), options=options, **case_fields)
