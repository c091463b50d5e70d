"""Weights of 4 and 2 bits: elements that share a byte, scales per tensor, row and block, and what no kernel unpacks.

An odd number of elements ends within a byte, and rows of odd length begin in one. Rows, blocks and outputs differ in
number, and scales by up to a factor of four, so that one in the place of another is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.builder import TensorRef, blockwise
from conformance.case import Case
from conformance.cases.image.convolution import conv
from conformance.cases.matrix.fully_connected import dense, reshaped
from conformance.models import Net, Spec, alone, constant, drawn, net, tensor
from conformance.weights import weight

DENSE, LOOKUP = "FULLY_CONNECTED", "EMBEDDING_LOOKUP"
ACTIVATIONS = ("float32", "int8", "int16")


def cases() -> Iterator[Case]:
    yield from rows()
    yield from kernels()
    yield from blocks()
    yield from tables()
    yield from tables_in_blocks()
    yield from refused()
    yield from refused_by_litert()


def folded(case: Case) -> Case:
    """The same with weights as real numbers in the file, which every opset can hold."""
    return replace(case, name=f"{case.name}, folded", options={"weights": "fold"}, opsets=(None, 13))


def scales(per_axis: bool) -> str:
    return "with a scale each" if per_axis else "with one scale"


# --- a scale per tensor or channel ------------------------------------------------------------


def rows() -> Iterator[Case]:
    for dtype in ACTIVATIONS:
        for weights in ("int4", "int2"):
            for per_axis in (False, True):
                name = f"{dtype} by {weights} rows of 13 {scales(per_axis)}"
                yield dense(name, (3, 13), out=7, dtype=dtype, weights=weights, per_axis=per_axis)
    for weights in ("int4", "int2"):
        yield folded(dense(f"float32 by {weights}", (3, 13), out=7, weights=weights, per_axis=True))
    for dtype in ("float32", "int8"):
        columns = reshaped(dtype, (2, 105), per_axis=True, weights="int4")
        yield net(DENSE, f"{dtype} by int4 after a flatten", columns, dtype="int4", transposes=1)


def kernels() -> Iterator[Case]:
    odd: dict[str, Any] = {"weights": "int4", "kernel": (3, 3)}
    for dtype in ACTIVATIONS:
        for per_axis in (False, True):
            yield conv(f"{dtype} by int4 {scales(per_axis)}", dtype=dtype, out=5, per_axis=per_axis, **odd)
        groups: dict[str, Any] = {"shape": (1, 5, 7, 6), "out": 9, "groups": 3, "per_axis": True}
        yield conv(f"{dtype} by int4 in three groups", dtype=dtype, **groups, **odd)
    yield folded(conv("float32 by int4", out=5, per_axis=True, **odd))
    for per_axis in (False, True):
        name = f"int8 by int4 {scales(per_axis)}"
        yield conv(name, op="DEPTHWISE_CONV_2D", dtype="int8", out=3, per_axis=per_axis, **odd)


# --- a scale per block ------------------------------------------------------------------------


def blocked(model: Net, shape: Sequence[int], size: int, dtype: str = "int4", flat: bool = False) -> TensorRef:
    """Drawn weights with a scale for each ``size`` of a row; ``flat``: the scales have one axis."""
    *outer, depth = shape
    drawn_scales = drawn(*outer, depth // size, dtype="float16", seed="scales", low=0.05, high=0.2)
    ref = model.graph.constant("scales", drawn_scales.reshape(-1) if flat else drawn_scales)
    return model.graph.constant("blocks", drawn(*shape, dtype=dtype), quantization=blockwise(ref, size))


def in_blocks(
    name: str,
    shape: Sequence[int],
    out: int,
    size: int,
    *,
    keep: bool = False,
    biased: bool = True,
    flat: bool = False,
    activation: str = "NONE",
    **case: Any,
) -> Case:
    """One layer of ``out`` rows in blocks of ``size``."""

    def draw(model: Net) -> None:
        x = model.place(tensor(*shape))
        b = constant(drawn(out, seed="b", low=-9, high=9)) if biased else None
        y = tensor(*shape[:-1], out) if keep else tensor(prod(shape[:-1]), out)
        operands = [x, blocked(model, (out, shape[-1]), size, flat=flat), b]
        options = {"keep_num_dims": keep, "fused_activation_function": activation}
        model.output(model.call(DENSE, operands, y, **options))

    return net(DENSE, name, draw, **{"dtype": "int4 by block", **case})


def blocks() -> Iterator[Case]:
    yield in_blocks("three blocks of 32", (2, 96), 7, 32, opsets=(None, 26))
    yield folded(in_blocks("three blocks of 32", (2, 96), 7, 32))
    yield in_blocks("five blocks of 64 without bias", (3, 320), 11, 64, biased=False)
    yield in_blocks("blocks of 96, which are three of 32", (3, 480), 7, 96)
    yield in_blocks("five blocks of 16, which XNNPACK does not take", (3, 80), 7, 16)
    yield in_blocks("blocks of 11, which end within a byte", (3, 66), 7, 11)
    yield in_blocks("one block a row", (3, 32), 5, 32)
    yield in_blocks("one output in blocks", (3, 160), 1, 32)
    yield in_blocks("blocks, rank kept", (2, 3, 96), 7, 32, keep=True)
    yield in_blocks("blocks, rank 3 to rows", (2, 3, 96), 7, 32)
    yield in_blocks("blocks whose scales have one axis", (3, 96), 7, 32, flat=True)
    yield in_blocks("blocks with RELU6", (3, 96), 7, 32, activation="RELU6")
    yield net(DENSE, "blocks after a flatten", flattened, dtype="int4 by block", transposes=2)
    yield net(DENSE, "blocks that two layers share", shared, dtype="int4 by block")
    real = in_blocks("blocks in real numbers", (3, 96), 7, 32)
    yield replace(real, options={"quantization": "float"})


def flattened(model: Net) -> None:
    """Blocks lie across the image's channels, so its elements must come in the file's order."""
    x = model.call("RESHAPE", [model.plumbed(tensor(2, 4, 8, 3)), constant([2, 96])], tensor(2, 96))
    model.output(model.call(DENSE, [x, blocked(model, (7, 96), 32), None], tensor(2, 7)))


def shared(model: Net) -> None:
    w = blocked(model, (7, 96), 32)
    model.output(*(model.call(DENSE, [tensor(n, 96), w, None], tensor(n, 7)) for n in (2, 3)))


# --- rows of a table --------------------------------------------------------------------------

PLACES = {"ids": np.array([6, 1, 0, 1, 2], np.int32)}


def looked_up(name: str, table: Spec, made: str = "", **case: Any) -> Case:
    """Five rows of a table of seven, as it is or ``made`` real."""
    y = replace(table, value=None).shaped(5, *table.shape[1:])
    places = tensor(5, dtype="int32", scale=0, name="ids")
    operands = [places, table]
    return alone(
        LOOKUP, name, operands, Spec(y.shape, made) if made else y, **{"dtype": table.dtype, "given": PLACES, **case}
    )


def tables() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int32"):
        yield looked_up(f"{dtype} as it is", constant(drawn(7, 11, dtype=dtype)))
    for dtype in ("int8", "uint8"):
        yield looked_up(f"{dtype} as it is", constant(drawn(7, 11, dtype=dtype), None, 0.3, 4))
    yield looked_up("a table that is a graph input", tensor(7, 11, name="table"))
    yield looked_up("rows of two axes", constant(drawn(7, 5, 3)))
    places = tensor(None, dtype="int32", scale=0, name="ids")
    some = [{"ids": np.arange(n, dtype=np.int32)} for n in (3, 1)]
    yield alone(
        LOOKUP,
        "an unknown number of rows",
        [places, weight((7, 12), "int4", 0)],
        tensor(None, 12),
        dtype="int4",
        given=some,
    )
    for dtype in ("int8", "int4", "int2"):
        for per_axis in (False, True):
            for made in ("float32", "float16"):
                yield looked_up(
                    f"{dtype} to {made} {scales(per_axis)}", weight((7, 12), dtype, 0 if per_axis else None), made
                )
        yield looked_up(f"{dtype} to float32 in rows of two axes", weight((7, 3, 4), dtype, 0), "float32")
        yield folded(looked_up(f"{dtype} to float32", weight((7, 12), dtype, 0), "float32"))
    unsigned = replace(weight((7, 12), "uint8"), zero_point=0)
    yield looked_up("uint8 to float32, which the kernel reads as int8", unsigned, "float32")


def tables_in_blocks() -> Iterator[Case]:
    for dtype, size in (("int4", 4), ("int4", 6), ("int2", 4)):
        for made in ("float32", "float16"):
            yield block_table(f"{dtype} to {made} in blocks of {size}", dtype, size, made)
    yield folded(block_table("int4 to float32 in blocks", "int4", 4, "float32"))


def block_table(name: str, dtype: str, size: int, made: str, **case: Any) -> Case:
    def draw(model: Net) -> None:
        places = model.place(tensor(5, dtype="int32", scale=0, name="ids"))
        model.output(model.call(LOOKUP, [places, blocked(model, (7, 12), size, dtype)], Spec((5, 12), made)))

    return net(LOOKUP, name, draw, **{"dtype": f"{dtype} by block", "given": PLACES, **case})


# --- what no kernel reads ---------------------------------------------------------------------


def refused() -> Iterator[Case]:
    """LiteRT takes these, reads past the end of the weights or leaves out what it does not know, and says nothing."""
    unpacked = "which LiteRT's kernel does not unpack"
    for weights in ("int4", "int2"):
        yield dense(f"uint8 by {weights}", dtype="uint8", weights=weights, refused=f"{weights} under uint8, {unpacked}")
    yield conv("uint8 by int4", dtype="uint8", weights="int4", refused=f"int4 under uint8, {unpacked}")
    yield conv("float32 by int2", weights="int2", refused=f"int2 under float32, {unpacked}")
    deep: dict[str, Any] = {"op": "DEPTHWISE_CONV_2D", "dtype": "int16", "out": 6}
    yield conv("int16 by int4", weights="int4", refused=f"int4 under int16, {unpacked}", **deep)
    offset = replace(weight((7, 12), "int4", 0), zero_point=8)
    name, reason = "int4 with zero points of 8", "its int4 weights have zero points other than 0"
    yield alone(DENSE, name, [tensor(3, 12), offset, None], tensor(3, 7), refused=reason)
    forgets = "a scale per 16 elements, for which LiteRT leaves out the activation"
    yield in_blocks("blocks of 16 with RELU", (3, 80), 7, 16, activation="RELU", refused=forgets)
    yield in_blocks("blocks of 16 in two rows", (3, 80), 2, 16, refused="wants 4 rows and more")
    yield net(DENSE, "int8 by blocks", eight_bits, refused="int8 by int4 with a scale per block")
    yield net(
        "CONV_2D", "a filter in blocks", in_a_filter, refused="has a scale per block, which the kernel does not read"
    )
    yield looked_up(
        "int4 rows of 13", weight((7, 13), "int4"), "float32", refused="end within a byte, where the kernel reads on"
    )
    yield block_table("blocks of 3", "int4", 3, "float32", refused="blocks of 3, which the kernel does not read")


def eight_bits(model: Net) -> None:
    x = model.place(tensor(3, 96, dtype="int8"))
    model.output(model.call(DENSE, [x, blocked(model, (7, 96), 32), None], tensor(3, 7, dtype="int8")))


def in_a_filter(model: Net) -> None:
    x = model.place(tensor(1, 5, 7, 32))
    w = blocked(model, (3, 1, 1, 32), 32)
    model.output(model.call("CONV_2D", [x, w, constant(drawn(3))], tensor(1, 5, 7, 3), stride_h=1, stride_w=1))


def refused_by_litert() -> Iterator[Case]:
    x = tensor(2, 3, 12)
    refuses = "rhs_data->type == kTfLiteInt8"
    yield alone("BATCH_MATMUL", "int4", [x, weight((12, 5), "int4")], tensor(2, 3, 5), kernel_refuses=refuses)
    places = constant(np.array([6, 1, 0], np.int32))
    table = weight((7, 12), "int2")
    y = replace(table, value=None).shaped(3, 12)
    yield alone("GATHER", "int2", [table, places], y, kernel_refuses="Type 'INT2' is not supported by gather")
    yield net("DENSIFY", "int4", sparse, kernel_refuses="Type 18 not supported")
    yield block_table("int8 in blocks", "int8", 4, "float32", kernel_refuses="only supports Int4 and Int2 data")


def sparse(model: Net) -> None:
    table = weight((5, 16), "int4")
    w = model.graph.sparse("w", table.value, ["dense", "csr"], quantization=table.quantization)
    model.output(model.call("DENSIFY", [w], replace(table, value=None)))
