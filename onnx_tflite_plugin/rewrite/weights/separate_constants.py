"""Give each node a separate copy of the int8 constants that ONNX Runtime converts to uint8 under
``session.x64quantprecision=1``.

It names the uint8 tensor and zero point after the int8 ones, and does not load the model if that name exists already.
That happens if two nodes share either tensor, or if one DequantizeLinear has two users: each gets a copy (s8_to_u8.h
and ensure_unique_dq_for_node_unit.cc of ONNX Runtime). Constants with magnitudes of at most 64 are not changed.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.lowering.emitter import tensor_value
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant
from onnx_tflite_plugin.source.model import Array

SHIFT = 128  # from int8 to uint8
COPIES = 2**20
"""Bytes that a model may grow by for one constant; a larger constant is stored as uint8, which may be shared."""

_MADE_UINT8 = {"DequantizeLinear": (0, 2), "MatMulInteger": (1, 3), "QLinearConv": (3, 5), "QLinearMatMul": (3, 5)}
"""ONNX operator -> the slots of the integers and their zero point."""
_LEFT_ALONE = 64


class SeparateConstants(InPlacePass):
    """Copy int8 constants that several nodes share, or make them uint8."""

    def call(self, model: ir.Model) -> PassResult:
        found = [(node, value) for node in model.graph.all_nodes() if (value := _integers(node)) is not None]
        work = _Separation(Editor(model))
        modified = sum(work.separate(node, value) for node, value in found) > 0
        if modified:
            work.editor.remove_unused()
        return PassResult(model, modified)


def _integers(node: ir.Node) -> ir.Value | None:
    """Return the constant operand that ONNX Runtime would make uint8; ``None`` if there is none."""
    if node.domain or node.op_type not in _MADE_UINT8 or "block_size" in node.attributes:
        return None
    value, zero_point = (_operand(node, slot) for slot in _MADE_UINT8[node.op_type])
    array = None if value is None or value.dtype != ir.DataType.INT8 else constant(value)
    if array is None or (zero_point is not None and constant(zero_point) is None):
        return None
    return value if np.abs(array.astype(np.int16)).max(initial=0) > _LEFT_ALONE else None


def _operand(node: ir.Node, slot: int) -> ir.Value | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


class _Separation:
    """The separation of one model, node by node; the first user of a constant keeps it."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self._taken: set[ir.Value] = set()
        self._uint8: dict[ir.Value, ir.Value] = {}

    def separate(self, node: ir.Node, integers: ir.Value) -> int:
        """Give a node, and each user of a DequantizeLinear, separate operands; returns the number of copies."""
        array = constant(integers)
        assert array is not None
        if node.op_type != "DequantizeLinear":
            return self._separate_operands(node)
        result = node.outputs[0]
        others = list(result.uses())[0 if result.is_graph_output() else 1 :]
        if (len(others) + (integers in self._taken)) * array.nbytes > COPIES:
            self._make_uint8(node, integers, array)
            return 1
        copies = self._separate_operands(node)
        for use in others:
            with self.editor.replacing(node, after=True):
                clone = self.editor.clone_on(node, integers)
            clone.shape = result.shape
            producer = clone.producer()
            assert producer is not None
            copies += 1 + self._separate_operands(producer)
            use.node.replace_input_with(use.idx, clone)
        return copies

    def _separate_operands(self, node: ir.Node) -> int:
        """Copy integers and zero point if an earlier node has them; returns the number of copies."""
        copies = 0
        for slot in _MADE_UINT8[node.op_type]:
            value = _operand(node, slot)
            if value is None:
                continue
            if value in self._taken:
                array = constant(value)
                assert array is not None
                value = tensor_value(array, self.editor.emitter.names.unique(value.name or "constant"))
                self.editor.register([value])
                node.replace_input_with(slot, value)
                copies += 1
            self._taken.add(value)
        return copies

    def _make_uint8(self, node: ir.Node, integers: ir.Value, array: Array) -> None:
        """Store the integers of a DequantizeLinear as uint8; nodes that share the integers share the result."""
        if integers not in self._uint8:
            self._uint8[integers] = self.editor.store(_shift_to_uint8(array), like=integers)
        zero_point = _operand(node, 2)
        least = np.asarray(0, np.int8) if zero_point is None else constant(zero_point)
        assert least is not None
        node.resize_inputs(3)
        node.replace_input_with(0, self._uint8[integers])
        node.replace_input_with(2, self.editor.store(_shift_to_uint8(least), like=zero_point))


def _shift_to_uint8(array: Array) -> Array:
    return (array.astype(np.int16) + SHIFT).astype(np.uint8)
