"""Attention over a KV cache, in both exported layouts of the cache.

Similar patterns must not be fused.

The new tokens take the last positions of the cache, so every slot holds a valid value.
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
ROW_CACHE, COLUMN_CACHE = Sizes("rows"), Sizes("columns")


def cases() -> Iterator[Case]:
    for sizes in (ROW_CACHE, COLUMN_CACHE):
        yield attention(f"one token, {sizes.cache_layout} layout", sizes, 1)
        yield attention(f"five tokens, {sizes.cache_layout} layout", sizes, 5)
    yield attention("one token, without --attention causal", ROW_CACHE, 1, options={}, nodes={NODE: 0})
    yield attention("one token, opset 13", ROW_CACHE, 1, opsets=(13,))
    yield attention("one token, one head per group", replace(ROW_CACHE, groups=6), 1)
    yield attention("one token, single group", replace(COLUMN_CACHE, groups=1), 1)
    yield attention("five tokens, window of seven", replace(ROW_CACHE, window=7), 5)
    yield attention("one token, write-only cache", ROW_CACHE, 1, write_only_cache=True)
    yield from standard_cases()
    yield unsupported_attention("heads of 12 elements", replace(ROW_CACHE, depth=12))
    yield unsupported_attention("no causal mask", ROW_CACHE, allowed=np.ones((19, 19), bool))
    yield unsupported_attention(
        "early token masked", ROW_CACHE, allowed=np.tril(np.ones((19, 19), bool)) & (np.arange(19) != 2)
    )
    yield unsupported_attention("keys and values at different positions", ROW_CACHE, different_positions=True)


def standard_cases() -> Iterator[Case]:
    """Yield cases of the operators Attention and TensorScatter, from opset 24 on."""
    for sizes in (ROW_CACHE, COLUMN_CACHE):
        yield standard_attention(f"one token, {sizes.cache_layout} layout", sizes, 1)
        yield standard_attention(f"five tokens, {sizes.cache_layout} layout", sizes, 5)
    yield standard_attention("one token, one head per group", replace(ROW_CACHE, groups=6), 1)
    yield standard_attention("five tokens, single group", replace(COLUMN_CACHE, groups=1), 5)
    yield standard_attention("five tokens, window of seven", replace(ROW_CACHE, window=7), 5)
    yield standard_attention("heads of 12 elements", replace(ROW_CACHE, depth=12), 5)
    yield standard_attention(
        "one token, opset 19", ROW_CACHE, 1, opsets=(19,), nodes={"TensorScatter": 0, "Softmax": 1}
    )
    yield standard_attention(
        "no causal mask", ROW_CACHE, 1, allowed=np.ones((19, 19), bool), nodes={"TensorScatter": 0}
    )


def standard_attention(name: str, sizes: Sizes, count: int, **case_fields: Any) -> Case:
    """Return a case of attention in standard operators, for the target ``generic``."""
    nodes = {"TensorScatter": 2, "Attention": 1, "Softmax": 0}
    return attention(
        f"{name}, standard operators", sizes, count, **{"targets": ("generic",), "nodes": nodes, **case_fields}
    )


def attention(
    name: str,
    sizes: Sizes,
    count: int,
    *,
    allowed: Array | None = None,
    write_only_cache: bool = False,
    different_positions: bool = False,
    **case_fields: Any,
) -> Case:
    """Return a case of attention of ``count`` tokens over a cache.

    For ONNX Runtime, the graph becomes one fused operator.

    ``allowed``: constant mask, True where a position may attend to another. ``write_only_cache``: a further cache is
    written but not read. ``different_positions``: values and keys are written at different positions.
    """

    def build(model: Net) -> None:
        positions = model.input(tensor(count, dtype="int32", name="positions"))
        mask = (
            table_mask(model, sizes, count, positions, allowed=allowed)
            if sizes.cache_layout == "rows"
            else model.input(tensor(1, 1, count, sizes.slots, name="mask"))
        )
        layer = Attention(model, sizes, count, positions, mask)
        head_counts = (sizes.heads, sizes.groups, sizes.groups)
        q, k, v = (model.input(tensor(1, count, heads * sizes.depth)) for heads in head_counts)
        keys, values = (model.input(tensor(*shape)) for shape in sizes.cache_shapes)
        new_caches = (
            layer.write(keys, k, 0),
            (_writer_at_other_positions(model, sizes, count) if different_positions else layer).write(values, v, 1),
        )
        outputs = [layer.attend(q, *new_caches), *new_caches]
        if write_only_cache:
            outputs.append(layer.write(model.input(tensor(*sizes.cache_shapes[0])), k, 0))
        model.output(*outputs)

    start = sizes.slots - count
    input_arrays = {"positions": np.arange(start, sizes.slots, dtype=np.int32)}
    input_arrays |= {"mask": causal_mask(sizes, start, count)} if sizes.cache_layout == "columns" else {}
    input_arrays |= {"other_positions": input_arrays["positions"]} if different_positions else {}
    defaults = {
        "options": {"attention": "causal"},
        "nodes": {NODE: 1},
        "targets": ("onnxruntime",),
        "input_arrays": input_arrays,
    }
    return net(OP, f"attention over a cache, {name}", build, **{**defaults, **case_fields})


def unsupported_attention(name: str, sizes: Sizes, **case_fields: Any) -> Case:
    """Return a case of attention that GroupQueryAttention cannot express."""
    return attention(f"not fused, {name}", sizes, 1, nodes={NODE: 0}, **case_fields)


def _writer_at_other_positions(model: Net, sizes: Sizes, count: int) -> Attention:
    """Return a builder of cache writes at positions from another graph input."""
    other_positions: TensorRef = model.input(tensor(count, dtype="int32", name="other_positions"))
    return Attention(model, sizes, count, other_positions, other_positions)
