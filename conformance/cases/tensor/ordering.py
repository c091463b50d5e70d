"""TOPK_V2, REVERSE_V2, REVERSE_SEQUENCE and UNIQUE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.copies import Copy, copy_cases
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    net,
    opsets,
    random_array,
    tensor,
)

TOPK, REVERSE, REVERSE_SEQUENCE, UNIQUE = "TOPK_V2", "REVERSE_V2", "REVERSE_SEQUENCE", "UNIQUE"
IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from topk_cases()
    yield from reverse_cases()
    yield from refused_reverse_cases()
    yield from reverse_sequence_cases()
    yield from unique_size_cases()


# --- TOPK_V2 ----------------------------------------------------------------------------------


def topk_case(
    name: str,
    x: Spec,
    k: int,
    place: Placement = in_isolation,
    constant_k: bool = True,
    k_dtype: str = "int32",
    index_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    k_operand = constant(np.asarray(k, k_dtype)) if constant_k else tensor(dtype=k_dtype, scale=0, name="k")
    runtime_arrays = {} if constant_k else {"k": np.asarray(k, k_dtype)}
    *shape, _ = x.shape
    result_size = max(k, 0) if constant_k else None
    outputs = [
        replace(x, name="").with_shape(*shape, result_size),
        tensor(*shape, result_size, dtype=index_dtype, scale=0),
    ]
    runtime_arrays = {**runtime_arrays, **case_fields.pop("input_arrays", {})}
    return place(
        TOPK,
        name,
        [x, k_operand],
        *outputs,
        **{"dtype": x.dtype, "input_arrays": runtime_arrays or None, **case_fields},
    )


def topk_cases() -> Iterator[Case]:
    """Yield cases of TOPK_V2. Of equal elements, the lower index comes first."""
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64"):
        x = tensor(3, 311, dtype=dtype)
        yield topk_case(f"{dtype}, 7 of 311", x, 7, opsets=opsets(dtype))
        yield topk_case(f"{dtype}, all of 311", x, 311)
        yield topk_case(f"{dtype}, runtime k", x, 5, constant_k=False)
        few_values = {"x0": random_array(5, 13, dtype="int32", low=0, high=2).astype(dtype)}
        yield topk_case(f"{dtype} with duplicates", tensor(5, 13, dtype=dtype, scale=0), 6, input_arrays=few_values)
        if dtype in ("float32", "int8", "uint8", "int16"):
            yield topk_case(
                f"{dtype} along channels", tensor(*IMAGE, dtype=dtype), 2, between_convolutions, max_transposes=3
            )
    x = tensor(3, 11)
    for k_dtype in ("int32", "int16"):
        for index_dtype in ("int32", "int16"):
            for constant_k in (True, False):
                k_source = "constant" if constant_k else "runtime"
                yield topk_case(
                    f"{k_source} {k_dtype} k, {index_dtype} indices",
                    x,
                    3,
                    k_dtype=k_dtype,
                    index_dtype=index_dtype,
                    constant_k=constant_k,
                )
    yield topk_case("vector", tensor(11), 3)
    yield topk_case("1 of 1", tensor(5, 1), 1)
    yield topk_case("k of 0", x, 0)
    yield topk_case("negative k", x, -2)
    yield topk_case("runtime k of 0", x, 0, constant_k=False, kernel_refusal="Invalid tensor size")
    yield topk_case("rank 5", tensor(2, 3, 2, 5, 7), 4)
    yield topk_case("empty batch", tensor(0, 7), 4)
    values = np.array([[3, -np.inf, np.inf, 0.0, -0.0, np.inf, -1]], np.float32)
    yield topk_case("infinities, and zeros of both signs", tensor(1, 7), 7, input_arrays={"x0": values})
    values_with_nan = np.array([[np.nan, 3, np.nan, 7, -1, 2, 5], [1, 2, 3, 4, 5, 6, np.nan]], np.float32)
    for count in (2, 5, 7):
        yield topk_case(f"NaN, {count} of 7", tensor(2, 7), count, input_arrays={"x0": values_with_nan})
    k = constant(np.array([3], np.int32))
    yield in_isolation(TOPK, "k of rank 1", [x, k], tensor(3, 3), tensor(3, 3, dtype="int32"))
    runs = [{"x0": random_array(n, 11)} for n in (3, 1)]
    outputs = [tensor(None, 3), tensor(None, 3, dtype="int32")]
    yield in_isolation(TOPK, "dynamic batch", [tensor(None, 11), constant(3)], *outputs, input_arrays=runs)
    kernel_refusal = "TopK k is higher"
    outputs = [tensor(3, 12), tensor(3, 12, dtype="int32")]
    yield in_isolation(TOPK, "k above the size", [x, constant(12)], *outputs, kernel_refusal=kernel_refusal)


# --- REVERSE_V2 and REVERSE_SEQUENCE ----------------------------------------------------------


def reverse_case(
    name: str,
    x: Spec,
    axes: Sequence[int],
    place: Placement = in_isolation,
    constant_axes: bool = True,
    **case_fields: Any,
) -> Case:
    axis_values = np.asarray(axes, np.int32)
    operand = constant(axis_values) if constant_axes else tensor(len(axes), dtype="int32", name="axes")
    inputs = {} if constant_axes else {"input_arrays": int32_arrays(axes=axes)}
    return place(REVERSE, name, [x, operand], replace(x, name=""), **{"dtype": x.dtype, **inputs, **case_fields})


def reverse_cases() -> Iterator[Case]:
    x = tensor(*IMAGE)
    for axes in ([0], [1], [2], [3], [-1], [-3], [1, 2], [2, 1], [-2, 3], [0, 1, 2, 3]):
        for constant_axes in (True, False):
            suffix = "" if constant_axes else " at runtime"
            yield reverse_case(f"axes {axes}{suffix}", x, axes, between_convolutions, constant_axes)
    axes_operand = tensor(None, dtype="int32", name="axes")
    axes_runs = [int32_arrays(axes=axes) for axes in ([1], [1, 2], [-3, -2, -1])]
    for place in PLACEMENTS:
        yield place(REVERSE, "dynamic number of axes", [x, axes_operand], x, input_arrays=axes_runs, dynamic_sizes=())
    yield reverse_case("axis 1", x, [1], opsets=EVERY_OPSET)
    for dtype in ("int8", "uint8", "int16"):
        for place in PLACEMENTS:
            yield reverse_case(dtype, tensor(*IMAGE, dtype=dtype), [1, 2], place)
    for dtype in ("float16", "int32", "int64", "bool", "int8", "uint8", "int16"):
        yield reverse_case(f"{dtype} without scale", tensor(3, 5, dtype=dtype, scale=0), [1])
    yield net(REVERSE, "bfloat16", reverse_bfloat16, dtype="bfloat16")
    yield reverse_case("vector", tensor(7), [0])
    yield reverse_case("axis of size 1", tensor(3, 1, 5), [1])
    yield reverse_case("rank 8", tensor(1, 2, 1, 3, 2, 1, 2, 3), [3, 4])
    runs = [{"x0": random_array(n, 5)} for n in (3, 1)]
    yield reverse_case("dynamic batch", tensor(None, 5), [0, 1], input_arrays=runs)
    yield from copy_cases(REVERSE, Copy([IMAGE], [constant([2])]))


def reverse_bfloat16(model: Net) -> None:
    x = model.call("CAST", [tensor(3, 5)], tensor(3, 5, dtype="bfloat16"))
    y = model.call(REVERSE, [x, constant([1])], tensor(3, 5, dtype="bfloat16"))
    model.output(model.call("CAST", [y], tensor(3, 5)))


def refused_reverse_cases() -> Iterator[Case]:
    kernel_refusal = "Non-contiguous `axes` not supported"
    yield reverse_case("non-contiguous axes", tensor(*IMAGE), [0, 2], kernel_refusal=kernel_refusal)


def reverse_sequence_case(
    name: str,
    x: Spec,
    sequence_axis: int,
    batch_axis: int,
    lengths: Sequence[int],
    place: Placement = in_isolation,
    length_dtype: str = "int32",
    constant_lengths: bool = True,
    **case_fields: Any,
) -> Case:
    length_values = np.asarray(lengths, length_dtype)
    operand = (
        constant(length_values)
        if constant_lengths
        else tensor(len(lengths), dtype=length_dtype, scale=0, name="lengths")
    )
    inputs = {} if constant_lengths else {"input_arrays": {"lengths": length_values}}
    options = {"seq_dim": sequence_axis, "batch_dim": batch_axis}
    case_fields = {"dtype": x.dtype, **inputs, **case_fields}
    return place(REVERSE_SEQUENCE, name, [x, operand], replace(x, name=""), options=options, **case_fields)


def reverse_sequence_cases() -> Iterator[Case]:
    """Yield cases of every pair of sequence axis and batch axis."""
    x = tensor(2, 5, 7, 3)
    for sequence_axis in range(4):
        for batch_axis in range(4):
            if sequence_axis == batch_axis:
                continue
            lengths = [(3 * k + 1) % (IMAGE[sequence_axis] + 1) for k in range(IMAGE[batch_axis])]
            tested_opsets = EVERY_OPSET if (sequence_axis, batch_axis) == (1, 0) else (None,)
            yield reverse_sequence_case(
                f"sequence axis {sequence_axis}, batch axis {batch_axis}",
                x,
                sequence_axis,
                batch_axis,
                lengths,
                opsets=tested_opsets,
            )
    for length_dtype in ("int32", "int64"):
        for constant_lengths in (True, False):
            length_source = "constant" if constant_lengths else "runtime"
            yield reverse_sequence_case(
                f"{length_source} {length_dtype} lengths",
                x,
                1,
                0,
                [3, 5],
                length_dtype=length_dtype,
                constant_lengths=constant_lengths,
            )
    yield reverse_sequence_case("width by batch", x, 2, 0, [3, 7], between_convolutions, max_transposes=4)
    for dtype in ("uint8", "int16", "int32", "int64"):
        yield reverse_sequence_case(dtype, tensor(2, 5, 7, 3, dtype=dtype), 1, 0, [3, 0])
    yield reverse_sequence_case(
        "uint8, width by batch", tensor(2, 5, 7, 3, dtype="uint8"), 2, 0, [3, 7], between_convolutions, max_transposes=4
    )
    yield reverse_sequence_case("lengths of 1", tensor(3, 5), 1, 0, [1, 1, 1])
    runs = [{"x0": random_array(n, 5), **int32_arrays(lengths=[4, 2, 5][:n])} for n in (3, 1)]
    operands = [tensor(None, 5), tensor(None, dtype="int32", name="lengths")]
    options = {"seq_dim": 1, "batch_dim": 0}
    yield in_isolation(REVERSE_SEQUENCE, "dynamic batch", operands, tensor(None, 5), options=options, input_arrays=runs)
    kernel_refusal = "Type 'INT8' is not supported by reverse_sequence"
    yield reverse_sequence_case("int8", tensor(2, 5, dtype="int8"), 1, 0, [3, 5], kernel_refusal=kernel_refusal)


# --- UNIQUE -----------------------------------------------------------------------------------


def unique_size_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64"):
        for index_dtype in ("int32", "int64"):
            x = tensor(29, dtype=dtype, scale=0)
            few_values = {"x0": random_array(29, dtype="int32", low=0, high=11).astype(dtype)}
            y = replace(x, name="").with_shape(None)
            outputs = [y, tensor(29, dtype=index_dtype)]
            options = {"idx_out_type": index_dtype.upper()}
            tested_opsets = EVERY_OPSET if index_dtype == "int32" else (None,)
            yield in_isolation(
                UNIQUE,
                f"{dtype}, {index_dtype} indices",
                [x],
                *outputs,
                options=options,
                input_arrays=few_values,
                opsets=tested_opsets,
            )
    for dtype in ("int8", "uint8", "int16"):
        x = tensor(311, dtype=dtype)
        outputs = [x.with_shape(None), tensor(311, dtype="int32")]
        yield in_isolation(UNIQUE, f"{dtype} with scale", [x], *outputs, options={"idx_out_type": "INT32"})
    options = {"idx_out_type": "INT32"}
    values_beyond_32_bits = {"x0": np.array([2**40, -(2**40), 2**40 + 1, 2**40], np.int64)}
    outputs = [tensor(None, dtype="int64"), tensor(4, dtype="int32")]
    yield in_isolation(
        UNIQUE,
        "values beyond 32 bits",
        [tensor(4, dtype="int64")],
        *outputs,
        options=options,
        input_arrays=values_beyond_32_bits,
    )
    for name, size, kernel_refusal in (("one element", 1, ""), ("no elements", 0, "Invalid tensor size")):
        outputs = [tensor(None), tensor(size, dtype="int32")]
        yield in_isolation(UNIQUE, name, [tensor(size)], *outputs, options=options, kernel_refusal=kernel_refusal)
