"""What is looser than the default tolerances: operator, dtype, bound, and the kernel's reason.

The defaults: a real output may differ by 1e-5 of its range, an 8 or 16 bit integer by one step, anything else not at
all; a model with float activations on integer weights by 2e-2 of the range.
"""

from __future__ import annotations

from typing import NamedTuple

from onnx_tflite_plugin.verify import Tolerance


class Bound(NamedTuple):
    op: str
    dtype: str
    tolerance: Tolerance
    reason: str

    @property
    def text(self) -> str:
        steps = self.tolerance.steps
        if steps != Tolerance().steps:
            return f"{steps:g} steps"
        return f"{self.tolerance.real:g} of the range"


BOUNDS: tuple[Bound, ...] = ()


def bound(op: str, dtype: str) -> Bound | None:
    return next((row for row in BOUNDS if (row.op, row.dtype) == (op, dtype)), None)
