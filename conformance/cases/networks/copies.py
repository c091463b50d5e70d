"""Copies into a result with other parameters: the kernels move stored numbers and never rescale them, or refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.case import Case
from conformance.models import BOTH, Spec, alone, constant, tensor

IMAGE = (2, 5, 7, 3)


@dataclass(frozen=True)
class Copy:
    """An operator by its input and its results, with constants in front of the input and behind it."""

    after: Sequence[Sequence[int]]
    behind: Sequence[Spec] = ()
    front: Sequence[Spec] = ()
    before: Sequence[int] = IMAGE
    options: Mapping[str, Any] = field(default_factory=dict)

    def operands(self, dtype: str) -> list[Spec]:
        return [*self.front, tensor(*self.before, dtype=dtype), *self.behind]

    def results(self, dtype: str) -> list[Spec]:
        x = tensor(dtype=dtype)
        point = {"int8": 11, "uint8": 140}.get(dtype, 0)
        return [x.scaled(2.0, point).shaped(*shape) for shape in self.after]


COPIED: dict[str, Copy] = {
    "RESHAPE": Copy([(2, 35, 3)], [constant([2, 35, 3])]),
    "SQUEEZE": Copy([(2, 7, 3)], before=(2, 1, 7, 3), options={"squeeze_dims": [1]}),
    "TRANSPOSE": Copy([(2, 7, 5, 3)], [constant([0, 2, 1, 3])]),
    "STRIDED_SLICE": Copy([(2, 3, 4, 3)], [constant([0, 1, 0, 0]), constant([2, 4, 7, 3]), constant([1, 1, 2, 1])]),
    "SPLIT": Copy([(2, 5, 7, 1)] * 3, front=[constant(3)], options={"num_splits": 3}),
    "SPLIT_V": Copy([(2, 5, 2, 3), (2, 5, 5, 3)], [constant([2, 5]), constant(2)], options={"num_splits": 2}),
    "RESIZE_NEAREST_NEIGHBOR": Copy([(2, 10, 14, 3)], [constant([10, 14])]),
    "RESIZE_BILINEAR": Copy([(2, 4, 9, 3)], [constant([4, 9])]),
}
PLANE = constant([[1, 0], [0, 1]])
REFUSED: dict[str, Copy] = {
    "EXPAND_DIMS": Copy([(2, 5, 1, 7, 3)], [constant(2)]),
    "BATCH_TO_SPACE_ND": Copy([(2, 9, 13, 3)], [constant([2, 2]), PLANE], before=(8, 5, 7, 3)),
}


def cases() -> Iterator[Case]:
    for op, copy in COPIED.items():
        for dtype in ("int8", "uint8", "int16"):
            for place in BOTH:
                name = f"{dtype} copied to other parameters, which the kernel ignores"
                opsets = (None, 26) if dtype == "int16" else (None,)
                made = copy.results(dtype)
                case: dict[str, Any] = {"options": copy.options, "dtype": dtype, "opsets": opsets, "transposes": None}
                yield place(op, name, copy.operands(dtype), *made, **case)
    for op, copy in REFUSED.items():
        for dtype in ("int8", "uint8"):
            name, made = f"{dtype} copied to other parameters", copy.results(dtype)
            yield alone(op, name, copy.operands(dtype), *made, options=copy.options, kernel_refuses="params.scale")
