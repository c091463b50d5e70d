"""BITCAST: the same bits as another dtype, of equal or different width."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import Case
from conformance.models import between_convolutions, tensor, unary
from onnx_tflite_plugin.source.model import Array

DTYPES_BY_WIDTH = {
    8: ("int8", "uint8"),
    16: ("int16", "uint16", "float16"),
    32: ("int32", "uint32", "float32"),
    64: ("int64", "uint64", "float64"),
}


def cases() -> Iterator[Case]:
    for width, dtypes in DTYPES_BY_WIDTH.items():
        for before in dtypes:
            for new_width, after in ((w, dtype) for w, names in DTYPES_BY_WIDTH.items() for dtype in names):
                if width == new_width:
                    yield bitcast_case(before, after, (3, 5), (3, 5))
                elif width > new_width:
                    yield bitcast_case(before, after, (3, 5), (3, 5, width // new_width))
                else:
                    yield bitcast_case(before, after, (3, 5, new_width // width), (3, 5))
    yield bitcast_case("int32", "uint8", (), (4,))
    yield bitcast_case("uint8", "int32", (4,), ())
    yield bitcast_case("int32", "uint16", (0, 3), (0, 3, 2))
    x = tensor(2, 5, 7, 3, dtype="int8")
    yield unary(
        "BITCAST", "int8 with a different scale, which the kernel ignores", x, x.rescale(3, 40), between_convolutions
    )
    refusal = "which ONNX does not define"
    yield unary("BITCAST", "int8 to bool", tensor(3, dtype="int8", scale=0), tensor(3, dtype="bool"), refusal=refusal)
    for after, shape in (("bool", (3, 4)), ("int8", (3, 4)), ("uint8", (3, 4)), ("int32", (3,)), ("float32", (3,))):
        x = tensor(3, 4, dtype="bool")
        yield unary("BITCAST", f"bool to {after}", x, tensor(*shape, dtype=after, scale=0), targets=("onnxruntime",))


def bitcast_case(before: str, after: str, shape: tuple[int, ...], result_shape: tuple[int, ...]) -> Case:
    x, y = tensor(*shape, dtype=before, scale=0), tensor(*result_shape, dtype=after, scale=0)
    name = f"{before} of shape {list(shape)} to {after}"
    return unary(
        "BITCAST", name, x, y, input_arrays={"x0": random_bits(before, *shape)}, runs=1, targets=("onnxruntime",)
    )


def random_bits(dtype: str, *shape: int) -> Array:
    """Return random bits that are not NaN when they are read as floats of any width."""
    width = np.dtype(dtype).itemsize
    random_bytes = np.random.default_rng(7).integers(0, 256, (*shape, width)).astype(np.uint8)
    random_bytes[..., 1::2] &= 0x3F
    return np.ascontiguousarray(random_bytes).view(dtype).reshape(shape)
