"""Copy shared int8 constants that ONNX Runtime converts to uint8.

Under ``session.x64quantprecision=1``, ONNX Runtime names each uint8 constant and zero point after its int8 original (s8_to_u8.h). It
fails to load the model if the name already exists. This happens if two nodes share an int8 constant, or if two nodes read one
DequantizeLinear, which ONNX Runtime then copies (ensure_unique_dq_for_node_unit.cc). ONNX Runtime does not convert constants with
magnitudes of at most 64.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.lowering.ir_values import tensor_value
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant
from onnx_tflite_plugin.rewrite.weights.dtypes import shift_to_uint8
from onnx_tflite_plugin.source.model import Array

MAX_GROWTH = 2**20
"""Maximum bytes of the copies of one constant. A larger constant is stored as uint8, which nodes may share."""

_INTEGER_SLOTS = {"DequantizeLinear": (0, 2), "MatMulInteger": (1, 3), "QLinearConv": (3, 5), "QLinearMatMul": (3, 5)}
"""Slots of the integers and of their zero point, by ONNX operator."""
_MAX_UNCHANGED = 64  # maximum magnitude of constants that ONNX Runtime does not convert


class SeparateConstants(InPlacePass):
    """Copy int8 constants that several nodes share, or convert them to uint8."""

    def call(self, model: ir.Model) -> PassResult:
        constants = [
            (node, value) for node in model.graph.all_nodes() if (value := _convertible_constant(node)) is not None
        ]
        separation = _Separation(Editor(model))
        modified = sum(separation.separate(node, value) for node, value in constants) > 0
        if modified:
            separation.editor.remove_unused()
        return PassResult(model, modified)


def _convertible_constant(node: ir.Node) -> ir.Value | None:
    """Return the constant operand that ONNX Runtime would convert to uint8.

    Return ``None`` if the node has no such operand.
    """
    if node.domain or node.op_type not in _INTEGER_SLOTS or "block_size" in node.attributes:
        return None
    value, zero_point = (_operand(node, slot) for slot in _INTEGER_SLOTS[node.op_type])
    array = None if value is None or value.dtype != ir.DataType.INT8 else constant(value)
    if array is None or (zero_point is not None and constant(zero_point) is None):
        return None
    return value if np.abs(array.astype(np.int16)).max(initial=0) > _MAX_UNCHANGED else None


def _operand(node: ir.Node, slot: int) -> ir.Value | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


class _Separation:
    """Copies shared constants, node by node. The first user keeps the original."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self._used_constants: set[ir.Value] = set()
        self._uint8_constants: dict[ir.Value, ir.Value] = {}

    def separate(self, node: ir.Node, integers: ir.Value) -> int:
        """Give a node its own integers and zero point; return the number of copies.

        A DequantizeLinear is copied for each additional user.
        """
        array = constant(integers)
        assert array is not None
        if node.op_type != "DequantizeLinear":
            return self._separate_operands(node)
        result = node.outputs[0]
        other_uses = list(result.uses())[0 if result.is_graph_output() else 1 :]
        if (len(other_uses) + (integers in self._used_constants)) * array.nbytes > MAX_GROWTH:
            self._convert_to_uint8(node, integers, array)
            return 1
        copies = self._separate_operands(node)
        for use in other_uses:
            with self.editor.replacing(node, after=True):
                clone = self.editor.clone_on(node, integers)
            clone.shape = result.shape
            producer = clone.producer()
            assert producer is not None
            copies += 1 + self._separate_operands(producer)
            use.node.replace_input_with(use.idx, clone)
        return copies

    def _separate_operands(self, node: ir.Node) -> int:
        """Copy integers and zero point if an earlier node uses them.

        Return the number of copies.
        """
        copies = 0
        for slot in _INTEGER_SLOTS[node.op_type]:
            value = _operand(node, slot)
            if value is None:
                continue
            if value in self._used_constants:
                array = constant(value)
                assert array is not None
                value = tensor_value(array, self.editor.emitter.names.unique(value.name or "constant"))
                self.editor.register([value])
                node.replace_input_with(slot, value)
                copies += 1
            self._used_constants.add(value)
        return copies

    def _convert_to_uint8(self, node: ir.Node, integers: ir.Value, array: Array) -> None:
        """Store a DequantizeLinear's integers as uint8, for all nodes that share them."""
        if integers not in self._uint8_constants:
            self._uint8_constants[integers] = self.editor.store(shift_to_uint8(array), like=integers)
        zero_point = _operand(node, 2)
        old_zero_point = np.asarray(0, np.int8) if zero_point is None else constant(zero_point)
        assert old_zero_point is not None
        node.resize_inputs(3)
        node.replace_input_with(0, self._uint8_constants[integers])
        node.replace_input_with(2, self.editor.store(shift_to_uint8(old_zero_point), like=zero_point))
