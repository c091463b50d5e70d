"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND.

Some cases have padding, crops and odd sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.copies import Copy, refused_copy_cases
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    net,
    opsets,
    random_array,
    tensor,
    unary,
)
from onnx_tflite_plugin.source.model import Array

DEPTH_TO_SPACE, SPACE_TO_DEPTH = "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"
SPACE_TO_BATCH, BATCH_TO_SPACE = "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"
NO_PADDING = [[0, 0], [0, 0]]


def cases() -> Iterator[Case]:
    yield from depth_space_cases()
    yield from inverse_pair_cases()
    yield from space_to_batch_cases()
    yield from batch_to_space_cases()
    yield from runtime_setting_cases()
    yield from dynamic_size_cases()
    yield from refusal_cases()


# --- depth ------------------------------------------------------------------------------------


def shapes_before_and_after(op: str, size: int, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of input and result.

    ``shape``: the batch, the smaller height and width, and the smaller number of channels.
    """
    n, h, w, d = shape
    wide, deep = (n, h * size, w * size, d), (n, h, w, d * size * size)
    return (deep, wide) if op == DEPTH_TO_SPACE else (wide, deep)


def depth_space_case(
    op: str, name: str, x: Spec, size: int, shape: Sequence[int], place: Placement = in_isolation, **case_fields: Any
) -> Case:  # fmt: skip
    before, after = shapes_before_and_after(op, size, shape)
    return unary(
        op, name, x.with_shape(*before), x.with_shape(*after), place, options={"block_size": size}, **case_fields
    )


def depth_space_cases() -> Iterator[Case]:
    """Yield cases in ONNX's mode DCR: the position in the block precedes the channel."""
    for op in (DEPTH_TO_SPACE, SPACE_TO_DEPTH):
        for dtype in ("float32", "int8", "uint8"):
            x = tensor(dtype=dtype)
            for place in PLACEMENTS:
                yield depth_space_case(op, f"{dtype} by 2", x, 2, (2, 3, 5, 3), place, opsets=EVERY_OPSET)
            yield depth_space_case(op, f"{dtype} by 3", x, 3, (1, 2, 5, 2), between_convolutions)
        for dtype in ("int32", "int64"):
            yield depth_space_case(op, dtype, tensor(dtype=dtype), 2, (2, 3, 5, 3), opsets=EVERY_OPSET)
        yield depth_space_case(op, "by 1", tensor(), 1, (2, 3, 5, 3))
        yield depth_space_case(op, "one channel", tensor(), 2, (2, 3, 5, 1), between_convolutions)
        yield depth_space_case(op, "one pixel", tensor(), 2, (2, 1, 1, 3), between_convolutions)
        before, after = shapes_before_and_after(op, 2, (2, 3, 5, 3))
        x = tensor(*before, dtype="int8")
        for place in PLACEMENTS:
            name = "int8 to different quantization parameters, which the kernel ignores"
            yield unary(op, name, x, x.rescale(2.0, 11).with_shape(*after), place, options={"block_size": 2})
        runs = [{"x0": random_array(n, *before[1:])} for n in (1, 3)]
        unknown = tensor(None, *before[1:])
        yield unary(
            op,
            "dynamic batch",
            unknown,
            unknown.with_shape(None, *after[1:]),
            options={"block_size": 2},
            input_arrays=runs,
        )
        large = shapes_before_and_after(op, 2, (1, 16, 16, 16))
        for dtype, transposes in (("float32", 2), ("int8", 5)):
            # Channels last is faster for many integers, even with two Transposes.
            x = tensor(*large[0], dtype=dtype)
            yield unary(
                op,
                f"{dtype} of many pixels",
                x,
                x.with_shape(*large[1]),
                between_convolutions,
                options={"block_size": 2},
                max_transposes=transposes,
            )


def inverse_pair_cases() -> Iterator[Case]:
    """Yield cases of an operator, an activation, and the inverse operator."""

    def build(model: Net) -> None:
        x = model.input_through_conv(tensor(2, 6, 4, 3))
        deep = model.call(SPACE_TO_DEPTH, [x], tensor(2, 3, 2, 12), block_size=2)
        activated = model.call("RELU", [deep], tensor(2, 3, 2, 12))
        model.output(
            model.output_through_conv(model.call(DEPTH_TO_SPACE, [activated], tensor(2, 6, 4, 3), block_size=2))
        )

    yield net(SPACE_TO_DEPTH, "with an activation before the inverse", build, max_transposes=2)


# --- batches ----------------------------------------------------------------------------------


def space_to_batch_case(
    name: str,
    x: Spec,
    block: Sequence[int],
    padding: Sequence[Sequence[int]],
    place: Placement = in_isolation,
    operand_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    n, *sizes, c = (size or 0 for size in x.shape)
    result_sizes = [(size + sum(pads)) // step for size, step, pads in zip(sizes, block, padding, strict=True)]
    settings = [constant(np.asarray(block, operand_dtype)), constant(np.asarray(padding, operand_dtype))]
    y = replace(x, name="").with_shape(n * int(np.prod(block)), *result_sizes, c)
    return place(SPACE_TO_BATCH, name, [x, *settings], y, **{"dtype": x.dtype, **case_fields})


def space_to_batch_cases() -> Iterator[Case]:
    """Yield cases with blocks of different height and width.

    Integers are padded with the zero point.
    """
    for dtype in ("float32", "int8", "uint8", "int16"):
        x = tensor(2, 5, 7, 3, dtype=dtype)
        targets: dict[str, Any] = {"targets": ("onnxruntime",)} if dtype == "int16" else {}
        for place in PLACEMENTS:
            transposes: dict[str, Any] = {"max_transposes": 3} if place is between_convolutions else {}
            yield space_to_batch_case(
                f"{dtype} by 2x3", x, (2, 3), [[1, 2], [2, 0]], place, opsets=opsets(dtype), **targets, **transposes
            )
        yield space_to_batch_case(
            f"{dtype} of rank 3", x.with_shape(2, 5, 3), (3,), [[3, 1]], opsets=opsets(dtype), **targets
        )
        yield space_to_batch_case(f"{dtype} without padding", x.with_shape(2, 4, 6, 3), (2, 3), NO_PADDING, **targets)
    for dtype in ("int32", "int64", "bool"):
        yield space_to_batch_case(dtype, tensor(2, 5, 7, 3, dtype=dtype), (2, 3), [[1, 2], [2, 0]])
    unscaled = tensor(2, 5, 7, 3, dtype="int16", scale=0)
    yield space_to_batch_case("int16 without scale", unscaled, (2, 3), [[1, 2], [2, 0]], targets=("onnxruntime",))
    yield space_to_batch_case(
        "height only", tensor(2, 5, 7, 3), (3, 1), [[1, 0], [0, 0]], between_convolutions, max_transposes=3
    )
    yield space_to_batch_case(
        "by 1 with padding", tensor(2, 5, 7, 3), (1, 1), [[1, 0], [0, 2]], between_convolutions, max_transposes=3
    )
    yield space_to_batch_case(
        "one batch", tensor(1, 4, 6, 3), (2, 2), [[0, 0], [2, 0]], between_convolutions, max_transposes=3
    )
    runs = [{"x0": random_array(n, 4, 6, 3)} for n in (1, 3)]
    settings = [constant([2, 3]), constant(NO_PADDING)]
    yield in_isolation(
        SPACE_TO_BATCH, "dynamic batch", [tensor(None, 4, 6, 3), *settings], tensor(None, 2, 2, 3), input_arrays=runs
    )
    heights = {"x0": random_array(2, 8, 6, 3)}
    yield in_isolation(
        SPACE_TO_BATCH,
        "dynamic height",
        [tensor(2, None, 6, 3), *settings],
        tensor(12, None, 2, 3),
        input_arrays=heights,
        dynamic_sizes=(3, 9),
    )
    large = tensor(1, 32, 32, 16)
    yield space_to_batch_case(
        "many pixels, channels last for speed", large, (2, 2), NO_PADDING, between_convolutions, max_transposes=5
    )


def batch_to_space_case(
    name: str,
    x: Spec,
    block: Sequence[int],
    crops: Sequence[Sequence[int]],
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    n, *sizes, c = (size or 0 for size in x.shape)
    result_sizes = [size * step - sum(axis_crops) for size, step, axis_crops in zip(sizes, block, crops, strict=True)]
    settings = [constant(list(block)), constant(np.asarray(crops, "int32"))]
    y = replace(x, name="").with_shape(n // int(np.prod(block)), *result_sizes, c)
    return place(BATCH_TO_SPACE, name, [x, *settings], y, **{"dtype": x.dtype, **case_fields})


def batch_to_space_cases() -> Iterator[Case]:
    """Yield cases with crops; a crop may be wider than a block."""
    for dtype in ("float32", "int8", "uint8", "int16"):
        x = tensor(12, 5, 3, 7, dtype=dtype)
        for place in PLACEMENTS:
            transposes: dict[str, Any] = {"max_transposes": 3} if place is between_convolutions else {}
            yield batch_to_space_case(
                f"{dtype} by 2x3", x, (2, 3), [[1, 3], [2, 0]], place, opsets=opsets(dtype), **transposes
            )
        yield batch_to_space_case(f"{dtype} of rank 3", x.with_shape(6, 5, 3), (3,), [[1, 4]], opsets=opsets(dtype))
        yield batch_to_space_case(f"{dtype} without crops", x, (2, 3), NO_PADDING)
    for dtype in ("int32", "int64", "bool"):
        yield batch_to_space_case(dtype, tensor(12, 5, 3, 7, dtype=dtype), (2, 3), [[1, 3], [2, 0]])
    yield batch_to_space_case(
        "width only", tensor(6, 5, 3, 7), (1, 3), [[0, 0], [0, 4]], between_convolutions, max_transposes=3
    )
    yield batch_to_space_case(
        "result of one batch", tensor(4, 5, 3, 7), (2, 2), [[0, 0], [1, 0]], between_convolutions, max_transposes=3
    )
    runs = [{"x0": random_array(n, 5, 3, 7)} for n in (6, 12)]
    settings = [constant([2, 3]), constant([[1, 3], [2, 0]])]
    yield in_isolation(
        BATCH_TO_SPACE,
        "dynamic batch",
        [tensor(None, 5, 3, 7), *settings],
        tensor(None, 6, 7, 7),
        input_arrays=runs,
        dynamic_sizes=(18, 24),
    )


def runtime_setting_cases() -> Iterator[Case]:
    """Yield cases whose block sizes, paddings or crops are graph inputs."""
    for op, shape, pads_or_crops in (
        (SPACE_TO_BATCH, (2, 5, 7, 3), [[1, 2], [2, 0]]),
        (BATCH_TO_SPACE, (12, 5, 3, 7), [[1, 3], [2, 0]]),
    ):
        labels = {"block": "block size", "pads_or_crops": "padding" if op == SPACE_TO_BATCH else "crops"}
        settings = {"block": np.array([2, 3], np.int32), "pads_or_crops": np.asarray(pads_or_crops, np.int32)}
        rank_3_settings = {"block": np.array([3], np.int32), "pads_or_crops": np.array([[3, 1]], np.int32)}
        for runtime_names in (("block",), ("pads_or_crops",), ("block", "pads_or_crops")):
            name = f"runtime {' and '.join(labels[operand] for operand in runtime_names)}"
            for dtype in ("float32", "int8", "uint8", "int16"):
                yield runtime_setting_case(op, f"{dtype}, {name}", tensor(*shape, dtype=dtype), settings, runtime_names)
            yield runtime_setting_case(op, name, tensor(*shape), settings, runtime_names, between_convolutions)
            yield runtime_setting_case(
                op, f"{name}, rank 3", tensor(shape[0] * 3, 5, 7), rank_3_settings, runtime_names
            )
        for dtype in ("int32", "int64", "bool"):
            yield runtime_setting_case(
                op,
                f"{dtype}, both operands at runtime",
                tensor(*shape, dtype=dtype),
                settings,
                ("block", "pads_or_crops"),
            )


def runtime_setting_case(
    op: str, name: str, x: Spec, settings: dict[str, Array], runtime_names: Sequence[str], place: Placement = in_isolation
) -> Case:  # fmt: skip
    """Return a case with block sizes, pads or crops at runtime.

    ``settings``: the arrays of these operands by name. ``runtime_names``: names of the operands that are graph inputs.
    """
    operands = [
        tensor(*array.shape, dtype="int32", name=key) if key in runtime_names else constant(array)
        for key, array in settings.items()
    ]
    n, *sizes, c = (size or 0 for size in x.shape)
    block, pads_or_crops = settings["block"], settings["pads_or_crops"]
    if op == SPACE_TO_BATCH:
        shape = (n * int(block.prod()), *((sizes + pads_or_crops.sum(axis=1)) // block), c)
    else:
        shape = (n // int(block.prod()), *(sizes * block - pads_or_crops.sum(axis=1)), c)
    y = replace(x, name="").with_shape(*(int(size) for size in shape))
    runtime_arrays = {key: settings[key] for key in runtime_names}
    return place(op, name, [x, *operands], y, dtype=x.dtype, input_arrays=runtime_arrays, max_transposes=None)


def dynamic_size_cases() -> Iterator[Case]:
    """Yield cases whose dimensions are all dynamic except the channels."""
    runs = [{"x0": random_array(*shape, 8)} for shape in ((1, 6, 4), (3, 4, 6))]
    for op in (DEPTH_TO_SPACE, SPACE_TO_DEPTH):
        for target in ("onnxruntime", "generic"):
            x, y = tensor(None, None, None, 8), tensor(None, None, None, 2 if op == DEPTH_TO_SPACE else 32)
            name = f"dynamic height and width for {target}"
            yield unary(
                op, name, x, y, options={"block_size": 2}, input_arrays=runs, targets=(target,), dynamic_sizes=()
            )
    block, pads_or_crops = constant([2, 3]), constant([[1, 1], [0, 3]])
    for op, images in ((SPACE_TO_BATCH, ((1, 6, 6), (2, 2, 3))), (BATCH_TO_SPACE, ((6, 2, 2), (12, 3, 4)))):
        runs = [{"x0": random_array(*shape, 5)} for shape in images]
        operands, y = [tensor(None, None, None, 5), block, pads_or_crops], tensor(None, None, None, 5)
        yield in_isolation(
            op, "all dimensions dynamic except channels", operands, y, input_arrays=runs, dynamic_sizes=()
        )


def refusal_cases() -> Iterator[Case]:
    """Yield cases that the kernels refuse."""
    settings = [constant([2, 2]), constant(NO_PADDING)]
    x = tensor(1, 4, 6, 3, dtype="int8")
    yield in_isolation(
        SPACE_TO_BATCH,
        "int8 to a different scale",
        [x, *settings],
        x.rescale(2.0).with_shape(4, 2, 3, 3),
        kernel_refusal="params.scale",
    )
    rank_limit = "kInputMaxDimensionNum"
    yield in_isolation(
        SPACE_TO_BATCH, "rank 5", [tensor(1, 4, 6, 2, 3), *settings], tensor(4, 2, 3, 2, 3), kernel_refusal=rank_limit
    )
    for op in (DEPTH_TO_SPACE, SPACE_TO_DEPTH):
        before, after = shapes_before_and_after(op, 2, (2, 3, 5, 3))
        x = tensor(*before, dtype="int16")
        yield unary(op, "int16", x, x.with_shape(*after), options={"block_size": 2}, kernel_refusal="data_type ==")
    crops = constant([[1, 0], [0, 1]])
    yield from refused_copy_cases(
        BATCH_TO_SPACE, Copy([(2, 9, 13, 3)], [constant([2, 2]), crops], input_shape=(8, 5, 7, 3))
    )
