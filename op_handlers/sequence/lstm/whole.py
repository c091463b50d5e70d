"""Which LSTMs the kernel of 8 bit activations and 16 bit cells takes, and the scales that it reads."""

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
    normalizes,
    peeps,
)


def step_of(tensor: Tensor | None) -> tuple[float, int]:
    """The one scale of a tensor and its zero point; a scale of 0 where it has none, or several."""
    quantization = tensor.quantization if tensor is not None else None
    if not isinstance(quantization, Quantization) or quantization.per_axis:
        return 0.0, 0
    return quantization.scale[0], quantization.zero_point[0]


def whole(op: Operator) -> Decline | None:
    """What the integer kernel refuses, or reads as something else than it is."""
    if len(op.intermediates) != 5:
        text = f"it has {len(op.intermediates)} intermediate tensors, the kernel with 16 bit gates 5"
        return Decline(f"{text}; that with 8 bit gates (12) mixes up the scales of its gates; quantize anew")
    for slot, dtype in {HIDDEN: "int8", CELLS: "int16", out(0): "int8"}.items():
        if op[slot].dtype != dtype:
            return Decline(f"{op[slot].name!r} is {op[slot].dtype}, which the integer kernel takes for {dtype}")
    slots = [slot for gate in gates_of(op) for slot in gate if slot is not None and op.tensor(slot) is not None]
    slots += [slot for slot in (PROJECTION, PROJECTION_BIAS) if op.tensor(slot) is not None]
    for slot in slots:
        if not op[slot].constant:
            return Decline(f"its operand {op[slot].name!r} must be a constant where it works on integers")
    scales = (0, HIDDEN, CELLS, out(0), *(slot for slot in slots if op[slot].dtype != "int32"))
    for tensor in (*(op[slot] for slot in scales), op.intermediates[4], *between(op)):
        if not step_of(tensor)[0]:
            return Decline(f"{tensor.name if tensor else 'an intermediate'!r} must have one scale")
    if wide := next((op[slot] for slot in slots if op[slot].rank == 2 and op[slot].dtype != "int8"), None):
        return Decline(f"its weights {wide.name!r} are {wide.dtype}, which the integer kernel takes for int8")
    exponent = power_of_two_exponent(step_of(op[CELLS])[0])
    if exponent is None:
        return Decline("the scale of its cells is no power of two, which LiteRT insists on")
    if not -15 <= exponent <= -9:
        return Decline(
            "the scale of its cells is not from 2^-15 to 2^-9, for which LiteRT has a tanh; else it takes none"
        )
    if peeps(op) and op[OUTPUT.recurrent].shape[0] != op[OUTPUT.recurrent].shape[1]:
        return Decline("it has peepholes and projects to another size, where the kernel mixes up its cells")
    return None


def between(op: Operator) -> Sequence[Tensor | None]:
    """What holds the scales of the gates' sums where they are normalized: as many intermediates as there may be gates."""
    return [op.intermediates[gate.weights - 1] for gate in gates_of(op)] if normalizes(op) else []
