"""SOFTMAX: beta scales the input, the last TFLite axis may be any axis of the layout."""

from __future__ import annotations

from collections.abc import Iterator

from ..case import EVERY_OPSET, Case
from ..models import BOTH, Spec, between_convolutions, tensor, unary

IMAGE = (2, 5, 7, 3)
FIXED = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        for place in BOTH:
            yield unary("SOFTMAX", dtype, x, fixed(x), place, options={"beta": 1.0}, opsets=opsets)
            yield unary("SOFTMAX", f"{dtype}, beta 0.3", x, fixed(x), place, options={"beta": 0.3})
        for shape in ((11,), (3, 11), (2, 3, 11)):
            y = x.shaped(*shape)
            yield unary("SOFTMAX", f"{dtype} of rank {len(shape)}", y, fixed(y), options={"beta": 1.0})
    yield unary("SOFTMAX", "beta 2.5 on large numbers", tensor(*IMAGE), options={"beta": 2.5}, span=(-80.0, 80.0))
    image = tensor(1, 17, 23, 64)
    yield unary("SOFTMAX", "many channels", image, place=between_convolutions, options={"beta": 1.0})
    x = tensor(*IMAGE, dtype="int8")
    yield unary("SOFTMAX", "int8 to int16", x, Spec(IMAGE, "int16", 1 / 65536, -32768), options={"beta": 1.0})
    yield unary("SOFTMAX", "int8 to another scale", x, x, options={"beta": 1.0}, kernel_refuses="output->params.zero_point")


def fixed(x: Spec) -> Spec:
    """The output the kernel insists on."""
    return Spec(x.shape, x.dtype, *FIXED[x.dtype]) if x.dtype in FIXED else x
