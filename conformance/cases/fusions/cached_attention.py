"""Attention over caches: as it is exported in two forms, and what looks like it and is something else.

Positions are the last of the cache, so that every slot holds a value that the operator keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.language_model import Attention, Sizes, causal_mask, table_mask
from conformance.models import Net, net, tensor
from onnx_tflite_plugin.source.model import Array

OP = "SOFTMAX"
NODE = "com.microsoft.GroupQueryAttention"
ROWS, COLUMNS = Sizes("rows"), Sizes("columns")


def cases() -> Iterator[Case]:
    for sizes in (ROWS, COLUMNS):
        yield attention(f"of one token, {sizes.cache_layout}", sizes, 1)
        yield attention(f"of five tokens, {sizes.cache_layout}", sizes, 5)
    yield attention("of one token, without the option", ROWS, 1, options={}, nodes={NODE: 0})
    yield attention("of one token, opset 13", ROWS, 1, opsets=(13,))
    yield attention("of one token to each head", replace(ROWS, groups=6), 1)
    yield attention("of one token to one group", replace(COLUMNS, groups=1), 1)
    yield attention("of five tokens within seven", replace(ROWS, window=7), 5)
    yield attention("of one token with a write-only cache", ROWS, 1, writes=True)
    yield from standard_cases()
    yield unsupported_attention("of heads of 12 elements", replace(ROWS, depth=12))
    yield unsupported_attention("without a causal mask", ROWS, allowed=np.ones((19, 19), bool))
    yield unsupported_attention(
        "with a masked early token", ROWS, allowed=np.tril(np.ones((19, 19), bool)) & (np.arange(19) != 2)
    )
    yield unsupported_attention("with values written at different positions", ROWS, shifts=True)


def standard_cases() -> Iterator[Case]:
    """Yield attention as standard operators, whose opset is 24 unless an older one is requested."""
    for sizes in (ROWS, COLUMNS):
        yield standard_attention(f"of one token, {sizes.cache_layout}", sizes, 1)
        yield standard_attention(f"of five tokens, {sizes.cache_layout}", sizes, 5)
    yield standard_attention("of one token to each head", replace(ROWS, groups=6), 1)
    yield standard_attention("of five tokens to one group", replace(COLUMNS, groups=1), 5)
    yield standard_attention("of five tokens within seven", replace(ROWS, window=7), 5)
    yield standard_attention("of heads of 12 elements", replace(ROWS, depth=12), 5)
    yield standard_attention("of one token, opset 19", ROWS, 1, opsets=(19,), nodes={"TensorScatter": 0, "Softmax": 1})
    yield standard_attention(
        "without a causal mask", ROWS, 1, allowed=np.ones((19, 19), bool), nodes={"TensorScatter": 0}
    )


def standard_attention(name: str, sizes: Sizes, count: int, **case: Any) -> Case:
    """Return a case of a target without operators of its own."""
    nodes = {"TensorScatter": 2, "Attention": 1, "Softmax": 0}
    return attention(f"{name}, standard operators", sizes, count, **{"targets": ("generic",), "nodes": nodes, **case})


def attention(
    name: str,
    sizes: Sizes,
    count: int,
    *,
    allowed: Array | None = None,
    writes: bool = False,
    shifts: bool = False,
    **case: Any,
) -> Case:
    """Return a case. ``allowed``: constant mask table. ``writes``: one more cache. ``shifts``: values are written elsewhere."""

    def build(model: Net) -> None:
        positions = model.input(tensor(count, dtype="int32", name="positions"))
        mask = (
            table_mask(model, sizes, count, positions, allowed=allowed)
            if sizes.cache_layout == "rows"
            else model.input(tensor(1, 1, count, sizes.slots, name="mask"))
        )
        layer = Attention(model, sizes, count, positions, mask)
        widths = (sizes.heads, sizes.groups, sizes.groups)
        q, k, v = (model.input(tensor(1, count, heads * sizes.depth)) for heads in widths)
        keys, values = (model.input(tensor(*shape)) for shape in sizes.cache_shapes)
        written = (
            layer.write(keys, k, 0),
            (_write_elsewhere(model, sizes, count) if shifts else layer).write(values, v, 1),
        )
        outputs = [layer.attend(q, *written), *written]
        if writes:
            outputs.append(layer.write(model.input(tensor(*sizes.cache_shapes[0])), k, 0))
        model.output(*outputs)

    start = sizes.slots - count
    given = {"positions": np.arange(start, sizes.slots, dtype=np.int32)}
    given |= {"mask": causal_mask(sizes, start, count)} if sizes.cache_layout == "columns" else {}
    given |= {"elsewhere": given["positions"]} if shifts else {}
    options = {
        "options": {"attention": "causal"},
        "nodes": {NODE: 1},
        "targets": ("onnxruntime",),
        "input_arrays": given,
    }
    return net(OP, f"attention over a cache {name}", build, **{**options, **case})


def unsupported_attention(name: str, sizes: Sizes, **case: Any) -> Case:
    """Return attention that the runtime's operator cannot express, which stays as in the file."""
    return attention(name, sizes, 1, nodes={NODE: 0}, **case)


def _write_elsewhere(model: Net, sizes: Sizes, count: int) -> Attention:
    """Return writes at positions of another input."""
    elsewhere: TensorRef = model.input(tensor(count, dtype="int32", name="elsewhere"))
    return Attention(model, sizes, count, elsewhere, elsewhere)
