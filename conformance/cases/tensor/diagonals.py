"""MATRIX_DIAG and MATRIX_SET_DIAG: batches, shapes that are not square, zeros.

The stored values outside the diagonal are 0, whatever the zero point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.models import Spec, in_isolation, opsets, random_array, tensor, unary

DIAG, SET = "MATRIX_DIAG", "MATRIX_SET_DIAG"


def cases() -> Iterator[Case]:
    yield from diag_cases()
    yield from set_diag_cases()


def diag_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64"):
        for shape in ((5,), (3, 5), (2, 3, 5), (3, 1)):
            x = tensor(*shape, dtype=dtype)
            tested_opsets = opsets(dtype) if len(shape) == 2 else (None,)
            yield unary(DIAG, f"{dtype} {list(shape)}", x, x.with_shape(*shape, shape[-1]), opsets=tested_opsets)
    for dtype in ("int8", "uint8", "int16"):
        x = tensor(3, 5, dtype=dtype, scale=0)
        yield unary(DIAG, f"{dtype} without scale", x, x.with_shape(3, 5, 5))
    x = tensor(3, 5, dtype="int8")
    y = x.rescale(2.0, 11).with_shape(3, 5, 5)
    yield unary(DIAG, "int8 to different quantization parameters, which the kernel ignores", x, y)
    yield unary(DIAG, "no rows", tensor(0, 3), tensor(0, 3, 3))
    yield unary(DIAG, "empty diagonal", tensor(3, 0), tensor(3, 0, 0))
    sizes = [{"x0": random_array(n, 5)} for n in (3, 1)]
    yield unary(DIAG, "dynamic batch", tensor(None, 5), tensor(None, 5, 5), input_arrays=sizes)
    sizes = [{"x0": random_array(2, n)} for n in (3, 7)]
    yield unary(DIAG, "dynamic diagonal", tensor(2, None), tensor(2, None, None), input_arrays=sizes)


def set_diagonal_case(name: str, x: Spec, diagonal: Sequence[int | None], **case_fields: Any) -> Case:
    return in_isolation(SET, name, [x, replace(x, name="").with_shape(*diagonal)], replace(x, name=""), **case_fields)


def set_diag_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64"):
        for shape in ((5, 5), (3, 5), (5, 3), (2, 3, 5), (3, 2, 7, 5), (5, 1), (1, 5)):
            *batch, rows, columns = shape
            tested_opsets = opsets(dtype) if shape == (3, 5) else (None,)
            x = tensor(*shape, dtype=dtype)
            yield set_diagonal_case(f"{dtype} {list(shape)}", x, (*batch, min(rows, columns)), opsets=tested_opsets)
    for dtype in ("int8", "int16"):
        yield set_diagonal_case(f"{dtype} without scale", tensor(3, 5, dtype=dtype, scale=0), (3,))
    x = tensor(3, 5, dtype="int8")
    operands = [x, x.rescale(3.0, 7).with_shape(3)]
    yield in_isolation(
        SET, "int8 of different quantization parameters, which the kernel ignores", operands, x.rescale(2.0, 11)
    )
    yield set_diagonal_case("no rows", tensor(2, 0, 3), (2, 0))
    sizes = [{"x0": random_array(n, 3, 5), "x1": random_array(n, 3)} for n in (2, 1)]
    yield set_diagonal_case("dynamic batch", tensor(None, 3, 5), (None, 3), input_arrays=sizes)
    dynamic_shapes: dict[str, tuple[int | None, ...]] = {
        "height": (None, 5),
        "width": (2, 5, None),
        "height and width": (2, None, None),
    }
    for name, dims in dynamic_shapes.items():
        batch = [size or 1 for size in dims[:-2]]
        matrix_sizes = [(n, m) for n, m in ((3, 5), (7, 5), (5, 5), (5, 3), (5, 7))]
        matrix_sizes = [(n, m) for n, m in matrix_sizes if (dims[-2] or n, dims[-1] or m) == (n, m)]
        runs = [{"x0": random_array(*batch, n, m), "x1": random_array(*batch, min(n, m))} for n, m in matrix_sizes]
        operands = [tensor(*dims), tensor(*batch, None)]
        # The kernel does not check other sizes.
        yield in_isolation(
            SET, f"dynamic {name}", operands, tensor(*dims), input_arrays=runs, runs=len(runs), dynamic_sizes=()
        )
