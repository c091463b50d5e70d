"""PAD, PADV2 and MIRROR_PAD: values, zero points and mirrors.

Mirrors include or omit the edge element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_bfloat16,
    in_isolation,
    net,
    opsets,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")
PADDINGS = [[0, 1], [2, 0], [1, 3], [0, 2]]
HEIGHT_AND_WIDTH = [[0, 0], [1, 2], [2, 1], [0, 0]]
MODES = ("REFLECT", "SYMMETRIC")


def cases() -> Iterator[Case]:
    yield from pad_cases()
    yield from padding_value_cases()
    yield from mirror_cases()
    yield from runtime_mirror_cases()


# --- PAD --------------------------------------------------------------------------------------


def pad_case(
    name: str,
    x: Spec,
    paddings: Sequence[Sequence[int]],
    place: Placement = in_isolation,
    y: Spec | None = None,
    padding_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    shape = [(size or 0) + sum(pads) for size, pads in zip(x.shape, paddings, strict=True)]
    pads = constant(np.asarray(paddings, padding_dtype).reshape(-1, 2))
    return place("PAD", name, [x, pads], (y or x).with_shape(*shape), **{"dtype": x.dtype, **case_fields})


def pad_cases() -> Iterator[Case]:
    """Yield cases of PAD, which pads quantized tensors with the zero point."""
    for dtype in (*FLOAT_OR_QUANTIZED, "float16", "int32", "int64", "bool"):
        x = tensor(*IMAGE, dtype=dtype)
        # ONNX Runtime has no Pad of int16, but the generic target may emit it.
        targets: dict[str, Any] = {"targets": ("onnxruntime",)} if dtype == "int16" else {}
        yield pad_case(dtype, x, PADDINGS, opsets=opsets(dtype), **targets)
        if dtype in FLOAT_OR_QUANTIZED:
            yield pad_case(dtype, x, PADDINGS, between_convolutions, **targets)
            yield pad_case(
                f"{dtype}, height and width", x, [[0, 0], [1, 2], [2, 1], [0, 0]], between_convolutions, **targets
            )
    sizes = [size + sum(pads) for size, pads in zip(IMAGE, PADDINGS, strict=True)]
    paddings_constant = constant(np.asarray(PADDINGS, np.int32))
    yield in_bfloat16("PAD", [tensor(*IMAGE), paddings_constant], tensor(*sizes))
    yield in_bfloat16("PADV2", [tensor(*IMAGE), paddings_constant, constant(np.float32(1.5))], tensor(*sizes))
    for dtype in ("int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        yield pad_case(f"{dtype} to a different zero point", x, PADDINGS, y=x.rescale(1.0, 40))
    yield pad_case("int64 paddings", tensor(*IMAGE), PADDINGS, between_convolutions, padding_dtype="int64")
    yield pad_case("paddings of 0", tensor(*IMAGE), [[0, 0]] * 4, between_convolutions)
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 3, 5, 2, 3)):
        yield pad_case(f"rank {len(shape)}", tensor(*shape), [[i, 2 - i % 3] for i in range(len(shape))])
    paddings = tensor(4, 2, dtype="int32", name="paddings")
    for dtype in ("float32", "int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        padded = x.with_shape(3, 7, 11, 5)
        for place in PLACEMENTS:
            # A Transpose of 8 numbers converts pairs to begins and ends.
            runtime_paddings = {"paddings": np.asarray(PADDINGS, np.int32)}
            yield place(
                "PAD",
                f"{dtype}, runtime paddings",
                [x, paddings],
                padded,
                input_arrays=runtime_paddings,
                max_transposes=3,
            )
    padding_runs = [
        {"paddings": np.asarray(paddings, np.int32)} for paddings in (PADDINGS, [[1, 0], [0, 0], [0, 2], [3, 1]])
    ]
    yield in_isolation(
        "PAD",
        "dynamic result shape",
        [tensor(*IMAGE), paddings],
        tensor(None, None, None, None),
        input_arrays=padding_runs,
    )
    yield net("PAD", "before a convolution", pad_then_conv, max_transposes=2)


def pad_then_conv(model: Net) -> None:
    image = tensor(2, 8, 10, 3, dtype="int8")
    x = model.call("PAD", [tensor(*IMAGE, dtype="int8"), constant([[0, 0], [1, 2], [2, 1], [0, 0]])], image)
    w = constant(random_array(4, 3, 3, 3, dtype="int8"), None, random_array(4, low=0.002, high=0.01).tolist())
    b = constant(np.zeros(4), "int32", 0.001)
    y = tensor(2, 3, 4, 4, dtype="int8", scale=1.7, zero_point=4)
    model.output(model.call("CONV_2D", [x, w, b], y, padding="VALID", stride_h=2, stride_w=2))


def target_options(dtype: str) -> dict[str, Any]:
    """Return case options that exclude int16 from the generic target.

    ONNX Runtime has no Pad of int16.
    """
    return {"targets": ("onnxruntime",)} if dtype == "int16" else {}


def padded_spec(x: Spec, paddings: Sequence[Sequence[int]]) -> Spec:
    return replace(x, name="").with_shape(
        *((size or 0) + sum(pads) for size, pads in zip(x.shape, paddings, strict=True))
    )


# --- PADV2 ------------------------------------------------------------------------------------


def padding_value(x: Spec, value: float, *shape: int) -> Spec:
    """Return a scalar constant with the tensor's quantization, if any."""
    return replace(constant(np.full(shape, value), x.dtype), scale=x.scale, zero_point=x.zero_point)


def padv2_case(
    name: str,
    x: Spec,
    value: Spec | None,
    paddings: Sequence[Sequence[int]] = PADDINGS,
    place: Placement = in_isolation,
    padding_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    operands = [x, constant(np.asarray(paddings, padding_dtype).reshape(-1, 2)), value]
    return place(
        "PADV2",
        name,
        operands,
        padded_spec(x, paddings),
        **{"dtype": x.dtype, **target_options(x.dtype), **case_fields},
    )


def padding_value_cases() -> Iterator[Case]:
    """Yield cases of PADV2. Padding values of quantized tensors are quantized values."""
    for dtype in FLOAT_OR_QUANTIZED:
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield padv2_case(dtype, x, padding_value(x, 17), PADDINGS, place, opsets=opsets(dtype))
            yield padv2_case(f"{dtype}, height and width", x, padding_value(x, 101), HEIGHT_AND_WIDTH, place)
        yield padv2_case(f"{dtype} with a pad value of rank 1", x, padding_value(x, 17, 1))
    for dtype in ("int32", "int64", "bool", "int16", "float16"):
        x = tensor(*IMAGE, dtype=dtype, scale=0)
        yield padv2_case(f"{dtype} without scale", x, padding_value(x, 1))
    for infinity in (np.inf, -np.inf):
        yield padv2_case(f"{infinity}", tensor(*IMAGE), constant(np.float32(infinity)))
    yield padv2_case("without a pad value", tensor(*IMAGE), None)
    yield padv2_case("int8 without a pad value", tensor(*IMAGE, dtype="int8"), None)
    x = tensor(*IMAGE)
    for padding_dtype in ("int64", "int16", "int8"):
        yield padv2_case(f"{padding_dtype} paddings", x, padding_value(x, 17), padding_dtype=padding_dtype)
    yield padv2_case("paddings of 0", x, padding_value(x, 17), [[0, 0]] * 4, between_convolutions)
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 3, 5, 2, 3)):
        x = tensor(*shape)
        yield padv2_case(f"rank {len(shape)}", x, padding_value(x, 17), [[i, 2 - i % 3] for i in range(len(shape))])
    x = tensor(*IMAGE, dtype="int8")
    rescaled_value = replace(padding_value(x, 17), scale=0.5)
    yield padv2_case(
        "int8, pad value with a different scale", x, rescaled_value, kernel_refusal="constant_values->params.scale"
    )
    paddings, value = tensor(4, 2, dtype="int32", name="paddings"), tensor(name="value")
    runtime_paddings = {"paddings": np.asarray(PADDINGS, np.int32)}
    for place in PLACEMENTS:
        x = tensor(*IMAGE)
        padded = padded_spec(x, PADDINGS)
        yield place(
            "PADV2", "runtime paddings", [x, paddings, padding_value(x, 17)], padded, input_arrays=runtime_paddings
        )
        yield place("PADV2", "runtime pad value", [x, constant(PADDINGS), value], padded)
    x = tensor(*IMAGE, dtype="int8")
    yield in_isolation(
        "PADV2",
        "int8, runtime operands",
        [x, paddings, x.with_shape()],
        tensor(None, None, None, None, dtype="int8"),
        input_arrays=runtime_paddings,
    )


# --- MIRROR_PAD -------------------------------------------------------------------------------


def mirror_pad_case(
    name: str,
    x: Spec,
    mode: str,
    paddings: Sequence[Sequence[int]],
    place: Placement = in_isolation,
    padding_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    operands = [x, constant(np.asarray(paddings, padding_dtype).reshape(-1, 2))]
    y = padded_spec(x, paddings)
    case_fields = {"dtype": x.dtype, **target_options(x.dtype), **case_fields}
    return place("MIRROR_PAD", f"{mode} {name}", operands, y, options={"mode": mode}, **case_fields)


def mirror_cases() -> Iterator[Case]:
    """Yield cases of REFLECT, which omits the edge, and SYMMETRIC, which repeats it."""
    for mode in MODES:
        for dtype in FLOAT_OR_QUANTIZED:
            for place in PLACEMENTS:
                x = tensor(*IMAGE, dtype=dtype)
                yield mirror_pad_case(dtype, x, mode, PADDINGS, place, opsets=opsets(dtype))
        for dtype in ("int32", "int64", "bool", "int16"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield mirror_pad_case(f"{dtype} without scale", x, mode, PADDINGS)
        x = tensor(*IMAGE)
        yield mirror_pad_case("by one", x, mode, [[0, 0], [1, 0], [1, 1], [0, 1]], between_convolutions)
        yield mirror_pad_case("no padding", x, mode, [[0, 0]] * 4, between_convolutions)
        omitted_edge = 1 if mode == "REFLECT" else 0
        yield mirror_pad_case("maximum padding", x, mode, [[n - omitted_edge, n - omitted_edge] for n in IMAGE])
        yield mirror_pad_case("height and width", x, mode, HEIGHT_AND_WIDTH, between_convolutions)
        yield mirror_pad_case("int64 paddings", x, mode, PADDINGS, padding_dtype="int64")
        for shape in ((5,), (3, 5), (3, 3, 5), (3, 3, 5, 3, 3)):
            yield mirror_pad_case(
                f"rank {len(shape)}", tensor(*shape), mode, [[i % 3, 2 - i % 3] for i in range(len(shape))]
            )
        large = tensor(1, 32, 32, 16)
        max_transposes = 4 if mode == "SYMMETRIC" else 2  # Gather is faster channels last
        yield mirror_pad_case(
            "many pixels",
            large,
            mode,
            [[0, 0], [2, 2], [2, 2], [0, 0]],
            between_convolutions,
            max_transposes=max_transposes,
        )
        x = tensor(*IMAGE, dtype="int8")
        y, options, kernel_refusal = padded_spec(x, HEIGHT_AND_WIDTH).rescale(2), {"mode": mode}, "params.scale"
        yield in_isolation(
            "MIRROR_PAD",
            f"{mode} int8 to a different scale",
            [x, constant(HEIGHT_AND_WIDTH)],
            y,
            options=options,
            kernel_refusal=kernel_refusal,
        )


def runtime_mirror_cases() -> Iterator[Case]:
    paddings = tensor(4, 2, dtype="int32", name="paddings")
    for mode in MODES:
        options = {"mode": mode}
        for dtype in ("float32", "uint8"):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS:
                runtime_paddings = {"paddings": np.asarray(PADDINGS, np.int32)}
                padded = padded_spec(x, PADDINGS)
                name = f"{mode} {dtype}, runtime paddings"
                yield place("MIRROR_PAD", name, [x, paddings], padded, options=options, input_arrays=runtime_paddings)
        runs = [{"x0": random_array(2, n, 3)} for n in (5, 8)]
        operands = [tensor(2, None, 3), constant([[0, 0], [2, 3], [0, 1]])]
        yield in_isolation(
            "MIRROR_PAD",
            f"{mode} dynamic shape",
            operands,
            tensor(2, None, 4),
            options=options,
            input_arrays=runs,
            dynamic_sizes=(3, 6),
        )
