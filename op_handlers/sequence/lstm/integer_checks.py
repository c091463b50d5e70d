"""Checks and scales of the LSTM kernel with 8-bit activations and 16-bit cells."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Decline, Operator, Quantization, Tensor, out
from op_handlers.kernels.sigmoids import power_of_two_exponent
from op_handlers.sequence.lstm.cell import (
    CELLS,
    HIDDEN,
    OUTPUT,
    PROJECTION,
    PROJECTION_BIAS,
    gates_of,
    has_layer_norm,
    has_peepholes,
)


def scale_and_zero_point(tensor: Tensor | None) -> tuple[float, int]:
    """Return a tensor's scale and zero point.

    The scale is 0 if the tensor has no scale, or several.
    """
    quantization = tensor.quantization if tensor is not None else None
    if not isinstance(quantization, Quantization) or quantization.per_axis:
        return 0.0, 0
    return quantization.scale[0], quantization.zero_point[0]


def check_integer_lstm(op: Operator) -> Decline | None:
    """Return a Decline for operands that the integer kernel refuses or misreads."""
    if len(op.intermediates) != 5:
        fact = f"{len(op.intermediates)} intermediate tensors; the kernel with 16-bit gates has 5"
        return Decline(f"{fact}; the kernel with 8-bit gates, which has 12, confuses the gates' scales; quantize again")
    for slot, dtype in {HIDDEN: "int8", CELLS: "int16", out(0): "int8"}.items():
        if op[slot].dtype != dtype:
            return Decline(f"{op[slot].name!r} has dtype {op[slot].dtype}; the integer kernel reads {dtype}")
    slots = [slot for gate in gates_of(op) for slot in gate if slot is not None and op.tensor(slot) is not None]
    slots += [slot for slot in (PROJECTION, PROJECTION_BIAS) if op.tensor(slot) is not None]
    for slot in slots:
        if not op[slot].is_constant:
            return Decline(f"operand {op[slot].name!r} must be constant for integer kernels")
    scaled_slots = (0, HIDDEN, CELLS, out(0), *(slot for slot in slots if op[slot].dtype != "int32"))
    for tensor in (*(op[slot] for slot in scaled_slots), op.intermediates[4], *gate_sum_tensors(op)):
        if not scale_and_zero_point(tensor)[0]:
            return Decline(f"{tensor.name if tensor else 'an intermediate'!r} must have one scale")
    if wide_weights := next((op[slot] for slot in slots if op[slot].rank == 2 and op[slot].dtype != "int8"), None):
        return Decline(f"weights {wide_weights.name!r} have dtype {wide_weights.dtype}; the integer kernel reads int8")
    exponent = power_of_two_exponent(scale_and_zero_point(op[CELLS])[0])
    if exponent is None:
        return Decline("the scale of the cell state is not a power of two, which LiteRT requires")
    if not -15 <= exponent <= -9:
        return Decline(
            f"the scale of the cell state is 2^{exponent}, not between 2^-15 and 2^-9, the range of LiteRT's tanh",
            "export with dynamic range quantization, or quantize with data whose cell states reach 0.5 to 64",
        )
    if has_peepholes(op) and op[OUTPUT.recurrent].shape[0] != op[OUTPUT.recurrent].shape[1]:
        return Decline("with peepholes and a projection to another size, the kernel confuses cell states")
    return None


def gate_sum_tensors(op: Operator) -> Sequence[Tensor | None]:
    """Return the intermediate tensor of each normalized gate.

    The tensor has the scale of the gate's sums.
    """
    return [op.intermediates[gate.weights - 1] for gate in gates_of(op)] if has_layer_norm(op) else []
