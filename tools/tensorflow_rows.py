"""Cases for ``tensorflow_cases``: operators on small operands of every dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.tensorflow_detection_rows import bounds, combined_detection, detection, scattering
from tools.tensorflow_image_rows import bitwise, color, counting, crops, sums_and_diagonals
from tools.tensorflow_operands import Constant, Row, complex_numbers, constant, flags, numbers, positive, real, scalar

FLOATS = ("float32", "float64", "float16")
REAL = (*FLOATS, "int32", "int64")


def unary() -> Iterator[Row]:
    for op in ("Ceil", "Cos", "Exp", "Floor", "Round", "Rint", "Sin"):
        for dtype in FLOATS[: 2 if op == "Rint" else 3]:
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype)])
    for op in ("Abs", "Neg", "Sign", "Square"):
        for dtype in REAL:
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype)])
    for op in ("Log", "Rsqrt", "Sqrt", "Reciprocal", "Inv"):
        for dtype in FLOATS:
            yield Row(op, dtype, [positive(3, 5, 7, dtype=dtype)])
    for op in ("Asin", "Acos", "Atanh"):
        yield Row(op, "float32", [real(2, 5, 7, low=-0.9, high=0.9)])
    yield Row("Acosh", "float32", [real(2, 5, 7, low=1, high=6)])
    for op in ("Asinh", "Atan", "Cosh", "Sinh", "Tan", "Erf", "Erfc"):
        yield Row(op, "float32", [real(2, 5, 7, low=-2, high=2)])
    yield Row("Erf", "float16", [real(5, 7, dtype="float16")])
    near_zero = np.asarray([-3, -0.5, -1e-3, -1e-6, -1e-9, 0, 1e-9, 1e-6, 1e-3, 0.3, 2, 7], np.float32).reshape(2, 2, 3)
    yield Row("Expm1", "float32 near 0", [near_zero])
    yield Row("Log1p", "float32 near 0", [np.maximum(near_zero, -0.5)])
    special = np.asarray([1, -np.inf, np.inf, np.nan, -0.0, 3], np.float32).reshape(1, 2, 3)
    for op in ("IsInf", "IsNan", "IsFinite"):
        yield Row(op, "float32", [special])
        yield Row(op, "float64", [special.astype(np.float64)])
    for before, after in (
        ("float64", "float32"), ("float32", "float64"), ("float64", "float16"), ("int64", "float64"), ("bool", "int64"),
        ("float32", "bool"), ("float64", "int32"), ("float16", "int64"), ("uint8", "float16"), ("int32", "uint8"),
    ):  # fmt: skip
        x = flags(2, 5, 7) if before == "bool" else real(2, 5, 7, dtype=before, low=0 if "u" in before + after else -4)
        yield Row("Cast", f"{before} to {after}", [x], {"SrcT": before, "DstT": after})
    yield Row("Cast", "complex64 to float32", [complex_numbers(5, 7)], {"SrcT": "complex64", "DstT": "float32"})


def activation() -> Iterator[Row]:
    for op in ("Relu", "Relu6", "Sigmoid", "Tanh", "Softmax", "LogSoftmax"):
        for dtype in FLOATS[: 2 if op == "Softmax" else 3]:  # TensorFlow rounds each step of float16 Softmax to float16
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype, low=-7, high=7)])
    for op in ("Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"):
        for dtype in ("float32", "float16"):
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype, low=-8, high=8)])
    yield Row("LeakyRelu", "a slope", [real(5, 7)], {"alpha": 0.625})
    yield Row("Softplus", "large numbers", [np.asarray([-200, -30, -13, 0, 13, 30, 200], np.float32)])


def arithmetic() -> Iterator[Row]:
    for op in ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"):
        for dtype in REAL:
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype), real(5, 1, dtype=dtype)])
        yield Row(op, "a constant", [real(3, 5, 7), Constant(real(7))])
    for dtype in FLOATS:
        yield Row("RealDiv", dtype, [real(3, 5, 7, dtype=dtype), positive(5, 1, dtype=dtype)])
        for op in ("Xlogy", "Xdivy"):
            yield Row(op, dtype, [np.maximum(real(3, 5, 7, dtype=dtype), 0), positive(5, 1, dtype=dtype)])
        yield Row("DivNoNan", dtype, [real(3, 5, 7, dtype=dtype), np.maximum(real(5, 1, dtype=dtype), 0)])
    for dtype in REAL:
        yield Row("Div", dtype, [real(3, 5, 7, dtype=dtype), positive(5, 1, dtype=dtype)])
        yield Row("AddN", dtype, [real(2, 5, 7, dtype=dtype) for _ in range(3)])
    for dtype in ("float32", "int32"):
        yield Row("FloorDiv", dtype, [real(3, 5, 7, dtype=dtype), -positive(5, 1, dtype=dtype)])
    for dtype in ("float32", "int32", "int64"):
        yield Row("FloorMod", dtype, [real(3, 5, 7, dtype=dtype), -positive(5, 1, dtype=dtype)])
    for dtype in ("float32", "float64"):
        yield Row("Pow", dtype, [positive(3, 5, 7, dtype=dtype), real(5, 1, dtype=dtype)])
    yield Row("Atan2", "float32", [real(3, 5, 7), real(3, 5, 7)])
    yield Row("Mul", "complex64", [complex_numbers(5, 7), complex_numbers(5, 7)])


def comparison() -> Iterator[Row]:
    for op in ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"):
        for dtype in REAL:
            bounds = {"low": -2, "high": 2} if "int" in dtype else {"low": -0.5, "high": 0.5}
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype, **bounds), real(5, 1, dtype=dtype, **bounds)])
    yield Row("Equal", "bool", [flags(5, 7), flags(7)])
    yield Row("LogicalAnd", "bool", [flags(3, 5, 7), flags(5, 1)])
    yield Row("LogicalOr", "bool", [flags(3, 5, 7), flags(5, 1)])
    yield Row("LogicalNot", "bool", [flags(3, 5, 7)])
    for dtype in (*REAL, "uint8", "int8"):
        bounds = {"low": 0} if "u" in dtype else {}
        yield Row(
            "SelectV2", dtype, [flags(5, 1), real(3, 5, 7, dtype=dtype, **bounds), real(7, dtype=dtype, **bounds)]
        )
    yield Row("SelectV2", "bool", [flags(5, 7), flags(5, 7), flags(5, 7)])
    yield Row("SelectV2", "complex64", [flags(5, 7), complex_numbers(5, 7), complex_numbers(5, 7)])
    yield Row("Select", "rows", [flags(5), real(5, 7), real(5, 7)])
    yield Row("Select", "elements", [flags(3, 5, 7), real(3, 5, 7), real(3, 5, 7)])
    yield Row("Where", "bool", [flags(3, 5, 7)])
    yield Row("Where", "float32", [np.maximum(real(5, 7), 0)])


def shape() -> Iterator[Row]:
    for op in ("Identity", "PreventGradient", "StopGradient", "Snapshot"):
        yield Row(op, "float32", [real(3, 5, 7)])
    for dtype in ("float64", "int64", "bool", "complex64"):
        x = (
            flags(5, 7)
            if dtype == "bool"
            else complex_numbers(5, 7)
            if dtype == "complex64"
            else real(5, 7, dtype=dtype)
        )
        yield Row("Identity", dtype, [x])
    for axis in (0, 2, -1, -3):
        yield Row("ExpandDims", f"axis {axis}", [real(5, 7), scalar(axis)])
    yield Row("ExpandDims", "int64 and an int64 axis", [real(5, 7, dtype="int64"), scalar(1, "int64")])
    yield Row("Squeeze", "every axis", [real(1, 5, 1, 7)])
    yield Row("Squeeze", "one axis", [real(1, 5, 1, 7)], {"squeeze_dims": [2]})
    yield Row("Squeeze", "a negative axis, float64", [real(1, 5, 1, 7, dtype="float64")], {"squeeze_dims": [-4]})
    yield Row("Reshape", "a constant shape", [real(3, 5, 7), constant(5, -1)])
    yield Row("Reshape", "an axis taken apart", [real(2, 3, 35), constant(2, 3, 5, 7)])
    yield Row("Reshape", "int64 shape", [real(3, 5, 7, dtype="int64"), constant(7, 15, dtype="int64")])
    yield Row("Reshape", "a shape at runtime", [real(3, 5, 7), numbers(15, 7)])
    yield Row("Reshape", "an int64 shape at runtime", [real(3, 5, 7), numbers(15, 7, dtype="int64")])
    yield Row("Transpose", "float32", [real(2, 3, 5, 7), constant(0, 3, 1, 2)])
    yield Row(
        "Transpose",
        "float64, an int64 permutation",
        [real(3, 5, 7, dtype="float64"), constant(2, 0, 1, dtype="int64")],
    )
    yield Row("BroadcastTo", "float32", [real(5, 1), constant(3, 5, 7)])
    yield Row("BroadcastTo", "a shape at runtime", [real(5, 1), numbers(3, 5, 7)])
    yield Row("Tile", "float32", [real(3, 5, 2), constant(2, 1, 3)])
    yield Row("Tile", "int64 multiples, bool", [flags(3, 5), constant(1, 2, dtype="int64")])
    yield Row("Shape", "default", [real(3, 5, 7)])
    yield Row("Shape", "int64", [real(3, 5, 7)], {"out_type": "int64"})
    yield Row("Rank", "float32", [real(3, 5, 7)])
    yield Row("Size", "default", [real(3, 5, 7)])
    yield Row("Size", "int64", [real(3, 5, 7)], {"out_type": "int64"})
    yield Row("Roll", "one axis", [real(3, 5, 7), scalar(2), scalar(1)])
    yield Row("Roll", "two axes", [real(3, 5, 7, dtype="int64"), constant(-4, 9), constant(0, 2)])


def joining() -> Iterator[Row]:
    for axis in (0, 1, -1):
        yield Row("ConcatV2", f"axis {axis}", [real(3, 5, 7), real(3, 5, 7), scalar(axis)])
    yield Row("ConcatV2", "other sizes, float64", [real(3, 5, dtype="float64"), real(3, 2, dtype="float64"), scalar(1)])
    yield Row("ConcatV2", "int64", [real(3, 5, dtype="int64"), real(2, 5, dtype="int64"), scalar(0)])
    yield Row("Pack", "default", [real(5, 7), real(5, 7)])
    yield Row("Pack", "axis -1, int64", [real(5, 7, dtype="int64") for _ in range(3)], {"axis": -1})
    yield Row("Pack", "scalars", [numbers(3)[0], scalar(5), scalar(7)])
    yield Row("Unpack", "default", [real(3, 5, 7)], {"num": 3})
    yield Row("Unpack", "axis -1, float64", [real(2, 7, 5, 3, dtype="float64")], {"num": 3, "axis": -1})
    yield Row("Split", "float32", [scalar(1), real(3, 6, 7)], {"num_split": 3})
    yield Row("Split", "a negative axis, int64", [scalar(-1), real(3, 4, dtype="int64")], {"num_split": 2})
    yield Row("SplitV", "float32", [real(3, 7, 2), constant(2, 5), scalar(1)], {"num_split": 2})
    yield Row(
        "SplitV",
        "the rest, int64 sizes",
        [real(3, 7), constant(2, -1, 1, dtype="int64"), scalar(1)],
        {"num_split": 3},
    )


def slicing() -> Iterator[Row]:
    x, op = real(5, 7, 11), "StridedSlice"
    yield Row(op, "float32", [x, constant(1, 2, 3), constant(4, 7, 9), constant(1, 2, 3)])
    yield Row(
        op,
        "begin and end masks",
        [x, constant(9, 1, 2), constant(4, 9, 7), constant(2, 1, 1)],
        {"begin_mask": 1, "end_mask": 2},
    )
    yield Row(op, "negative strides", [x, constant(-1, -2), constant(-6, 0), constant(-2, -3)])
    yield Row(op, "ellipsis and a new axis", [x, constant(0, 0, 2), constant(0, 0, 9), constant(1, 1, 3)],
              {"ellipsis_mask": 2, "new_axis_mask": 1})  # fmt: skip
    yield Row(op, "shrunk axes, int64", [real(5, 7, dtype="int64"), constant(1, -2, dtype="int64"), constant(2, 0, dtype="int64"),
              constant(1, 1, dtype="int64")], {"shrink_axis_mask": 3})  # fmt: skip
    yield Row(
        op,
        "of a shape",
        [numbers(3, 5, 7), constant(1), constant(2), constant(1)],
        {"shrink_axis_mask": 1},
    )
    yield Row("Slice", "float32", [real(5, 7, 11), constant(1, 0, 2), constant(3, -1, 5)])
    yield Row(
        "Slice",
        "int64 places, bool",
        [flags(5, 7), constant(1, 3, dtype="int64"), constant(2, 3, dtype="int64")],
    )
    for dtype in ("float32", "float64", "int64", "bool"):
        x = flags(5, 7, 3) if dtype == "bool" else real(5, 7, 3, dtype=dtype)
        yield Row("GatherV2", dtype, [x, numbers(4, 0, 2), scalar(0)])
    yield Row("GatherV2", "axis -1, int64 places", [real(5, 7, 3), numbers([2, 0], [1, 1], dtype="int64"), scalar(-1)])
    yield Row("GatherV2", "batch_dims", [real(3, 5, 7), numbers([4, 0], [1, 1], [2, 3]), scalar(1)], {"batch_dims": 1})
    yield Row("GatherNd", "float32", [real(5, 7, 3), numbers([4, 0], [1, 6])])
    yield Row("GatherNd", "int64", [real(5, 7, dtype="int64"), numbers([4, 0], [1, 6], dtype="int64")])
    yield Row(
        "OneHot", "default", [numbers([[1, 0], [-1, 4], [2, 2]]), scalar(5), scalar(1, "float32"), scalar(0, "float32")]
    )
    yield Row("OneHot", "axis 0, float64", [numbers(1, 0, 2, dtype="int64"), scalar(3), scalar(0.5, "float64"),
              scalar(-2, "float64")], {"axis": 0})  # fmt: skip
    yield Row("ReverseV2", "two axes", [real(3, 5, 7), constant(0, -1)])
    yield Row("ReverseV2", "int64", [real(3, 5, dtype="int64"), constant(1)])
    yield Row("Fill", "float32", [constant(3, 5, 7), scalar(2.5, "float32")])
    yield Row("Fill", "a shape at runtime, int64", [numbers(3, 5, dtype="int64"), scalar(7, "int64")])
    yield Row("Range", "int32", [scalar(1), numbers(20)[0], scalar(3)])
    yield Row("Range", "float32", [scalar(1, "float32"), scalar(4, "float32"), scalar(0.25, "float32")])
    for dtype in ("float32", "int64", "bool"):
        yield Row("ZerosLike", dtype, [flags(2, 3, 5) if dtype == "bool" else real(2, 3, 5, dtype=dtype)])
    paddings = ([1, 2], [0, 3])
    for dtype in ("float32", "float64", "int32", "int64", "float16"):
        yield Row("Pad", dtype, [real(5, 7, 3, dtype=dtype), constant(*paddings, [0, 0])])
        yield Row("PadV2", dtype, [real(5, 7, 3, dtype=dtype), constant(*paddings, [0, 0]), scalar(3, dtype)])
    yield Row("Pad", "paddings at runtime", [real(5, 7), numbers(*paddings, dtype="int64")])
    yield Row("MirrorPad", "reflect", [real(5, 7, 3), constant(*paddings, [0, 0])], {"mode": "REFLECT"})
    yield Row(
        "MirrorPad", "symmetric, float64", [real(5, 7, dtype="float64"), constant(*paddings)], {"mode": "SYMMETRIC"}
    )
    yield Row("SpaceToDepth", "float32", [real(2, 6, 4, 3)], {"block_size": 2})
    yield Row("DepthToSpace", "float32", [real(2, 3, 5, 12)], {"block_size": 2})


def reduction() -> Iterator[Row]:
    for op in ("Sum", "Mean", "Max", "Min"):
        for dtype in REAL:
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype), constant(1)])
        yield Row(op, "kept axes", [real(3, 5, 7), constant(0, -1)], {"keep_dims": True})
        yield Row(op, "every axis, int64 axes", [real(3, 5, 7), constant(0, 1, 2, dtype="int64")])
    yield Row("Sum", "axes at runtime", [real(3, 5, 7), numbers(0, 2)])
    for dtype in ("float32", "int32", "int64"):
        yield Row("Prod", dtype, [real(3, 5, 7, dtype=dtype), constant(1)], {"keep_dims": True})
    yield Row("All", "bool", [flags(3, 2, 7), constant(1)])
    yield Row("Any", "bool", [flags(3, 2, 7), constant(1, -1)], {"keep_dims": True})
    for op in ("ArgMax", "ArgMin"):
        for dtype in ("float32", "float64", "int32"):
            yield Row(op, dtype, [real(3, 5, 7, dtype=dtype), scalar(1)])
        yield Row(op, "int32 places, a negative axis", [real(3, 5, 7), scalar(-1, "int64")], {"output_type": "int32"})
    for op in ("Cumsum", "Cumprod"):
        for dtype in REAL:
            yield Row(op, dtype, [real(3, 5, 2, dtype=dtype, low=-2, high=2), scalar(1)])
        yield Row(op, "exclusive", [real(3, 5, 2), scalar(1)], {"exclusive": True})
        yield Row(op, "reverse, a negative axis", [real(3, 5, 2), scalar(-2)], {"reverse": True})
        yield Row(op, "exclusive and reverse", [real(5, 3), scalar(0, "int64")], {"exclusive": True, "reverse": True})


def matrix() -> Iterator[Row]:
    for dtype in FLOATS:
        yield Row("MatMul", dtype, [real(3, 5, dtype=dtype), real(5, 7, dtype=dtype)])
        yield Row("BatchMatMulV2", dtype, [real(2, 3, 5, dtype=dtype), real(2, 5, 7, dtype=dtype)])
    yield Row(
        "MatMul",
        "transposed, a constant",
        [real(5, 3), Constant(real(7, 5))],
        {"transpose_a": True, "transpose_b": True},
    )
    yield Row("BatchMatMul", "adjoints", [real(2, 5, 3), real(2, 7, 5)], {"adj_x": True, "adj_y": True})
    yield Row("BatchMatMulV2", "adjoints", [real(2, 5, 3), real(2, 7, 5)], {"adj_x": True, "adj_y": True})
    yield Row("BatchMatMulV2", "broadcast batches", [real(2, 1, 3, 5), real(11, 5, 7)])
    yield Row("BatchMatMulV2", "an adjoint constant", [real(2, 3, 5), Constant(real(7, 5))], {"adj_y": True})
    yield Row("BatchMatMulV3", "float32", [real(2, 3, 5), real(2, 5, 7)], {"Tout": "float32"})
    yield Row("MatrixDeterminant", "one matrix", [real(5, 5)])
    yield Row("MatrixDeterminant", "a batch", [real(2, 3, 3, 3)])


def fourier() -> Iterator[Row]:
    for op in ("Real", "Imag", "ComplexAbs", "Angle"):
        yield Row(op, "complex64", [complex_numbers(3, 5)])
    yield Row("Conj", "complex64", [complex_numbers(3, 5)], {"T": "complex64"})
    yield Row("Complex", "float32", [real(3, 5, 7), real(3, 5, 7)])
    yield Row("Complex", "float32, constant imaginary part", [real(3, 5), Constant(real(1)[0])])
    yield Row("Complex", "float32, broadcast", [real(3, 1, 7), real(5, 1)])
    for op in ("FFT", "IFFT"):
        for shape in ((7,), (3, 8), (2, 3, 5)):
            yield Row(op, f"{list(shape)}", [complex_numbers(*shape)])
    for length in (8, 9, 5, 4):
        yield Row("RFFT", f"length {length} of 9", [real(2, 3, 9), constant(length)])
        yield Row("IRFFT", f"length {length} of 5 bins", [complex_numbers(2, 3, 5), constant(length)])
    yield Row("RFFT", "one row", [real(16), constant(16)])
    yield Row("IRFFT", "one row", [complex_numbers(9), constant(16)])
    yield Row("RFFT", "two axes, a length at runtime", [real(3, 12), numbers(12)])
    yield Row("IRFFT", "two axes, a length at runtime", [complex_numbers(3, 7), numbers(12)])


def image() -> Iterator[Row]:
    w = real(3, 2, 4, 5)
    for padding in ("SAME", "VALID"):
        for strides in ([1, 1, 1, 1], [1, 2, 3, 1]):
            attributes = {"strides": strides, "padding": padding}
            yield Row("Conv2D", f"{padding}, strides {strides[1:3]}", [real(2, 7, 11, 4), Constant(w)], attributes)
    yield Row("Conv2D", "dilations", [real(1, 11, 7, 4), Constant(w)],
              {"strides": [1] * 4, "padding": "VALID", "dilations": [1, 2, 3, 1]})  # fmt: skip
    yield Row("Conv2D", "explicit paddings", [real(1, 7, 5, 4), Constant(w)],
              {"strides": [1, 2, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 3, 0, 0, 0]})  # fmt: skip
    yield Row("Conv2D", "filters at runtime", [real(1, 7, 5, 4), w], {"strides": [1] * 4, "padding": "SAME"})
    yield Row(
        "Conv2D", "groups", [real(1, 7, 5, 4), Constant(real(3, 3, 2, 6))], {"strides": [1] * 4, "padding": "SAME"}
    )
    yield Row("Conv2D", "float16", [real(1, 7, 5, 4, dtype="float16"), Constant(w.astype("float16"))],
              {"strides": [1] * 4, "padding": "SAME"})  # fmt: skip
    depthwise_filters = real(3, 2, 4, 2)
    yield Row(
        "DepthwiseConv2dNative",
        "SAME",
        [real(2, 7, 5, 4), Constant(depthwise_filters)],
        {"strides": [1, 2, 2, 1], "padding": "SAME"},
    )
    yield Row("DepthwiseConv2dNative", "VALID, filters at runtime", [real(1, 7, 5, 4), depthwise_filters],
              {"strides": [1] * 4, "padding": "VALID"})  # fmt: skip
    yield Row(
        "Conv3D",
        "SAME",
        [real(1, 3, 5, 7, 2), Constant(real(2, 3, 2, 2, 3))],
        {"strides": [1, 2, 1, 2, 1], "padding": "SAME"},
    )
    yield Row("BiasAdd", "last", [real(2, 5, 7, 3), Constant(real(3))])
    yield Row("BiasAdd", "channels first", [real(2, 3, 5, 7), Constant(real(3))], {"data_format": "NCHW"})
    yield Row("BiasAdd", "channels first, at runtime, float64", [real(2, 3, 5, dtype="float64"), real(3, dtype="float64")],
              {"data_format": "NCHW"})  # fmt: skip
    for op in ("MaxPool", "AvgPool"):
        for padding in ("SAME", "VALID"):
            yield Row(
                op, padding, [real(2, 7, 11, 3)], {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": padding}
            )
    for op in ("ResizeBilinear", "ResizeNearestNeighbor"):
        for name in ("default", "align_corners", "half_pixel_centers"):
            for size in ([11, 13], [3, 2]):
                mode: dict[str, Any] = {} if name == "default" else {name: True}
                yield Row(op, f"{name} to {size}", [real(2, 5, 7, 3), constant(*size)], mode)
        yield Row(op, "uint8", [real(1, 5, 7, 3, dtype="uint8", low=0), constant(10, 14)])
    yield Row("ResizeBilinear", "a size at runtime", [real(1, 5, 7, 3), numbers(8, 9)], {"half_pixel_centers": True})


def volumes() -> Iterator[Row]:
    for op in ("MaxPool3D", "AvgPool3D"):
        for padding in ("SAME", "VALID"):
            attributes = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 1, 2, 2, 1], "padding": padding}
            yield Row(op, padding, [real(2, 3, 5, 7, 2)], attributes)


def normalization() -> Iterator[Row]:
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        parameters = [Constant(real(3)), Constant(real(3)), Constant(real(3)), Constant(positive(3))]
        yield Row(op, "default epsilon", [real(2, 5, 7, 3), *parameters], {"is_training": False}, 1)
        yield Row(op, "epsilon", [real(2, 5, 7, 3), *parameters], {"is_training": False, "epsilon": 0.01}, 1)
    yield Row("FusedBatchNormV3", "channels first", [real(2, 3, 5, 7), *parameters],
              {"is_training": False, "data_format": "NCHW", "epsilon": 1e-3}, 1)  # fmt: skip
    yield Row(
        "FusedBatchNormV3",
        "at runtime",
        [real(2, 5, 7, 3), real(3), real(3), real(3), positive(3)],
        {"is_training": False},
        1,
    )
    yield Row(
        "FusedBatchNormV3", "float16", [real(1, 5, 7, 3, dtype="float16"), *parameters], {"is_training": False}, 1
    )
    yield Row(
        "FusedBatchNormV3",
        "volumes",
        [real(1, 2, 5, 7, 3), *parameters],
        {"is_training": False, "data_format": "NDHWC"},
        1,
    )


def patches() -> Iterator[Row]:
    for padding in ("SAME", "VALID"):
        for strides, rates in (([1, 2, 3, 1], [1, 1, 1, 1]), ([1, 1, 1, 1], [1, 2, 3, 1])):
            attributes = {"ksizes": [1, 3, 2, 1], "strides": strides, "rates": rates, "padding": padding}
            yield Row(
                "ExtractImagePatches",
                f"{padding}, strides {strides[1:3]}, rates {rates[1:3]}",
                [real(2, 7, 11, 3)],
                attributes,
            )
    yield Row("ExtractImagePatches", "float64", [real(1, 5, 7, 2, dtype="float64")],
              {"ksizes": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "rates": [1] * 4, "padding": "VALID"})  # fmt: skip


def every_row() -> list[Row]:
    """Return all cases in the order in which they are stored."""
    operator_families = (unary, activation, arithmetic, comparison, shape, joining, slicing, reduction, matrix, fourier, image,
                volumes, normalization, patches, bitwise, counting, color, crops, sums_and_diagonals,
                detection, combined_detection, scattering, bounds)  # fmt: skip
    return [row for family in operator_families for row in family()]
