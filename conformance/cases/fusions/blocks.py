"""Products of one or two rows with large int4 or int2 weights.

The weights have per-channel scales, and are stored in blocks of 128, 64 and 32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.case import Case
from conformance.cases.matrix.fully_connected import dense_case
from conformance.models import random_array

INT4: Mapping[str, Any] = {"weights": "int4", "per_axis": True}
INT2: Mapping[str, Any] = {**INT4, "weights": "int2"}


def cases() -> Iterator[Case]:
    yield dense_case("float32 row of 384 times int4 weights, 3 blocks of 128", (1, 384), out=347, **INT4)
    yield dense_case("float32 row of 576 times int4 weights, 9 blocks of 64", (1, 576), out=229, **INT4)
    yield dense_case("float32 row of 1056 times int4 weights, 33 blocks of 32", (1, 1056), out=127, **INT4)
    yield dense_case("float32 row of 384 times int4 weights, one scale", (1, 384), out=347, weights="int4")
    yield dense_case("float32 row of 384 times int2 weights", (1, 384), out=347, **INT2)
    yield dense_case("two rows times int4 weights, no bias", (2, 384), out=347, bias_dtype=None, **INT4)
    yield dense_case("two rows of rank 3 times int4 weights", (1, 2, 384), out=347, keep_num_dims=True, **INT4)
    yield dense_case("one row from a flatten times int4 weights", (1, 4, 3, 32), depth=384, out=347, **INT4)
    fused: Mapping[str, Any] = {"options": {"fused_activation_function": "RELU6"}, "input_range": (-0.05, 0.05)}
    yield dense_case("one row times int4 weights, RELU6", (1, 384), out=347, **fused, **INT4)
    runs = [{"x0": random_array(n, 384)} for n in (1, 5)]
    yield dense_case("dynamic number of rows times int4 weights", (None, 384), out=347, input_arrays=runs, **INT4)
    runs = [{"x0": random_array(n, m, 384)} for n, m in ((1, 5), (3, 1))]
    name = "dynamic number of rows of rank 3 times int4 weights"
    yield dense_case(name, (None, None, 384), out=347, keep_num_dims=True, input_arrays=runs, **INT4)
