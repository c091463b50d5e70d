"""TRANSPOSE with constant and runtime permutations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.copies import Copy, copy_cases
from conformance.models import (
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    net,
    random_array,
    tensor,
)

OP = "TRANSPOSE"
IMAGE = (2, 5, 7, 3)
DTYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "uint32", "bool", "string")
SIZES = (2, 5, 7, 3, 2, 3)


def cases() -> Iterator[Case]:
    yield from constant_perm_cases()
    yield from runtime_perm_cases()


def constant_perm_cases() -> Iterator[Case]:
    def transpose(
        name: str,
        shape: Sequence[int],
        perm: Sequence[int],
        dtype: str = "float32",
        place: Placement = in_isolation,
        **case_fields: Any,
    ) -> Case:
        x = tensor(*shape, dtype=dtype)
        return place(OP, name, [x, constant(list(perm))], x.with_shape(*(shape[p] for p in perm)), **case_fields)

    for dtype in DTYPES:
        kernel_refusal = "Type STRING is currently not supported" if dtype == "string" else ""
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        yield transpose(dtype, IMAGE, (1, 3, 0, 2), dtype, opsets=opsets, kernel_refusal=kernel_refusal)
    for perm in permutations(range(4)):
        yield transpose(
            f"axes {perm}", IMAGE, perm, place=between_convolutions, max_transposes=2 + (perm != (0, 1, 2, 3))
        )
    for dtype in ("int8", "uint8", "int16"):
        yield transpose(
            f"{dtype} axes (0, 2, 3, 1)", IMAGE, (0, 2, 3, 1), dtype, between_convolutions, max_transposes=3
        )
    for shape, perm in (
        ((11,), (0,)),
        ((3, 11), (1, 0)),
        ((2, 3, 5), (2, 0, 1)),
        ((2, 3, 5, 7, 2), (4, 0, 3, 1, 2)),
        ((2, 3, 1, 5, 7, 2), (5, 3, 1, 0, 2, 4)),
    ):
        yield transpose(f"rank {len(shape)}", shape, perm)

    def to_channels_first(model: Net) -> None:
        image = tensor(*IMAGE)
        model.output(
            model.call(OP, [model.input_through_conv(image), constant([0, 3, 1, 2])], image.with_shape(2, 3, 5, 7))
        )

    yield net(OP, "transpose to channels first, which becomes a no-op", to_channels_first, max_transposes=1)
    yield from copy_cases(OP, Copy([(2, 7, 5, 3)], [constant([0, 2, 1, 3])]))


def runtime_perm_cases() -> Iterator[Case]:
    perms: tuple[Sequence[int], ...] = ((0,), (1, 0), (2, 0, 1), (3, 1, 2, 0), (4, 2, 0, 3, 1), (5, 3, 1, 0, 4, 2))
    for perm in perms:
        tested_opsets = EVERY_OPSET if len(perm) == 4 else (None,)
        yield runtime_perm_case(f"runtime perm {list(perm)}", tensor(*SIZES[: len(perm)]), perm, opsets=tested_opsets)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool"):
        yield runtime_perm_case(f"{dtype}, runtime perm", tensor(2, 5, 7, dtype=dtype), (2, 0, 1))
    yield runtime_perm_case(
        "runtime perm, height and width swapped",
        tensor(2, 5, 7, 3),
        (0, 2, 1, 3),
        between_convolutions,
        max_transposes=4,
    )
    runs = [{"x0": random_array(n, 5, 7), **int32_arrays(perm=[1, 2, 0])} for n in (2, 3)]
    operands = [tensor(None, 5, 7), tensor(3, dtype="int32", name="perm")]
    yield in_isolation(OP, "dynamic batch, runtime perm", operands, tensor(None, None, None), input_arrays=runs)
    perm_runs = [int32_arrays(perm=perm) for perm in ([0, 1, 2], [2, 1, 0], [1, 0, 2])]
    operands = [tensor(2, 5, 7), operands[1]]
    yield in_isolation(OP, "different perm in each run", operands, tensor(None, None, None), input_arrays=perm_runs)


def runtime_perm_case(
    name: str, x: Spec, perm: Sequence[int], place: Placement = in_isolation, **case_fields: Any
) -> Case:
    operands = [x, tensor(len(perm), dtype="int32", name="perm")]
    y = x.with_shape(*(x.shape[axis] for axis in perm))
    return place(OP, name, operands, y, **{"dtype": x.dtype, "input_arrays": int32_arrays(perm=perm), **case_fields})
