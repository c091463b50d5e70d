"""Cases of data-movement operators whose results have other scales than the input.

The kernels either copy the quantized values without rescaling them, or refuse the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.case import Case
from conformance.models import PLACEMENTS, Spec, in_isolation, tensor

IMAGE = (2, 5, 7, 3)


@dataclass(frozen=True)
class Copy:
    """Shapes of an operator's input and results, and its constant operands.

    ``operands_before`` and ``operands_after`` are passed before and after the input.
    """

    result_shapes: Sequence[Sequence[int]]
    operands_after: Sequence[Spec] = ()
    operands_before: Sequence[Spec] = ()
    input_shape: Sequence[int] = IMAGE
    options: Mapping[str, Any] = field(default_factory=dict)

    def operands(self, dtype: str) -> list[Spec]:
        return [*self.operands_before, tensor(*self.input_shape, dtype=dtype), *self.operands_after]

    def results(self, dtype: str) -> list[Spec]:
        x = tensor(dtype=dtype)
        zero_point = {"int8": 11, "uint8": 140}.get(dtype, 0)
        return [x.rescale(2.0, zero_point).with_shape(*shape) for shape in self.result_shapes]


def copy_cases(op: str, copy: Copy) -> Iterator[Case]:
    """Yield cases in which the kernel ignores the quantization of the result."""
    for dtype in ("int8", "uint8", "int16"):
        for place in PLACEMENTS:
            name = f"{dtype}, input and output with different quantization parameters, which the kernel ignores"
            opsets = (None, 26) if dtype == "int16" else (None,)
            results = copy.results(dtype)
            requirements: dict[str, Any] = {
                "options": copy.options,
                "dtype": dtype,
                "opsets": opsets,
                "max_transposes": None,
            }
            yield place(op, name, copy.operands(dtype), *results, **requirements)


def refused_copy_cases(op: str, copy: Copy) -> Iterator[Case]:
    """Yield cases that the kernel refuses because input and result differ in scale."""
    for dtype in ("int8", "uint8"):
        name, results = f"{dtype}, input and output with different scales", copy.results(dtype)
        yield in_isolation(
            op, name, copy.operands(dtype), *results, options=copy.options, kernel_refusal="params.scale"
        )
