"""Cases for ``tensorflow_cases``: bits, counts, colors, crops and diagonals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.tensorflow_operands import RANDOM, Constant, Row, constant, numbers, positive, real, scalar


def bitwise() -> Iterator[Row]:
    yield Row("FloorDiv", "int64", [real(3, 5, 7, dtype="int64"), -positive(5, 1, dtype="int64")])
    large = numbers(2**62 + 1, -(2**62) - 1, 2**53 + 1, 7, -7, dtype="int64")
    yield Row("FloorDiv", "large int64", [large, numbers(3, 2, -1, 2, 2, dtype="int64")])
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        bounds = np.iinfo(dtype)
        x, y = (RANDOM.integers(bounds.min, bounds.max, (3, 5, 7), dtype, endpoint=True) for _ in range(2))
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Row(op, dtype, [x, y])
        yield Row("Invert", dtype, [x])
        shift = RANDOM.integers(0, bounds.bits, (7,)).astype(dtype)
        if dtype != "uint64":
            yield Row("LeftShift", dtype, [x, shift])
        if "64" not in dtype:
            yield Row("RightShift", dtype, [x, shift])
    for op in ("LeftShift", "RightShift"):
        yield Row(op, "shifts beyond the dtype", [numbers(5, -5, 7, 1), numbers(-1, 31, 32, 100)])


def counting() -> Iterator[Row]:
    for mode in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}):
        name = " and ".join(mode) or "default"
        yield Row("CumulativeLogsumexp", name, [real(3, 5, 2, low=-9, high=90), scalar(-2)], mode)
    for op in ("TensorScatterMax", "TensorScatterMin"):
        for dtype in ("float32", "int32", "int64"):
            x, updates = real(5, 7, 3, dtype=dtype), real(4, 3, dtype=dtype)
            yield Row(op, dtype, [x, numbers([4, 6], [0, 0], [4, 6], [2, 3]), updates])
        yield Row(op, "int64 places", [real(5, 3), numbers([4], [0], dtype="int64"), real(2, 3)])
    scores = real(5, 7)
    scores[3, 2], scores[4, 1] = np.inf, np.nan
    for k in (1, 3, 7):
        yield Row("InTopKV2", f"k is {k}", [real(5, 7), numbers(6, 0, 3, 2, 5), scalar(k)])
    yield Row("InTopKV2", "rows that are not finite", [scores, numbers(6, 0, 3, 2, 5), scalar(5)])
    yield Row("InTopKV2", "missing classes, int64", [real(5, 7), numbers(7, -1, 3, 2, 5, dtype="int64"),
              Constant(numbers(3, dtype="int64")[0])])  # fmt: skip
    x, matrix = numbers(3, 0, 3, 9, 5, 3, 1), numbers([3, 0, 3], [9, 5, 3])
    none = {dtype: Constant(np.zeros(0, dtype)) for dtype in ("float32", "int32", "int64")}
    for dtype, no_weights in none.items():
        yield Row("DenseBincount", f"counts, {dtype}", [x, scalar(7), no_weights])
        yield Row("DenseBincount", f"rows, {dtype}", [matrix, scalar(5), no_weights])
    yield Row("DenseBincount", "weights", [x, scalar(7), real(7)])
    yield Row("DenseBincount", "weights of rows", [matrix, scalar(11), real(2, 3)])
    yield Row("DenseBincount", "presence", [matrix, scalar(7), none["float32"]], {"binary_output": True})
    for dtype in ("float32", "int32", "int64", "uint8"):
        values = numbers(7, 3, 7, 0, 5, 3, 7, dtype=dtype)
        yield Row("UniqueWithCounts", dtype, [values])
    yield Row("UniqueWithCounts", "int64 places", [x], {"out_idx": "int64"})


def color() -> Iterator[Row]:
    special = np.asarray([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1],
                          [0.5, 0.25, 0.5], [-1, -2, -3], [-1, 2, 0.5]], np.float32)  # fmt: skip
    image = real(2, 5, 7, 3, low=0, high=1)
    yield Row("RGBToHSV", "image", [image])
    yield Row("RGBToHSV", "corners of the cube", [special])
    yield Row("HSVToRGB", "image", [image])
    yield Row("HSVToRGB", "corners of the cube", [special])
    for op in ("AdjustSaturation", "AdjustHue"):
        for value in (0.3, 1.7) if op == "AdjustSaturation" else (0.3, -0.7):
            yield Row(op, f"{value}", [image, scalar(value, "float32")])
        yield Row(op, "corners of the cube", [special.reshape(1, 11, 3), scalar(0.25, "float32")])
        yield Row(op, "runtime value", [image, numbers(0.5, dtype="float32")[0]])
    yield Row("AdjustContrastv2", "batch", [image, scalar(1.7, "float32")])
    yield Row("AdjustContrastv2", "one image, one channel", [real(5, 7, 1), scalar(0.3, "float32")])


def crops() -> Iterator[Row]:
    for name in ("default", "align_corners", "half_pixel_centers"):
        for size in ([11, 13], [3, 2], [1, 7]):
            mode: dict[str, Any] = {} if name == "default" else {name: True}
            yield Row("ResizeBicubic", f"{name} to {size}", [real(2, 5, 7, 3), constant(*size)], mode)
    yield Row("ResizeBicubic", "uint8", [real(1, 5, 7, 3, dtype="uint8", low=0), constant(10, 14)])
    boxes = np.asarray([[0, 0, 1, 1], [0.1, 0.25, 0.6, 0.75], [0.9, 1, 0.2, 0], [-0.5, 0.3, 1.5, 0.8]], np.float32)
    image_indices, options = numbers(0, 1, 1, 0), {"extrapolation_value": -2.0}
    for method in ("bilinear", "nearest"):
        for size in ([3, 5], [1, 4]):
            attributes: dict[str, Any] = {"method": method, **options}
            operands = [real(2, 7, 11, 3), boxes, image_indices]
            yield Row("CropAndResize", f"{method} to {size}", [*operands, constant(*size)], attributes)
    yield Row(
        "CropAndResize",
        "default, uint8",
        [real(2, 7, 11, 3, dtype="uint8", low=0), boxes, image_indices, constant(2, 3)],
    )
    for padding in ("SAME", "VALID"):
        attributes = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 3, 1], "padding": padding}
        yield Row("MaxPoolWithArgmax", padding, [real(2, 7, 11, 3)], attributes)
        with_batch = {**attributes, "include_batch_in_index": True, "Targmax": "int32"}
        yield Row("MaxPoolWithArgmax", f"{padding}, batch, int32", [real(2, 7, 11, 3)], with_batch)


def sums_and_diagonals() -> Iterator[Row]:
    yield Row("Einsum", "diagonal", [real(3, 5, 5)], {"equation": "bii->bi"})
    yield Row("Einsum", "trace", [real(3, 5, 5)], {"equation": "bii->b"})
    yield Row("Einsum", "products", [real(2, 3, 5), real(2, 5, 7)], {"equation": "bij,bjk->bik"})
    yield Row("Einsum", "ellipsis", [real(2, 3, 5), real(5, 7)], {"equation": "...ij,jk->...ik"})
    yield Row("Einsum", "int32, sums", [real(3, 5, dtype="int32"), real(5, dtype="int32")], {"equation": "ab,b->a"})
    for k in (0, 2, -1):
        yield Row("MatrixDiagPartV3", f"diagonal {k}", [real(2, 5, 7), scalar(k), scalar(0, "float32")])
    yield Row("MatrixDiagPartV3", "int32", [real(7, 5, dtype="int32"), scalar(-3), scalar(0)])
