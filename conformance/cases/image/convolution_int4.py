"""Convolutions with 4-bit filters: odd sizes, scales, and unsupported weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.case import Case
from conformance.cases.image.convolution import conv_case
from conformance.models import Net, constant, net, random_array, tensor
from conformance.weights import block_weights, describe_scales, fold_weights


def cases() -> Iterator[Case]:
    yield from kernel_cases()
    yield from refusal_cases()


ACTIVATIONS = ("float32", "int8", "int16")


def kernel_cases() -> Iterator[Case]:
    int4_filter: dict[str, Any] = {"weights": "int4", "kernel": (3, 3)}
    for dtype in ACTIVATIONS:
        for per_axis in (False, True):
            yield conv_case(
                f"{dtype} by int4 {describe_scales(per_axis)}", dtype=dtype, out=5, per_axis=per_axis, **int4_filter
            )
        groups: dict[str, Any] = {"shape": (1, 5, 7, 6), "out": 9, "groups": 3, "per_axis": True}
        yield conv_case(f"{dtype} by int4 in three groups", dtype=dtype, **groups, **int4_filter)
    yield fold_weights(conv_case("float32 by int4", out=5, per_axis=True, **int4_filter))
    for per_axis in (False, True):
        name = f"int8 by int4 {describe_scales(per_axis)}"
        yield conv_case(name, op="DEPTHWISE_CONV_2D", dtype="int8", out=3, per_axis=per_axis, **int4_filter)


def refusal_cases() -> Iterator[Case]:
    """Yield cases of files that LiteRT runs silently although it misreads the weights."""
    unpacked = "which LiteRT's kernel does not unpack"
    yield conv_case("uint8 by int4", dtype="uint8", weights="int4", refusal=f"int4 with uint8 activations, {unpacked}")
    yield conv_case("float32 by int2", weights="int2", refusal=f"int2 with float32 activations, {unpacked}")
    depthwise: dict[str, Any] = {"op": "DEPTHWISE_CONV_2D", "dtype": "int16", "out": 6}
    yield conv_case("int16 by int4", weights="int4", refusal=f"int4 with int16 activations, {unpacked}", **depthwise)
    yield net(
        "CONV_2D",
        "blockwise weights",
        build_blockwise_filter,
        refusal="has a scale per block, which the kernel does not read",
    )


def build_blockwise_filter(model: Net) -> None:
    """Build a convolution with one scale per block of 32 weights."""
    x = model.add_operand(tensor(1, 5, 7, 32))
    w = block_weights(model, (3, 1, 1, 32), 32)
    model.output(model.call("CONV_2D", [x, w, constant(random_array(3))], tensor(1, 5, 7, 3), stride_h=1, stride_w=1))
