"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D, which all exclude padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Placement,
    between_convolutions,
    in_isolation,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for dtype in ("float32", "int8", "uint8", "int16"):
            opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
            for padding in ("SAME", "VALID"):
                for place in PLACEMENTS:
                    yield pool_case(
                        op,
                        f"{dtype} {padding} 3x2",
                        dtype,
                        padding,
                        place=place,
                        opsets=opsets if padding == "SAME" else (None,),
                    )
                yield pool_case(op, f"{dtype} {padding} 2x3 stride 2x1", dtype, padding, (2, 3), (2, 1))
            yield pool_case(op, f"{dtype} over the whole image", dtype, "VALID", IMAGE[1:3], place=between_convolutions)
            for activation in ("RELU", "RELU6", "RELU_N1_TO_1"):
                yield pool_case(
                    op, f"{dtype} with {activation}", dtype, "SAME", activation=activation, input_range=(-10.0, 10.0)
                )
        for dtype in ("int8", "uint8", "int16"):
            yield pool_case(op, f"{dtype}, means halfway between integers", dtype, "VALID", (2, 2))
        yield pool_case(op, "SAME stride 2 on odd sizes", "float32", "SAME", (3, 3), (2, 2), shape=(1, 7, 11, 3))
        yield pool_case(op, "a window larger than the image", "float32", "SAME", (7, 9))
        yield pool_case(op, "1x1 stride 2", "int8", "VALID", (1, 1), (2, 2))
        yield pool_case(op, "float32 negative values with padding", "float32", "SAME", input_range=(-9.0, -5.0))
        for activation in ("TANH", "SIGN_BIT"):
            for dtype in ("float32", "int8", "uint8", "int16"):
                name = f"{dtype} with {activation}, which the kernel ignores"
                yield pool_case(op, name, dtype, "SAME", activation=activation)
        for dtype in ("int8",) if op == "MAX_POOL_2D" else ("int8", "int16"):
            yield pool_case(
                op, f"{dtype} to a different scale, which the kernel ignores", dtype, "VALID", scale_factor=2.0
            )
    refusals: dict[str, Any] = {
        "refusal": "LiteRT refuses a fused TANH",
        "kernel_refusal": "FLOAT16 not currently supported",
    }
    yield pool_case("AVERAGE_POOL_2D", "float16 with TANH", "float16", "SAME", activation="TANH", **refusals)
    yield from l2_pool_cases()
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        yield from dynamic_size_cases(op)


def dynamic_size_cases(op: str) -> Iterator[Case]:
    """Yield cases with dynamic height and width, odd and even."""
    for dtype in ("float32",) if op == "L2_POOL_2D" else ("float32", "int8", "uint8", "int16"):
        arrays = [{"x0": random_array(2, h, w, 3, dtype=dtype)} for h, w in ((5, 7), (8, 11), (6, 6))]
        case_fields: dict[str, Any] = {"shape": (2, None, None, 3), "input_arrays": arrays}
        for kernel, stride in (((3, 2), (1, 1)), ((3, 2), (2, 1)), ((2, 3), (2, 2)), ((1, 1), (2, 2))):
            for padding in ("SAME", "VALID"):
                name = f"{dtype} of dynamic shape, {padding} {kernel[0]}x{kernel[1]} stride {stride[0]}x{stride[1]}"
                yield pool_case(op, name, dtype, padding, kernel, stride, **case_fields)
    name = "dynamic shape, stride larger than the window"
    yield pool_case(op, name, "float32", "SAME", (2, 2), (3, 3), shape=(2, None, None, 3), refusal="--input-shape")


def l2_pool_cases() -> Iterator[Case]:
    """Yield cases of L2_POOL_2D, the root of the mean of squares without padding."""
    op = "L2_POOL_2D"
    for place in PLACEMENTS:
        for padding in ("SAME", "VALID"):
            yield pool_case(op, f"{padding} 3x2", "float32", padding, place=place, opsets=EVERY_OPSET)
            yield pool_case(op, f"{padding} 2x3 stride 2x1", "float32", padding, (2, 3), (2, 1), place=place)
        yield pool_case(op, "over the whole image", "float32", "VALID", IMAGE[1:3], place=place)
    for activation in ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"):
        yield pool_case(op, f"with {activation}", "float32", "SAME", activation=activation, input_range=(-10.0, 10.0))
    yield pool_case(op, "a window larger than the image", "float32", "SAME", (7, 9))
    yield pool_case(op, "1x1 stride 2", "float32", "VALID", (1, 1), (2, 2))
    yield pool_case(
        op, "an image of one row", "float32", "SAME", (1, 3), shape=(2, 1, 7, 3), place=between_convolutions
    )


def pool_case(
    op: str,
    name: str,
    dtype: str,
    padding: str,
    kernel: Sequence[int] = (3, 2),
    stride: Sequence[int] = (1, 1),
    *,
    shape: Sequence[int | None] = IMAGE,
    activation: str = "NONE",
    scale_factor: float = 1.0,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    """Return a case of a pool; ``scale_factor``: output scale over input scale."""
    n, *size, channels = shape
    output_size = [
        None if s is None else -(-s // t) if padding == "SAME" else (s - k) // t + 1
        for s, k, t in zip(size, kernel, stride, strict=True)
    ]
    x = tensor(*shape, dtype=dtype)
    options = {
        "padding": padding,
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": activation,
    }
    return place(
        op, name, [x], x.with_shape(n, *output_size, channels).rescale(scale_factor), options=options, **case_fields
    )
