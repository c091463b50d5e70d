"""FULLY_CONNECTED with 4-bit and 2-bit weights: row lengths and kinds of scales.

With an odd row length, rows start and end within a byte. The numbers of rows, blocks and outputs differ, and scales
differ by up to a factor of four, so that a case fails if one is used in place of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from conformance.case import Case
from conformance.cases.matrix.fully_connected import dense_case, reshape_then_dense
from conformance.models import Net, constant, in_isolation, net, random_array, tensor
from conformance.weights import block_weights, describe_scales, fold_weights, weight

OP = "FULLY_CONNECTED"
ACTIVATIONS = ("float32", "int8", "int16")


def cases() -> Iterator[Case]:
    yield from row_cases()
    yield from blockwise_cases()
    yield from refusal_cases()


# --- a scale per tensor or channel ------------------------------------------------------------


def row_cases() -> Iterator[Case]:
    for dtype in ACTIVATIONS:
        for weights in ("int4", "int2"):
            for per_axis in (False, True):
                name = f"{dtype} by {weights} rows of 13 {describe_scales(per_axis)}"
                yield dense_case(name, (3, 13), out=7, dtype=dtype, weights=weights, per_axis=per_axis)
    for weights in ("int4", "int2"):
        yield fold_weights(dense_case(f"float32 by {weights}", (3, 13), out=7, weights=weights, per_axis=True))
    for dtype in ("float32", "int8"):
        build_flatten = reshape_then_dense(dtype, (2, 105), per_axis=True, weights="int4")
        yield net(OP, f"{dtype} by int4 after a flatten", build_flatten, dtype="int4", max_transposes=1)


def blockwise_case(
    name: str,
    shape: Sequence[int],
    out: int,
    size: int,
    *,
    keep_num_dims: bool = False,
    biased: bool = True,
    flat: bool = False,
    activation: str = "NONE",
    **case_fields: Any,
) -> Case:
    """Return a case of a layer of ``out`` units with one scale per ``size`` weights.

    Each block of ``size`` weights is within a row.

    ``keep_num_dims``: value of this option. ``flat``: the scales are stored as a tensor of rank 1.
    """

    def build_layer(model: Net) -> None:
        x = model.add_operand(tensor(*shape))
        b = constant(random_array(out, seed="b", low=-9, high=9)) if biased else None
        y = tensor(*shape[:-1], out) if keep_num_dims else tensor(prod(shape[:-1]), out)
        operands = [x, block_weights(model, (out, shape[-1]), size, flat=flat), b]
        options = {"keep_num_dims": keep_num_dims, "fused_activation_function": activation}
        model.output(model.call(OP, operands, y, **options))

    return net(OP, name, build_layer, **{"dtype": "int4 by block", **case_fields})


def blockwise_cases() -> Iterator[Case]:
    yield blockwise_case("three blocks of 32", (2, 96), 7, 32, opsets=(None, 26))
    yield fold_weights(blockwise_case("three blocks of 32", (2, 96), 7, 32))
    yield blockwise_case("five blocks of 64 without bias", (3, 320), 11, 64, biased=False)
    yield blockwise_case("blocks of 96", (3, 480), 7, 96)
    yield blockwise_case("five blocks of 16 without XNNPACK", (3, 80), 7, 16)
    yield blockwise_case("blocks of 11 that end within a byte", (3, 66), 7, 11)
    yield blockwise_case("one block per row", (3, 32), 5, 32)
    yield blockwise_case("blocks, one output", (3, 160), 1, 32)
    yield blockwise_case("blocks, rank kept", (2, 3, 96), 7, 32, keep_num_dims=True)
    yield blockwise_case("blocks, rank 3 to rows", (2, 3, 96), 7, 32)
    yield blockwise_case("blocks with scales of rank 1", (3, 96), 7, 32, flat=True)
    yield blockwise_case("blocks with RELU6", (3, 96), 7, 32, activation="RELU6")
    yield net(OP, "blocks after a flatten", build_flatten_then_dense, dtype="int4 by block", max_transposes=2)
    yield net(OP, "blocks shared by two layers", build_shared_weights, dtype="int4 by block")
    unquantized = blockwise_case("blocks, converted without quantization", (3, 96), 7, 32)
    yield replace(unquantized, options={"quantization": "float"})


def build_flatten_then_dense(model: Net) -> None:
    """Build a layer on a flattened image.

    The blocks of its weights span channels, so the image must be transposed to channels last.
    """
    x = model.call("RESHAPE", [model.input_through_conv(tensor(2, 4, 8, 3)), constant([2, 96])], tensor(2, 96))
    model.output(model.call(OP, [x, block_weights(model, (7, 96), 32), None], tensor(2, 7)))


def build_shared_weights(model: Net) -> None:
    w = block_weights(model, (7, 96), 32)
    model.output(*(model.call(OP, [tensor(n, 96), w, None], tensor(n, 7)) for n in (2, 3)))


def refusal_cases() -> Iterator[Case]:
    """Yield cases of files that LiteRT runs silently although it misreads the weights."""
    unpacked = "which LiteRT's kernel does not unpack"
    for weights in ("int4", "int2"):
        yield dense_case(
            f"uint8 by {weights}",
            dtype="uint8",
            weights=weights,
            refusal=f"{weights} with uint8 activations, {unpacked}",
        )
    weights_with_zero_points = replace(weight((7, 12), "int4", 0), zero_point=7)
    name, reason = "int4 with zero points of 7", "the int4 weights have nonzero zero points"
    yield in_isolation(OP, name, [tensor(3, 12), weights_with_zero_points, None], tensor(3, 7), refusal=reason)
    yield blockwise_case("blocks of 16 in two rows", (3, 80), 2, 16, refusal="at least 4 rows")
    yield net(OP, "int8 by blocks", build_int8_input, refusal="the input is int8 and the blockwise weights are int4")


def build_int8_input(model: Net) -> None:
    x = model.add_operand(tensor(3, 96, dtype="int8"))
    model.output(model.call(OP, [x, block_weights(model, (7, 96), 32), None], tensor(3, 7, dtype="int8")))
