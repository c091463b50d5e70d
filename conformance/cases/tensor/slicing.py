"""SLICE and STRIDED_SLICE: open ends, masks, strides, runtime bounds."""

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
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")
TEXT = {"x0": np.array([[b"a", b"bc", b""], [b"d", b"e", b"fgh"]], object)}
INT4_TOLERANCE: dict[str, Any] = {
    "tolerance": Tolerance(of_range=1e-6),
    "tolerance_reason": "the result is dequantized, because neither runtime can return int4",
}


def cases() -> Iterator[Case]:
    yield from slice_cases()
    yield from runtime_size_cases()
    yield from strided_slice_cases()
    yield from runtime_strided_cases()
    yield from quantized_copy_cases()


# --- SLICE ------------------------------------------------------------------------------------


def slice_case(
    name: str,
    x: Spec,
    begin: Sequence[int],
    size: Sequence[int],
    place: Placement = in_isolation,
    bound_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    shape = [(n or 0) - b if s == -1 else s for n, b, s in zip(x.shape, begin, size, strict=True)]
    bounds = [constant(np.asarray(values, bound_dtype)) for values in (begin, size)]
    return place(
        "SLICE", name, [x, *bounds], replace(x, name="").with_shape(*shape), **{"dtype": x.dtype, **case_fields}
    )


def slice_cases() -> Iterator[Case]:
    """Yield cases of SLICE. A size of -1 selects to the end of the axis."""
    for dtype in FLOAT_OR_QUANTIZED:
        for place in PLACEMENTS:
            yield slice_case(
                dtype, tensor(*IMAGE, dtype=dtype), (1, 0, 2, 1), (1, 4, -1, -1), place, opsets=opsets(dtype)
            )
    for axis in range(4):
        begin, size = [int(k == axis) for k in range(4)], [1 if k == axis else -1 for k in range(4)]
        yield slice_case(f"axis {axis}", tensor(*IMAGE), begin, size, between_convolutions)
    for dtype in ("int32", "int64", "bool"):
        yield slice_case(dtype, tensor(5, 3, dtype=dtype), (1, 1), (3, -1))
    yield slice_case(
        "int64 operands", tensor(*IMAGE), (1, 0, 2, 1), (1, 4, -1, 2), between_convolutions, bound_dtype="int64"
    )
    yield slice_case("equal dimensions", tensor(4, 4, 4, 4), (0, 1, 2, 0), (2, 2, 2, 2), between_convolutions)
    yield slice_case("full slice", tensor(*IMAGE), (0, 0, 0, 0), (2, -1, 7, -1), between_convolutions)
    yield slice_case("empty", tensor(5, 3), (2, 0), (0, -1))
    for shape in ((5,), (3, 5, 2), (2, 3, 2, 5, 2), (2, 3, 2, 3, 2, 3)):
        yield slice_case(
            f"rank {len(shape)}", tensor(*shape), [1] * len(shape), [-1 if k % 2 else 1 for k in range(len(shape))]
        )
    yield net("SLICE", "int4", slice_int4, dtype="int4", opsets=(None, 26), **INT4_TOLERANCE)
    yield slice_case("string", tensor(2, 3, dtype="string"), (1, 0), (1, 2), input_arrays=TEXT)
    x, y = tensor(*IMAGE, dtype="int8"), tensor(2, 3, 7, 3, dtype="int8")
    bounds = [constant([0, 1, 0, 0]), constant([2, 3, 7, 3])]
    yield in_isolation(
        "SLICE",
        "int8 to different quantization parameters, which the builtin kernel ignores",
        [x, *bounds],
        y.rescale(1, 40),
    )
    operands = [tensor(None, 5, 3), constant([0, 1, 1]), constant([-1, 3, -1])]
    yield in_isolation(
        "SLICE",
        "dynamic batch",
        operands,
        tensor(None, 3, 2),
        input_arrays=[{"x0": random_array(n, 5, 3)} for n in (1, 4)],
    )


def slice_int4(model: Net) -> None:
    stored = model.call("QUANTIZE", [tensor(5, 6)], Spec((5, 6), "int4", 0.3, 2))
    sliced = model.call("SLICE", [stored, constant([1, 2]), constant([3, -1])], Spec((3, 4), "int4", 0.3, 2))
    model.output(model.call("DEQUANTIZE", [sliced], tensor(3, 4)))


def runtime_size_cases() -> Iterator[Case]:
    begin, size = tensor(4, dtype="int32", name="begin"), tensor(4, dtype="int32", name="size")
    bounds = int32_arrays(begin=(1, 0, 2, 1), size=(1, 4, -1, 2))
    for dtype in ("float32", "int8", "uint8"):
        x, y = tensor(*IMAGE, dtype=dtype), tensor(1, 4, 5, 2, dtype=dtype)
        for place in PLACEMENTS:
            yield place("SLICE", f"{dtype}, runtime begin and size", [x, begin, size], y, input_arrays=bounds)
            operands = [x, begin, constant([1, 4, 5, 2])]
            yield place("SLICE", f"{dtype}, runtime begin", operands, y, input_arrays={"begin": bounds["begin"]})
            operands = [x, constant([1, 0, 2, 1]), size]
            yield place("SLICE", f"{dtype}, runtime size", operands, y, input_arrays={"size": bounds["size"]})
    runs = [bounds, int32_arrays(begin=(0, 4, 0, 0), size=(-1, 1, 7, -1))]
    yield in_isolation(
        "SLICE",
        "dynamic result shape",
        [tensor(*IMAGE), begin, size],
        tensor(None, None, None, None),
        input_arrays=runs,
    )


# --- STRIDED_SLICE ----------------------------------------------------------------------------


def index_operands(index: Any) -> tuple[list[int], list[int], list[int], dict[str, int]]:
    """Return begin, end, strides and masks of STRIDED_SLICE for a NumPy index."""
    items = index if isinstance(index, tuple) else (index,)
    begin, end, strides = ([0] * len(items) for _ in range(3))
    options = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, item in enumerate(items):
        strides[i] = 1
        if item is Ellipsis:
            options["ellipsis_mask"] |= 1 << i
        elif item is None:
            options["new_axis_mask"] |= 1 << i
        elif isinstance(item, int):
            begin[i], end[i] = item, item + 1
            options["shrink_axis_mask"] |= 1 << i
        else:
            begin[i], end[i], strides[i] = item.start or 0, item.stop or 0, item.step or 1
            options["begin_mask"] |= (item.start is None) << i
            options["end_mask"] |= (item.stop is None) << i
    return begin, end, strides, options


def strided_slice_case(
    name: str, index: Any, x: Spec | None = None, place: Placement = in_isolation, **case_fields: Any
) -> Case:
    x = x or tensor(*IMAGE)
    *bounds, mask_options = index_operands(index)
    shape = np.zeros([size or 0 for size in x.shape], np.int8)[index].shape
    return place(
        "STRIDED_SLICE",
        name,
        [x, *map(constant, bounds)],
        x.with_shape(*shape),
        options=mask_options,
        **{"dtype": x.dtype, **case_fields},
    )


def strided_slice_cases() -> Iterator[Case]:
    s = np.s_
    rank_keeping_indices = {
        "begin and end": s[0:1, 1:4, 2:7, 1:3],
        "strides above 1": s[:, ::2, 1::3, :],
        "backwards": s[:, ::-1, ::-2, ::-1],
        "backwards, with begin and end": s[:, 3:0:-1, -2:1:-2, :],
        "negative begin and end": s[:, -3:-1, -5:, -2:],
        "bounds out of range": s[-9:9, 2:99, -99:4, :],
        "fewer entries than axes": s[1:, 2:4],
        "ellipsis": s[..., 1:3],
        "ellipsis in the middle": s[1:, ..., ::2],
        "backwards, begin out of range": s[:, 99::-1, :, :],
        "batch only": s[1:2],
        "stride beyond the size": s[:, ::99, 1::99, :],
    }
    for name, index in rank_keeping_indices.items():
        yield strided_slice_case(f"float32 {name}", index, place=between_convolutions)
        yield strided_slice_case(f"int8 {name}", index, tensor(*IMAGE, dtype="int8"))
    rank_changing_indices = {
        "one row": s[:, 2],
        "one pixel": s[0, 1, 2],
        "one channel": s[..., -1],
        "one channel of a row": s[:, 3, :, 0],
        "leading new axis": s[None],
        "inner new axis": s[:, None, 1:3, ..., None],
        "new axis and one row": s[:, None, 2, ::-1],
        "all axes dropped": s[1, 2, 3, 1],
        "axes dropped from the end": s[-1, ..., -2, :],
    }
    for name, index in rank_changing_indices.items():
        yield strided_slice_case(f"float32 {name}", index)
        yield strided_slice_case(f"float32 {name}", index, place=between_convolutions, max_transposes=None)
    yield strided_slice_case("new axis restores rank 4", s[:, 2, None], place=between_convolutions)
    yield strided_slice_case("dropped and new axis keep rank 4", s[:, :, 1, None, ::-1], place=between_convolutions)
    for dtype in (*FLOAT_OR_QUANTIZED, "float16", "int32", "int64", "bool", "string"):
        yield strided_slice_case(
            f"{dtype}, all kinds of entries",
            s[1, 4:1:-2, ..., None, ::2],
            tensor(*IMAGE, dtype=dtype),
            opsets=opsets(dtype),
        )
    for dtype in ("uint8", "int16"):
        yield strided_slice_case(
            f"{dtype} backwards", s[:, ::-1, 1:-1:2, :], tensor(*IMAGE, dtype=dtype), between_convolutions
        )
    yield strided_slice_case("rank 1", s[-2:0:-3], tensor(11))
    yield strided_slice_case("rank 5", s[:, 1, ..., ::-1, None], tensor(2, 3, 5, 2, 7))
    yield strided_slice_case("empty, backwards from before the start", s[-99::-1], tensor(5))
    yield strided_slice_case("empty, begin after end", s[4:2], tensor(5))
    yield strided_slice_case("empty, begin after the last element", s[9:12], tensor(5))
    yield strided_slice_case("empty operand", s[:, ::-1], tensor(0, 3))
    yield masked_slice_case(
        "new axis and ellipsis in one entry",
        [0, 1],
        [0, 3],
        [1, 1],
        IMAGE,
        (2, 5, 7, 2),
        ellipsis_mask=1,
        new_axis_mask=1,
    )
    yield masked_slice_case(
        "dropped axis ignores end and stride", [2], [-7], [3], (4, 5, 7, 3), (5, 7, 3), shrink_axis_mask=1
    )
    yield masked_slice_case(
        "masks override begin and end", [3, 3], [1, 1], [1, 1], (5, 7), (5, 7), begin_mask=3, end_mask=3
    )
    yield masked_slice_case(
        "masked begin of a dropped axis",
        [2, 0],
        [3, 0],
        [1, 1],
        (5, 7),
        (7,),
        begin_mask=3,
        end_mask=2,
        shrink_axis_mask=1,
    )
    yield masked_slice_case("dropped axis before the start", [-9], [0], [1], (4, 7), (7,), shrink_axis_mask=1)
    yield masked_slice_case("ends relative to begins", [1, 2], [3, 4], [1, 2], (5, 7), (3, 2), offset=True)
    yield masked_slice_case("ends relative to negative begins", [-3, -6], [2, 4], [1, 2], (5, 7), (2, 2), offset=True)
    yield masked_slice_case(
        "ellipsis of one axis",
        [0, 1, 0, 2, 9],
        [0, 9, 0, 3, 9],
        [1] * 5,
        IMAGE,
        (2, 4, 7, 1),
        begin_mask=1,
        end_mask=1,
        ellipsis_mask=4,
    )
    yield masked_slice_case(
        "two ellipses",
        [0, 0, 1],
        [0, 0, 3],
        [1, 1, 2],
        (5, 3, 7),
        (5, 3, 7),
        ellipsis_mask=3,
    )
    yield masked_slice_case("ellipsis beyond the entries", [1], [3], [1], (5, 3, 7), (2, 3, 7), ellipsis_mask=2)
    yield masked_slice_case(
        "mask bits beyond the rank", [1, 2], [3, 0], [1, -1], (5, 7), (2, 2), begin_mask=60, end_mask=44
    )
    out_of_bounds_message = "the kernel reads beyond the end"
    yield masked_slice_case(
        "new axes beyond the entries", [1], [3], [1], (5, 3), (2, 3), new_axis_mask=6, refusal=out_of_bounds_message
    )
    x, row = tensor(None, None, None), [constant([n, 0, 0]) for n in (-1, 0)]
    runs = [{"x0": random_array(*shape)} for shape in ((3, 5, 7), (2, 11, 1))]
    options = {"begin_mask": 6, "end_mask": 6, "shrink_axis_mask": 1}
    operands = [x, *row, constant([1, 1, 1])]
    yield in_isolation(
        "STRIDED_SLICE", "one row of dynamic shape", operands, tensor(None, None), options=options, input_arrays=runs
    )
    yield masked_slice_case("runtime strides", [0, 0], [5, 7], None, (5, 7), (5, 7), refusal="must be a constant")


def masked_slice_case(
    name: str,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None,
    input_shape: Sequence[int],
    result_shape: Sequence[int],
    *,
    refusal: str = "",
    **options: Any,
) -> Case:
    """Return a STRIDED_SLICE with operands and masks that no NumPy index has.

    ``strides``: None for a graph input.
    """
    x = tensor(*input_shape)
    stride_operand = tensor(len(begin), dtype="int32") if strides is None else constant(list(strides))
    return in_isolation(
        "STRIDED_SLICE",
        name,
        [x, constant(list(begin)), constant(list(end)), stride_operand],
        tensor(*result_shape),
        options=options,
        refusal=refusal,
    )


def runtime_strided_cases() -> Iterator[Case]:
    """Yield cases with runtime begin and end; strides and masks are always constant."""

    def runtime_slice_case(
        name: str,
        indices: Sequence[Any],
        x: Spec,
        result_shape: Sequence[int | None],
        place: Placement = in_isolation,
        **case_fields: Any,
    ) -> Case:
        _, _, strides, mask_options = index_operands(indices[0])
        runs = []
        for index in indices:
            begin, end, *_ = index_operands(index)
            runs.append({"begin": np.array(begin, np.int32), "end": np.array(end, np.int32)})
        bounds = [tensor(len(strides), dtype="int32", name=side) for side in ("begin", "end")]
        operands = [x, *bounds, constant(strides)]
        return place(
            "STRIDED_SLICE",
            f"{name}, runtime bounds",
            operands,
            x.with_shape(*result_shape),
            options=mask_options,
            input_arrays=runs,
            **{"dtype": x.dtype, **case_fields},
        )

    s = np.s_
    image = tensor(*IMAGE)
    yield runtime_slice_case(
        "begin and end", [s[0:1, 1:4, 2:6, 1:3], s[1:2, 0:3, -5:-1, -2:99]], image, (1, 3, 4, 2), opsets=EVERY_OPSET
    )
    yield runtime_slice_case(
        "begin and end", [s[0:1, 1:4, 2:6, 1:3], s[1:2, 0:3, -5:-1, -2:99]], image, (1, 3, 4, 2), between_convolutions
    )
    yield runtime_slice_case(
        "masked", [s[:, 1:4, :6, 1:], s[:, 0:3, :-1, -2:]], image, (2, 3, 6, 2), between_convolutions
    )
    yield runtime_slice_case(
        "int8, masked",
        [s[:, 1:4, :6, 1:], s[:, 0:3, :-1, -2:]],
        tensor(*IMAGE, dtype="int8"),
        (2, 3, 6, 2),
        between_convolutions,
    )
    yield runtime_slice_case("backwards", [s[4:1:-1, ::-1], s[3:0:-1, ::-1], s[99:-4:-1, ::-1]], tensor(5, 7), (3, 7))
    yield runtime_slice_case("one row", [s[2], s[0], s[-1]], tensor(5, 7), (7,))
    yield runtime_slice_case("one row", [s[:, 2], s[:, 0], s[:, -1]], image, (2, 7, 3), between_convolutions)
    yield runtime_slice_case("dynamic result shape", [s[1:4], s[0:1], s[-99:99]], tensor(5, 7), (None, 7))
    yield runtime_slice_case("ellipsis", [s[..., 1:3], s[..., 0:2]], image, (2, 5, 7, 2), between_convolutions)
    # LiteRT's Python interface cannot return a result that is empty at runtime.
    empty_result: dict[str, Any] = {"reference": lambda arrays: [np.zeros(0, np.float32)]}
    yield runtime_slice_case("empty", [s[3:2], s[9:12], s[-1:1]], tensor(5), (None,), **empty_result)
    yield runtime_slice_case("backwards from before the start", [s[-99:-100:-1]], tensor(5), (None,), **empty_result)
    dynamic_runs = [{"x0": random_array(n, 7)} for n in (3, 5)]
    options = {"begin_mask": 1, "end_mask": 1}
    operands = [tensor(None, 7), constant([0, 1]), constant([0, -1]), constant([2, 1])]
    yield in_isolation(
        "STRIDED_SLICE", "dynamic input shape", operands, tensor(None, 5), options=options, input_arrays=dynamic_runs
    )
    operands = [tensor(None, 7), constant([-4, -1]), constant([-9, -9]), constant([-1, -2])]
    yield in_isolation(
        "STRIDED_SLICE", "backwards along a dynamic axis", operands, tensor(None, 4), input_arrays=dynamic_runs
    )
    operands = [tensor(None, 7), constant([-2, 1]), constant([-1, -1]), constant([1, 1])]
    yield in_isolation(
        "STRIDED_SLICE", "from the end of a dynamic axis", operands, tensor(1, 5), input_arrays=dynamic_runs
    )
    runs = [{"x0": random_array(n, m, 7)} for n, m in ((3, 5), (2, 11))]
    operands = [tensor(None, None, 7), *map(constant, ([0, 0, 0, 3], [0, 0, 0, 4], [1, 1, 1, 1]))]
    options = {"begin_mask": 5, "end_mask": 5, "new_axis_mask": 2, "shrink_axis_mask": 8}
    name = "new and dropped axes of dynamic shape"
    yield in_isolation("STRIDED_SLICE", name, operands, tensor(None, 1, None), options=options, input_arrays=runs)
    yield between_convolutions(
        "STRIDED_SLICE",
        "static image",
        [image, *map(constant, index_operands(s[:, 1:, ::2])[:3])],
        tensor(2, 4, 4, 3),
        options=index_operands(s[:, 1:, ::2])[3],
    )


def quantized_copy_cases() -> Iterator[Case]:
    bounds = [constant([0, 1, 0, 0]), constant([2, 4, 7, 3]), constant([1, 1, 2, 1])]
    yield from copy_cases("STRIDED_SLICE", Copy([(2, 3, 4, 3)], bounds))
