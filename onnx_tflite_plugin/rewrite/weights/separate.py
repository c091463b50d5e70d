"""Operands of one node each for the int8 constants that ONNX Runtime makes uint8 under ``session.x64quantprecision=1``.

It names the uint8 tensor after the int8 one, and the uint8 zero point after the int8 one, and refuses to load the model where that
name is there already: where two nodes share either tensor, or where one DequantizeLinear has two users, each of which it
gives a DequantizeLinear of its own (s8_to_u8.h and ensure_unique_dq_for_node_unit.cc of ONNX Runtime). It leaves
constants alone whose magnitudes are at most 64.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.lowering.emitter import tensor_value
from onnx_tflite_plugin.rewrite.graph import Editor, constant
from onnx_tflite_plugin.source.model import Array

SHIFT = 128  # from int8 to uint8
COPIES = 2**20
"""Bytes by which a model may grow for one constant; beyond that the constant is stored as uint8, which may be shared."""

_MADE_UINT8 = {"DequantizeLinear": (0, 2), "MatMulInteger": (1, 3), "QLinearConv": (3, 5), "QLinearMatMul": (3, 5)}
"""ONNX operator -> the operands that hold the integers and their zero point."""
_LEFT_ALONE = 64


def run(model: ir.Model) -> int:
    """Separate int8 constants that several nodes share; returns how many operands and nodes were copied or made uint8."""
    found = [(node, value) for node in model.graph.all_nodes() if (value := _integers(node)) is not None]
    if not found:
        return 0
    work = _Separation(Editor(model))
    count = sum(work.separate(node, value) for node, value in found)
    if count:
        work.editor.tidy()
    return count


def _integers(node: ir.Node) -> ir.Value | None:
    """The constant operand that ONNX Runtime would make uint8; ``None`` where there is none."""
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
    """One model, a node after the other; the first user of a constant keeps it."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self._taken: set[ir.Value] = set()
        self._uint8: dict[ir.Value, ir.Value] = {}

    def separate(self, node: ir.Node, integers: ir.Value) -> int:
        """Give the node, and each user of a DequantizeLinear, operands of their own; returns how many copies that took."""
        array = constant(integers)
        assert array is not None
        if node.op_type != "DequantizeLinear":
            return self._give_own(node)
        result = node.outputs[0]
        others = list(result.uses())[0 if result.is_graph_output() else 1 :]
        if (len(others) + (integers in self._taken)) * array.nbytes > COPIES:
            self._make_uint8(node, integers, array)
            return 1
        copies = self._give_own(node)
        for use in others:
            with self.editor.replacing(node, after=True):
                clone = self.editor.clone_on(node, integers)
            clone.shape = result.shape
            producer = clone.producer()
            assert producer is not None
            copies += 1 + self._give_own(producer)
            use.node.replace_input_with(use.idx, clone)
        return copies

    def _give_own(self, node: ir.Node) -> int:
        """Copy the integers and the zero point where an earlier node has them; returns how many were copied."""
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
        """Store what a DequantizeLinear takes as uint8; nodes that share the integers share the result."""
        if integers not in self._uint8:
            self._uint8[integers] = self.editor.stored(_shifted(array), like=integers)
        zero_point = _operand(node, 2)
        least = np.asarray(0, np.int8) if zero_point is None else constant(zero_point)
        assert least is not None
        node.resize_inputs(3)
        node.replace_input_with(0, self._uint8[integers])
        node.replace_input_with(2, self.editor.stored(_shifted(least), like=zero_point))


def _shifted(array: Array) -> Array:
    return (array.astype(np.int16) + SHIFT).astype(np.uint8)
