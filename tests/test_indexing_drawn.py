"""Drawn models of operators that scatter, sort, reverse and cut into blocks: what ONNX Runtime gives is what LiteRT does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.case import Case
from conformance.models import Spec, alone, constant, tensor
from conformance.runner import run_case
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array

DRAWS = 5
ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (0, 0)}


class Draw:
    """Random choices of one model; its operands are constants or graph inputs by chance."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.given: dict[str, Array] = {}

    def one_of(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def shape(self, least: int, most: int, smallest: int = 1) -> tuple[int, ...]:
        return tuple(int(n) for n in self.random.integers(smallest, 6, self.random.integers(least, most + 1)))

    def data(self, shape: tuple[int, ...], *dtypes: str) -> Spec:
        """Values of few kinds, so that some are equal; quantized with a zero point at an end of the dtype."""
        dtype = self.one_of(*dtypes)
        point = self.one_of(*ENDS[dtype]) if dtype in ENDS else 0
        x = tensor(*shape, dtype=dtype, scale=self.one_of(0, 0.03), zero_point=point, name=f"data{len(self.given)}")
        if dtype not in ENDS:
            x = Spec(shape, dtype, name=x.name)
        values = self.random.integers(0 if dtype == "uint8" else -7, 8, shape)
        self.given[x.name] = (values / 2 if dtype == "float32" else values).astype(dtype)
        return x

    def whole(self, name: str, values: Any, dtype: str = "int32") -> Spec:
        array = np.asarray(values, dtype)
        if self.random.random() < 0.5:
            return constant(array)
        self.given[name] = array
        return Spec(array.shape, dtype, name=name)

    def case(self, op: str, operands: list[Spec], *outputs: Spec, **options: Any) -> Case:
        kept = {spec.name for spec in operands if spec.value is None}
        given = {name: array for name, array in self.given.items() if name in kept}
        return alone(op, "drawn", operands, *outputs, given=given, options=options, runs=1)


def dynamic_update_slice(draw: Draw) -> Case:
    x = draw.data(draw.shape(1, 4), "float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    size = [int(draw.random.integers(1, n + 1)) for n in x.shape if n is not None]
    update = replace(x, name="update").shaped(*size)
    draw.given["update"] = np.ones(size, x.dtype)
    start = draw.whole("start", draw.random.integers(-3, 8, len(size)), draw.one_of("int32", "int64"))
    return draw.case("DYNAMIC_UPDATE_SLICE", [x, update, start], replace(x, name=""))


def topk(draw: Draw) -> Case:
    x = draw.data(draw.shape(1, 4), "float32", "int8", "uint8", "int16", "int32", "int64")
    k = int(draw.random.integers(1, (x.shape[-1] or 1) + 1))
    kind, places = draw.one_of("int32", "int16"), draw.one_of("int32", "int16")
    shape = (*x.shape[:-1], k)
    return draw.case("TOPK_V2", [x, draw.whole("k", k, kind)], replace(x, name="").shaped(*shape), Spec(shape, places))


def reverse(draw: Draw) -> Case:
    x = draw.data(draw.shape(1, 5), "float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    rank = len(x.shape)
    first = int(draw.random.integers(rank))
    axes = np.arange(first, int(draw.random.integers(first, rank)) + 1)
    axes = draw.random.permutation(axes - rank * draw.random.integers(0, 2, len(axes)))
    return draw.case("REVERSE_V2", [x, draw.whole("axes", axes)], replace(x, name=""))


def scatter_nd(draw: Draw) -> Case:
    shape = draw.shape(1, 4)
    depth = int(draw.random.integers(1, len(shape) + 1))
    rows = draw.shape(1, 2)
    places = draw.random.integers(0, shape[:depth], (*rows, depth))
    updates = draw.data((*rows, *shape[depth:]), "float32", "int8", "uint8", "int32", "int64", "bool")
    operands = [draw.whole("places", places), updates, constant(np.asarray(shape, np.int32))]
    return draw.case("SCATTER_ND", operands, replace(updates, name="").shaped(*shape))


def sparse_to_dense(draw: Draw) -> Case:
    shape, kind = draw.shape(1, 4), draw.one_of("int32", "int64")
    count = int(draw.random.integers(1, 8))
    places = draw.random.integers(0, shape, (count, len(shape)))
    values = draw.data((count,), "float32", "int8", "uint8", "int32", "int64")
    default = replace(values, name="", shape=(), value=np.asarray(2, values.dtype))
    operands = [draw.whole("places", places, kind), constant(np.asarray(shape, kind)), values, default]
    return draw.case("SPARSE_TO_DENSE", operands, replace(values, name="").shaped(*shape))


def segments(draw: Draw) -> Case:
    shape = draw.shape(1, 4)
    kind = draw.one_of("SUM", "PROD", "MAX", "MIN")
    x = draw.data(shape, "float32", "int32")
    shared = int(draw.random.integers(1, len(shape) + 1))
    count = int(draw.random.integers(1, 9))
    ids = draw.whole("ids", draw.random.integers(-2, count, shape[:shared]))
    y = Spec((count, *shape[shared:]), x.dtype)
    return draw.case(f"UNSORTED_SEGMENT_{kind}", [x, ids, draw.whole("count", count)], y)


def blocks(draw: Draw) -> Case:
    spatial = int(draw.random.integers(1, 3))
    block, cells = draw.random.integers(1, 4, spatial), draw.random.integers(1, 4, spatial)
    rows = draw.random.integers(0, 3, (spatial, 2))
    size = block * cells - rows.sum(axis=1)
    if (size < 1).any():
        rows, size = rows * 0, block * cells
    n, c = (int(k) for k in draw.random.integers(1, 4, 2))
    x = draw.data((n, *map(int, size), c), "float32", "int8", "uint8", "int32", "int64")
    operands = [x, draw.whole("block", block), draw.whole("rows", rows)]
    y = replace(x, name="").shaped(n * int(block.prod()), *map(int, cells), c)
    return draw.case("SPACE_TO_BATCH_ND", operands, y)


def diagonals(draw: Draw) -> Case:
    x = draw.data(draw.shape(2, 4), "float32", "int8", "uint8", "int16", "int32", "int64")
    *batch, rows, columns = x.shape
    diagonal = replace(x, name="diagonal").shaped(*batch, min(rows or 0, columns or 0))
    draw.given["diagonal"] = np.ones([n or 0 for n in diagonal.shape], x.dtype)
    return draw.case("MATRIX_SET_DIAG", [x, diagonal], replace(x, name=""))


FAMILY = (dynamic_update_slice, topk, reverse, scatter_nd, sparse_to_dense, segments, blocks, diagonals)


@pytest.mark.parametrize("drawn", FAMILY, ids=lambda drawn: drawn.__name__)
def test_drawn_models_give_what_litert_does(drawn: Callable[[Draw], Case]) -> None:
    host = Host(packs="builtin")
    failed = [result.text for seed in range(DRAWS) if not (result := run_case(drawn(Draw(seed)), host)).ok]
    assert failed == []
