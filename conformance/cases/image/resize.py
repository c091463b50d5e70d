"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, in all coordinate modes.

Some sizes have float32 coordinates that are inexact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    net,
    opsets,
    random_array,
    tensor,
)
from onnx_tflite_plugin.verify import Tolerance

NEAREST = "RESIZE_NEAREST_NEIGHBOR"
IMAGE = (2, 5, 7, 3)
MODES = {
    "legacy": {},
    "half_pixel_centers": {"half_pixel_centers": True},
    "align_corners": {"align_corners": True},
    "both": {"half_pixel_centers": True, "align_corners": True},
}
# Input and output sizes for which floor or round of the float32 product differs from the exact product.
INEXACT_SIZES = {
    "legacy": ((2, 82), (26, 22), (6, 74), (14, 46), (44, 22)),
    "half_pixel_centers": ((2, 41), (6, 37), (4, 55)),
    "align_corners": ((2, 83), (14, 23), (32, 15), (4, 75)),
    "both": ((2, 83), (14, 23)),
}
BILINEAR_MODES = ("legacy", "half_pixel_centers", "align_corners")
UP, DOWN, MIXED = (11, 17), (3, 2), (4, 9)


def cases() -> Iterator[Case]:
    yield from runtime_size_cases()
    yield from bilinear_cases()
    yield from size_cases()
    yield from dtype_cases()
    yield from large_image_cases()
    yield from nearest_runtime_size_cases()
    yield from requantization_cases()
    yield from tie_cases()


def resize_then_transpose(perm: Sequence[int], images: int | None = 2) -> Callable[[Net], None]:
    """Return a builder of a resize and a transpose.

    If the Transpose were moved before the Resize, ONNX Runtime would not support the model.
    """

    def build(model: Net) -> None:
        image = model.call("RESIZE_BILINEAR", [tensor(images, 5, 7, 3), constant([11, 14])], tensor(images, 11, 14, 3))
        result = tensor(*((images, 11, 14, 3)[axis] for axis in perm))
        model.output(model.call("TRANSPOSE", [image, constant([*perm])], result))

    return build


def bilinear_cases() -> Iterator[Case]:
    for mode in BILINEAR_MODES:
        for size in (UP, DOWN, MIXED, (5, 7), (1, 1), (10, 14)):
            yield bilinear_case(
                f"float32 {mode} to {size[0]}x{size[1]}", mode, size, opsets=EVERY_OPSET if size == UP else (None,)
            )
        for size in (UP, DOWN):
            yield bilinear_case(f"float32 {mode} to {size[0]}x{size[1]}", mode, size, place=between_convolutions)
        for dtype in ("int8", "uint8", "int16"):
            for place in PLACEMENTS:
                yield bilinear_case(f"{dtype} {mode} to {MIXED[0]}x{MIXED[1]}", mode, MIXED, dtype, place)
            yield bilinear_case(f"{dtype} {mode} to 10x14", mode, (10, 14), dtype)
            unscaled = Spec(IMAGE, dtype)
            yield bilinear_case(f"{dtype} without a scale {mode} to {MIXED[0]}x{MIXED[1]}", mode, MIXED, x=unscaled)
        yield bilinear_case(f"one pixel {mode}", mode, (3, 5), x=tensor(1, 1, 1, 3))
    for perm in ((2, 3, 0, 1), (1, 0, 2, 3), (3, 1, 0, 2), (2, 1, 3, 0)):
        yield net("RESIZE_BILINEAR", f"before a transpose to {perm}", resize_then_transpose(perm))
        yield net(
            "RESIZE_BILINEAR",
            f"dynamic batch before a transpose to {perm}",
            resize_then_transpose(perm, None),
            dynamic_sizes=(3,),
        )
    for place in PLACEMENTS:
        arrays = {"size": np.array([4, 9], np.int32)}
        options = {"half_pixel_centers": True}
        size_input = tensor(2, dtype="int32", name="size")
        yield place(
            "RESIZE_BILINEAR",
            "size known at runtime",
            [tensor(*IMAGE), size_input],
            tensor(2, 4, 9, 3),
            options=options,
            input_arrays=arrays,
        )
    arrays_of_runs = [{"x0": random_array(n, h, 7, 3)} for n, h in ((1, 5), (3, 8))]
    yield in_isolation(
        "RESIZE_BILINEAR",
        "dynamic image shape",
        [tensor(None, None, 7, 3), constant([4, 9])],
        tensor(None, 4, 9, 3),
        input_arrays=arrays_of_runs,
    )


def bilinear_case(
    name: str,
    mode: str,
    size: Sequence[int],
    dtype: str = "float32",
    place: Placement = in_isolation,
    *,
    x: Spec | None = None,
    **case_fields: Any,
) -> Case:
    x = x or tensor(*IMAGE, dtype=dtype)
    images, *_, channels = x.shape
    result = x.with_shape(images, *size, channels)
    return place("RESIZE_BILINEAR", name, [x, constant(list(size))], result, options=MODES[mode], **case_fields)


def nearest_case(
    name: str,
    mode: str,
    size: Sequence[int],
    x: Spec | None = None,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    x = x or tensor(*IMAGE)
    n, _, _, c = x.shape
    operands = [x, constant(list(size))]
    y = Spec((n, *size, c), x.dtype, x.scale, x.zero_point)
    return place(NEAREST, f"{mode} {name}", operands, y, options=MODES[mode], **{"dtype": x.dtype, **case_fields})


def size_cases() -> Iterator[Case]:
    for mode in MODES:
        for size in ((11, 17), (3, 2), (4, 9), (5, 7), (1, 1), (10, 21), (5, 14)):
            for place in PLACEMENTS:
                yield nearest_case(f"to {size[0]}x{size[1]}", mode, size, place=place)
        for dtype in ("float32", "int8"):
            x = tensor(2, 10, 14, 3, dtype=dtype)
            yield nearest_case(f"{dtype} to half the size, between pixels", mode, (5, 7), x, between_convolutions)
        for before, after in INEXACT_SIZES[mode]:
            for dtype in ("float32", "int8", "int16"):
                yield nearest_case(
                    f"{dtype} {before} to {after}",
                    mode,
                    (after, 3),
                    tensor(1, before, 3, 2, dtype=dtype),
                    between_convolutions,
                )
                yield nearest_case(
                    f"{dtype} {before} to {after} columns", mode, (2, after), tensor(1, 2, before, 1, dtype=dtype)
                )


def dtype_cases() -> Iterator[Case]:
    for mode in MODES:
        for dtype in ("float32", "int8", "uint8", "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS:
                yield nearest_case(f"{dtype} to 4x9", mode, (4, 9), x, place, opsets=opsets(dtype))
                yield nearest_case(f"{dtype} to 10x14", mode, (10, 14), x, place, opsets=opsets(dtype))
        for dtype in ("int32", "int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield nearest_case(f"{dtype} without scale to 4x9", mode, (4, 9), x)
            yield nearest_case(f"{dtype} without scale to 10x14", mode, (10, 14), x)
    x = tensor(*IMAGE, dtype="int64")
    yield nearest_case("int64", "legacy", (10, 14), x, kernel_refusal="requires float, uint8, int8 or int16")


def large_image_cases() -> Iterator[Case]:
    """Yield cases of large images, whose layout depends on dtype and operator.

    Floats stay channels first. Integers, and images whose pixels are gathered, become channels last.
    """
    for dtype, transposes in (("float32", 2), ("int8", 4)):
        x = tensor(1, 16, 16, 32, dtype=dtype)
        yield nearest_case(
            f"{dtype} of many pixels to twice the size",
            "legacy",
            (32, 32),
            x,
            between_convolutions,
            max_transposes=transposes,
        )
        yield nearest_case(
            f"{dtype} of many pixels to an odd size",
            "half_pixel_centers",
            (23, 29),
            x,
            between_convolutions,
            max_transposes=4,
        )


def runtime_size_cases() -> Iterator[Case]:
    """Yield cases of int16 RESIZE_BILINEAR to runtime sizes.

    Coordinates are multiples of 1/1024, as in the kernel.
    """
    size = tensor(2, dtype="int32", name="size")
    for mode in ("legacy", "half_pixel_centers", "align_corners"):
        x = tensor(*IMAGE, dtype="int16")
        arrays_of_runs = [{"size": np.array(new_size, np.int32)} for new_size in ([4, 9], [13, 1], [1, 5], [10, 14])]
        name = f"{mode} int16, size known at runtime"
        y = x.with_shape(2, None, None, 3)
        yield in_isolation(
            "RESIZE_BILINEAR", name, [x, size], y, options=MODES[mode], input_arrays=arrays_of_runs, runs=4
        )
        yield in_isolation(
            "RESIZE_BILINEAR", f"{mode} int16 of dynamic shape", [x.with_shape(2, None, None, 3), constant([9, 13])],
            x.with_shape(2, 9, 13, 3), options=MODES[mode], input_arrays=[{"x0": random_array(2, n, 7, 3, dtype="int16")} for n in (5, 3)],
        )  # fmt: skip


def nearest_runtime_size_cases() -> Iterator[Case]:
    """Yield cases of RESIZE_NEAREST_NEIGHBOR to runtime sizes.

    The result has the same pixels as with constant sizes.
    """
    size = tensor(2, dtype="int32", name="size")
    for mode in MODES:
        for dtype in ("float32", "int8", "uint8"):
            x = tensor(*IMAGE, dtype=dtype)
            arrays = {"size": np.array([4, 9], np.int32)}
            for place in PLACEMENTS:
                name = f"{mode} {dtype}, size known at runtime"
                yield place(
                    NEAREST, name, [x, size], x.with_shape(2, 4, 9, 3), options=MODES[mode], input_arrays=arrays
                )
            before, after = INEXACT_SIZES[mode][0]
            arrays = {"size": np.array([after, 1], np.int32)}
            x = tensor(1, before, 3, 2, dtype=dtype)
            name = f"{mode} {dtype} {before} to {after}, known at runtime"
            yield in_isolation(
                NEAREST, name, [x, size], x.with_shape(1, None, None, 2), options=MODES[mode], input_arrays=arrays
            )
        arrays_of_runs = [{"x0": random_array(n, h, 7, 3)} for n, h in ((1, 5), (3, 8))]
        operands = [tensor(None, None, 7, 3), constant([4, 14])]
        y = tensor(None, 4, 14, 3)
        yield in_isolation(
            NEAREST, f"{mode} of dynamic shape", operands, y, options=MODES[mode], input_arrays=arrays_of_runs
        )

    yield net(NEAREST, "upsampled twice without stored shapes", build_computed_sizes)


def build_computed_sizes(model: Net) -> None:
    """Build two resizes to twice the size of their input.

    Old converters store no shapes after a computed size.
    """
    ref = model.input(tensor(*IMAGE))
    for k in (0, 1):
        shape, size, doubled_size, resized, y = (
            model.graph.tensor(f"{name}{k}", None, dtype) for name, dtype in TENSORS_WITHOUT_SHAPE
        )
        model.graph.operator("SHAPE", [ref], [shape], {"out_type": "INT32"})
        bounds = [model.add_operand(constant(bound)) for bound in ([1], [3], [1])]
        model.graph.operator("STRIDED_SLICE", [shape, *bounds], [size], {})
        model.graph.operator(
            "MUL", [size, model.add_operand(constant([2, 2]))], [doubled_size], {"fused_activation_function": "NONE"}
        )
        model.graph.operator(NEAREST, [ref, doubled_size], [resized], {})
        window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 3}
        model.graph.operator("MAX_POOL_2D", [resized], [y], window)
        ref = y
    model.graph.output(ref)


TENSORS_WITHOUT_SHAPE = (
    ("sizes", "int32"),
    ("both", "int32"),
    ("twice", "int32"),
    ("larger", "float32"),
    ("y", "float32"),
)


def requantization_cases() -> Iterator[Case]:
    """Yield cases of results whose scale differs from the image's.

    The kernels ignore both scales.
    """
    yield from copy_cases(NEAREST, Copy([(2, 10, 14, 3)], [constant([10, 14])]))
    yield from copy_cases("RESIZE_BILINEAR", Copy([(2, 4, 9, 3)], [constant([4, 9])]))


def tie_cases() -> Iterator[Case]:
    """Yield cases with results halfway between integers.

    XNNPACK rounds them up (xnn_s8_ibilinear), the builtin kernel away from 0, QuantizeLinear to even.
    """
    for dtype in ("int8", "uint8"):
        for height, reference in ((10, _upsample_reference), (5, _downsample_reference)):  # 5x10 to 10x20, and back
            x = tensor(1, 15 - height, 30 - 2 * height, 3, dtype=dtype, scale=0.047, zero_point=7)
            yield in_isolation(
                "RESIZE_BILINEAR",
                f"{dtype} halves round up, to {height}x{2 * height}",
                [x, constant([height, 2 * height])],
                x.with_shape(1, height, 2 * height, 3),
                options=MODES["half_pixel_centers"],
                reference=reference,
                tolerance=Tolerance(steps=0),
                tolerance_reason="every coordinate is exact",
            )


def _upsample_reference(arrays: Sequence[Any]) -> list[Any]:
    means = arrays[0].astype(np.float64)
    for axis in (1, 2):
        padded = np.pad(means, [(int(k == axis),) * 2 for k in range(4)], "edge")
        neighbors = [np.take(padded, range(k, k + means.shape[axis]), axis) for k in range(3)]
        pairs = np.stack([neighbors[0] / 4 + neighbors[1] * 3 / 4, neighbors[1] * 3 / 4 + neighbors[2] / 4], axis + 1)
        means = pairs.reshape([size * (2 if k == axis else 1) for k, size in enumerate(means.shape)])
    return [np.floor(means + 0.5).astype(arrays[0].dtype)]


def _downsample_reference(arrays: Sequence[Any]) -> list[Any]:
    n, h, w, c = arrays[0].shape
    means = arrays[0].astype(np.float64).reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4))
    return [np.floor(means + 0.5).astype(arrays[0].dtype)]
