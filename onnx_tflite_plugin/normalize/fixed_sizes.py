"""Checks that the sizes of an operator's tensors may change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.graph.model_metadata import read_states
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Dims, Tensor


def check_resizable(bound: Bound, changed: Collection[Tensor]) -> None:
    """Raise Refusal if an operand cannot have another size."""
    op, declared = bound.op, bound.declared
    if declared.accesses_states:
        raise Refusal("the operator reads or writes a state, which has a fixed shape")
    per_axis_slots = {*declared.axis_number_slots, *declared.indexed_by_axis}
    for slot, tensor in enumerate(op.inputs):
        if slot in per_axis_slots and any(tensor is not None and tensor.index == resized.index for resized in changed):
            raise Refusal(f"operand {slot} has an entry per axis of another operand")


def check_states(model: ir.Model, shapes: Sequence[Dims | None]) -> None:
    """Raise Refusal if a state would have another or unknown shape after a run.

    ``shapes``: shapes of the graph outputs, in order.
    """
    positions = {str(value.name): position for position, value in enumerate(model.graph.outputs)}
    for state in read_states(model.metadata_props):
        new_shape = shapes[positions[state.output]]
        if new_shape != state.shape:
            text = "of unknown shape" if new_shape is None else f"of shape {list(new_shape)}"
            raise Refusal(f"the operator's state of shape {list(state.shape)} would be {text} after a run")


def check_scales(tensor: Tensor, dims: Dims) -> None:
    """Raise Refusal if the number of scales is not the size of their axis."""
    quantization = affine(tensor)
    if quantization is None or not quantization.per_axis:
        return
    if dims[quantization.axis : quantization.axis + 1] != (len(quantization.scale),):
        raise Refusal(f"{tensor.name!r} has {len(quantization.scale)} scales along axis {quantization.axis}")
