"""Int8 operands of matrix multiplications and convolutions: overflow of sums.

Each element of a result is a sum of products. Each product is an activation times a weight.

x86 processors without VNNI multiply uint8 by int8 with the instruction ``vpmaddubsw``. It adds two neighboring products in int16, and
saturates if they overflow. MLAS, the kernel library of ONNX Runtime, pairs elements 2i and 2i + 1 along the summed axis. In a
convolution, this axis consists of the kernel axes and the input channels of the group.

ARM64 kernels without dot-product instructions, and some depthwise kernels on all ARM64 processors, add two products of int8 by int8 in
int16. There, only -128 * -128 + -128 * -128 overflows.
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

INT8_MIN = -128  # without this weight, int8 kernels of ARM64 are exact
MAX_PAIR_SUM = 128  # maximum sum of two neighboring weights: 255 * 128 < 2**15
_MOVEMENTS = (
    "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip

ToRows = Callable[[ir.Node, Array], Array | None]
"""Function that returns a constant operand as rows, [sums, summed elements in the kernel's order].

It returns ``None`` if sums overflow on no processor.
"""


def _kernel_rows(conv: ir.Node, weights: Array) -> Array | None:
    """Return the rows of convolution weights [o, i, kernel axes...].

    Return ``None`` for depthwise convolutions, whose kernels convert products to 32 bits before they add them.
    """
    features, channels = weights.shape[:2]
    if channels == 1 and features == integer(conv, "group", 1) > 1:
        return None
    return np.moveaxis(weights, 1, -1).reshape(features, -1)


def _second_operand_rows(_node: ir.Node, matrix: Array) -> Array:
    """Return the rows of the second operand of a matrix multiplication, [..., k, n]."""
    return matrix if matrix.ndim == 1 else np.swapaxes(matrix, -1, -2)


def _first_operand_rows(_node: ir.Node, matrix: Array) -> Array:
    """Return the rows of the first operand of a matrix multiplication, [..., m, k]."""
    return matrix


def _gemm_rows(slot: int) -> ToRows:
    """Return the function that returns the rows of a Gemm operand, transposed or not."""

    def rows(node: ir.Node, matrix: Array) -> Array:
        transposed = bool(integer(node, "transA" if slot == 0 else "transB", 0))
        return matrix if transposed == (slot == 1) else matrix.T

    return rows


# Float operator -> slot -> function that returns the rows. Only dequantized operands are considered.
FLOAT_OPERATORS: dict[str, dict[int, ToRows]] = {
    "Conv": {1: _kernel_rows},
    "Gemm": {0: _gemm_rows(0), 1: _gemm_rows(1)},
    "MatMul": {0: _first_operand_rows, 1: _second_operand_rows},
}
# Integer operator -> slot -> (function that returns the rows, slot of the zero point).
INTEGER_OPERATORS: dict[str, dict[int, tuple[ToRows, int]]] = {
    "ConvInteger": {1: (_kernel_rows, 3)},
    "MatMulInteger": {0: (_first_operand_rows, 2), 1: (_second_operand_rows, 3)},
    "QLinearConv": {3: (_kernel_rows, 5)},
    "QLinearMatMul": {0: (_first_operand_rows, 2), 3: (_second_operand_rows, 5)},
}


@dataclass(frozen=True)
class Int8Operand:
    """The int8 operand ``slot`` of ``node``, a convolution or matrix multiplication.

    ``stored``: the quantized operand. ``dequantize``: the DequantizeLinear between ``stored`` and ``node``, if any.
    ``to_rows``: the function that returns the operand as rows. ``weights``: the array of ``stored`` if it is constant.
    ``zero_point_slot``: the slot of the zero point if ``node`` has one. ``is_rearranged``: data-movement nodes between
    ``stored`` and ``node`` permute or slice the operand. ``on_exact_branch``: the operand is int8 only if the probe is true.
    ``on_else_branch``: ``node`` runs only if the probe is false.
    """

    node: ir.Node
    slot: int
    stored: ir.Value
    dequantize: ir.Node | None
    to_rows: ToRows
    zero_point_slot: int | None = None
    is_rearranged: bool = False
    on_exact_branch: bool = False
    on_else_branch: bool = False

    @property
    def insertion_point(self) -> ir.Node:
        """The node before which new operands are emitted.

        It is the DequantizeLinear if the weights are rearranged, otherwise ``node``.
        """
        return self.dequantize if self.is_rearranged and self.dequantize is not None else self.node

    @cached_property
    def weights(self) -> Array | None:
        return constant(self.stored)

    @cached_property
    def exact(self) -> bool:
        """True if sums overflow on no processor, whatever the values of the other operand."""
        if self.weights is None or self.has_int8_min:
            return False
        if self.is_rearranged or not self.weights.size:  # any two weights may be neighbors
            return 2 * int(np.abs(self.weights).max(initial=0)) <= MAX_PAIR_SUM
        rows = self.to_rows(self.node, self.weights)
        return rows is None or not overflows(rows)

    @cached_property
    def has_int8_min(self) -> bool:
        return self.weights is not None and bool((self.weights == INT8_MIN).any())


def overflows(rows: Array) -> bool:
    """True if the sum of two neighboring products may overflow int16.

    ``rows``: int8 weights other than -128, with neighbors along the last axis. The other factors are from 0 to 255. Since they
    may be 0, positive and negative weights are tested separately.
    """
    flat = rows.reshape(-1, rows.shape[-1])
    if flat.shape[-1] % 2:
        flat = np.pad(flat, ((0, 0), (0, 1)))
    block_size = max(1, 2**16 // max(1, flat.shape[-1]))
    for start in range(0, len(flat), block_size):  # in most networks, an overflow occurs in the first block already
        block_rows = np.ascontiguousarray(flat[start : start + block_size])
        for signed in (np.maximum(block_rows, 0), -np.minimum(block_rows, 0)):
            magnitudes = signed.view(np.uint8)  # uint8 represents 127 + 127
            if (magnitudes[:, ::2] + magnitudes[:, 1::2]).max(initial=0) > MAX_PAIR_SUM:
                return True
    return False


def int8_operands(model: ir.Model) -> Iterator[Int8Operand]:
    """Yield int8 operands of convolutions and matrix multiplications in all graphs.

    Both operands of a node may be int8: the sum of two products -128 * -128 overflows on ARM64.
    """
    choices = [node for node in model.graph.all_nodes() if is_choice(node)]
    exact_graphs, else_graphs = (
        {node.attributes[name].as_graph() for node in choices} for name in ("then_branch", "else_branch")
    )
    for node in model.graph.all_nodes():
        if node.domain or _is_probe(node):
            continue
        on_exact_branch, on_else_branch = node.graph in exact_graphs, node.graph in else_graphs
        for slot, to_rows in FLOAT_OPERATORS.get(node.op_type, {}).items():
            for source in _sources(node.inputs[slot]):
                stored = source.dequantize.inputs[0]
                if stored is not None:
                    yield Int8Operand(
                        node, slot, stored, source.dequantize, to_rows,
                        is_rearranged=source.is_rearranged, on_exact_branch=on_exact_branch or source.on_exact_branch,
                        on_else_branch=on_else_branch,
                    )  # fmt: skip
        for slot, (to_rows, zero_point_slot) in INTEGER_OPERATORS.get(node.op_type, {}).items():
            stored = node.inputs[slot]
            if stored is not None and _is_int8(stored):
                yield Int8Operand(
                    node, slot, stored, None, to_rows, zero_point_slot,
                    on_exact_branch=on_exact_branch, on_else_branch=on_else_branch,
                )  # fmt: skip


def _is_probe(node: ir.Node) -> bool:
    """True if a node is part of the probe."""
    value = node.outputs[0]
    while value.name != PROBE and (user := only_user(value, "ReduceMin", "Equal")) is not None:
        value = user.outputs[0]
    return value.name == PROBE


def is_choice(node: ir.Node) -> bool:
    """True for an ``If`` on the probe."""
    return node.op_type == "If" and node.inputs[0] is not None and node.inputs[0].name == PROBE


class _Source(NamedTuple):
    """A DequantizeLinear of int8 from which an operand may originate.

    The other fields are those of :class:`Int8Operand`.
    """

    dequantize: ir.Node
    is_rearranged: bool = False
    on_exact_branch: bool = False


def _sources(value: ir.Value | None) -> Iterator[_Source]:
    """Yield the DequantizeLinear nodes of int8 from which an operand may originate.

    The search passes through data-movement nodes and the branches of an If. Since the number of paths may be exponential, each
    value is visited only once per combination of flags.
    """
    pending = [(value, False, False)]
    visited = set(pending)
    while pending:
        value, is_rearranged, on_exact_branch = pending.pop()
        node = producer(value, "DequantizeLinear", "If", *_MOVEMENTS)
        upstream: list[tuple[ir.Value | None, bool, bool]] = []
        if node is None or value is None:
            continue
        if node.op_type == "If":
            index = list(node.outputs).index(value)
            for name in ("then_branch", "else_branch"):
                is_exact = is_choice(node) and name == "then_branch"
                output = node.attributes[name].as_graph().outputs[index]
                upstream.append((output, is_rearranged, on_exact_branch or is_exact))
        elif node.op_type != "DequantizeLinear":
            upstream += [(operand, True, on_exact_branch) for operand in node.inputs]
        elif _is_int8(node.inputs[0]) and "block_size" not in node.attributes:
            yield _Source(node, is_rearranged, on_exact_branch)
        unvisited = [path for path in dict.fromkeys(upstream) if path not in visited]
        visited.update(unvisited)
        pending += reversed(unvisited)


def _is_int8(value: ir.Value | None) -> bool:
    return value is not None and value.type is not None and value.type.dtype == ir.DataType.INT8
