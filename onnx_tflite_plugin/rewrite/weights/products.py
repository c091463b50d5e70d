"""The products of a finished model that a runtime may compute in integers, and the overflow of their int8 operands.

x86 before VNNI multiplies uint8 by int8 with ``vpmaddubsw``: two neighboring products are added in int16, and saturate.
MLAS, ONNX Runtime's kernel library, pairs elements 2i and 2i + 1 along the summed axis. For a convolution this axis is
(kernel axes, input channels of the group). ARM64 wraps a product of -128 and 0 - 256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.matching import constant, integer, only_user, producer
from onnx_tflite_plugin.rewrite.weights.dtypes import PROBE
from onnx_tflite_plugin.source.model import Array

LEAST = -128  # inexact in every int8 kernel of ARM64
PAIR = 128  # 255 * 128 is the largest sum of two products below 2**15
_MOVES = ("Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze", "Concat", "Expand", "Gather", "Split")

Rows = Callable[[ir.Node, Array], Array | None]
"""Function of a constant operand that returns [sums, summed elements in the kernel's order]; ``None`` if no processor overflows."""


def _kernel(conv: ir.Node, weights: Array) -> Array | None:
    """Return the rows of weights [o, i, kernel axes...]; ``None`` for depthwise kernels, which widen before they add."""
    features, channels = weights.shape[:2]
    if channels == 1 and features == integer(conv, "group", 1) > 1:
        return None
    return np.moveaxis(weights, 1, -1).reshape(features, -1)


def _columns(_node: ir.Node, matrix: Array) -> Array:
    """Return the rows of the second operand of a product, [..., k, n]."""
    return matrix if matrix.ndim == 1 else np.swapaxes(matrix, -1, -2)


def _rows(_node: ir.Node, matrix: Array) -> Array:
    """Return the rows of the first operand of a product, [..., m, k]."""
    return matrix


def _gemm(slot: int) -> Rows:
    """Return the function for an operand of Gemm, which may be transposed."""

    def rows(node: ir.Node, matrix: Array) -> Array:
        transposed = bool(integer(node, "transA" if slot == 0 else "transB", 0))
        return matrix if transposed == (slot == 1) else matrix.T

    return rows


# Operator -> slot -> rows that are summed. Operands of float operators are integers if a DequantizeLinear makes them.
FLOAT: dict[str, dict[int, Rows]] = {
    "Conv": {1: _kernel},
    "Gemm": {0: _gemm(0), 1: _gemm(1)},
    "MatMul": {0: _rows, 1: _columns},
}
# Operator -> slot -> (rows that are summed, the slot of the zero point).
INTEGER: dict[str, dict[int, tuple[Rows, int]]] = {
    "ConvInteger": {1: (_kernel, 3)},
    "MatMulInteger": {0: (_rows, 2), 1: (_columns, 3)},
    "QLinearConv": {3: (_kernel, 5)},
    "QLinearMatMul": {0: (_rows, 2), 3: (_columns, 5)},
}


@dataclass(frozen=True)
class Product:
    """An int8 operand of a product: operand ``slot`` of ``node``.

    ``stored``: its integers; ``dequantize``: the DequantizeLinear between, if any; ``weights``: the constant integers;
    ``zero_point``: the slot of their zero point, if ``node`` takes one.
    ``moved``: nodes between permute or cut the operand. ``guarded``: it is int8 only where the probe is true;
    ``otherwise``: it is computed only where the probe is not.
    """

    node: ir.Node
    slot: int
    stored: ir.Value
    dequantize: ir.Node | None
    rows: Rows
    zero_point: int | None = None
    moved: bool = False
    guarded: bool = False
    otherwise: bool = False

    @property
    def place(self) -> ir.Node:
        """The first node whose dtype changes with the weights': the DequantizeLinear of moved weights, otherwise the product."""
        return self.dequantize if self.moved and self.dequantize is not None else self.node

    @cached_property
    def weights(self) -> Array | None:
        return constant(self.stored)

    @cached_property
    def exact(self) -> bool:
        """True if no processor overflows, for all values of the other operand."""
        if self.weights is None or self.holds_least:
            return False
        if self.moved or not self.weights.size:  # the neighbors are unknown
            return 2 * int(np.abs(self.weights).max(initial=0)) <= PAIR
        rows = self.rows(self.node, self.weights)
        return rows is None or not overflows(rows)

    @cached_property
    def holds_least(self) -> bool:
        return self.weights is not None and bool((self.weights == LEAST).any())


def overflows(rows: Array) -> bool:
    """True if two neighbors along the last axis of int8 ``rows``, times 255, sum to more than int16 holds.

    Positive and negative weights are summed separately, since activations may be 0. No weight is -128.
    """
    flat = rows.reshape(-1, rows.shape[-1])
    if flat.shape[-1] % 2:
        flat = np.pad(flat, ((0, 0), (0, 1)))
    block = max(1, 2**16 // max(1, flat.shape[-1]))
    for start in range(0, len(flat), block):  # most overflow early
        part = np.ascontiguousarray(flat[start : start + block])
        for signed in (np.maximum(part, 0), -np.minimum(part, 0)):
            magnitudes = signed.view(np.uint8)  # two of 127 fit
            if (magnitudes[:, ::2] + magnitudes[:, 1::2]).max(initial=0) > PAIR:
                return True
    return False


def products(model: ir.Model) -> Iterator[Product]:
    """Yield every int8 operand of a product, in inner graphs too; both if both are int8, since ARM64 wraps -128 times -128."""
    choices = [node for node in model.graph.all_nodes() if is_choice(node)]
    exact, other = ({node.attributes[name].as_graph() for node in choices} for name in ("then_branch", "else_branch"))
    for node in model.graph.all_nodes():
        if node.domain or _probes(node):
            continue
        guarded, otherwise = node.graph in exact, node.graph in other
        for slot, rows in FLOAT.get(node.op_type, {}).items():
            for source in _sources(node.inputs[slot]):
                stored = source.dequantize.inputs[0]
                if stored is not None:
                    yield Product(
                        node, slot, stored, source.dequantize, rows,
                        moved=source.moved, guarded=guarded or source.guarded, otherwise=otherwise,
                    )  # fmt: skip
        for slot, (rows, zero_point) in INTEGER.get(node.op_type, {}).items():
            stored = node.inputs[slot]
            if stored is not None and _int8(stored):
                yield Product(node, slot, stored, None, rows, zero_point, guarded=guarded, otherwise=otherwise)


def _probes(node: ir.Node) -> bool:
    """True if a node is part of the probe."""
    value = node.outputs[0]
    while value.name != PROBE and (follower := only_user(value, "ReduceMin", "Equal")) is not None:
        value = follower.outputs[0]
    return value.name == PROBE


def is_choice(node: ir.Node) -> bool:
    """True for an ``If`` on the probe."""
    return node.op_type == "If" and node.inputs[0] is not None and node.inputs[0].name == PROBE


class _Source(NamedTuple):
    """A DequantizeLinear of int8 that an operand comes from."""

    dequantize: ir.Node
    moved: bool = False
    guarded: bool = False


def _sources(value: ir.Value | None) -> Iterator[_Source]:
    """Yield the DequantizeLinear nodes that an operand may come from, through data movement and the branches of an If.

    Each path is followed once, since a tensor that is split and joined again may be reached along very many.
    """
    pending = [(value, False, False)]
    seen = set(pending)
    while pending:
        value, moved, guarded = pending.pop()
        node = producer(value, "DequantizeLinear", "If", *_MOVES)
        behind: list[tuple[ir.Value | None, bool, bool]] = []
        if node is None or value is None:
            continue
        if node.op_type == "If":
            k = list(node.outputs).index(value)
            for name in ("then_branch", "else_branch"):
                chosen = is_choice(node) and name == "then_branch"
                behind.append((node.attributes[name].as_graph().outputs[k], moved, guarded or chosen))
        elif node.op_type != "DequantizeLinear":
            behind += [(operand, True, guarded) for operand in node.inputs]
        elif _int8(node.inputs[0]) and "block_size" not in node.attributes:
            yield _Source(node, moved, guarded)
        new = [way for way in dict.fromkeys(behind) if way not in seen]
        seen.update(new)
        pending += reversed(new)


def _int8(value: ir.Value | None) -> bool:
    return value is not None and value.type is not None and value.type.dtype == ir.DataType.INT8
