"""What recurrent operators have in common: activations, states that begin at zero, operands of several directions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Array,
    Context,
    Decline,
    FusedActivation,
    Operator,
    Ops,
    Quantization,
    Value,
)

STEPWISE = FusedActivation(ActivationKernel.ELEMENTWISE, inside=True)
"""Fused activation of layers that apply it in every step."""


def not_symmetric(op: Operator, slots: Iterable[int]) -> Decline | None:
    """The kernels read one scale and no zero point of their weights."""
    quantizations = [op[slot].quantization for slot in slots if op.tensor(slot) is not None]
    scales = [quantization for quantization in quantizations if isinstance(quantization, Quantization)]
    if any(scale.per_axis for scale in scales):
        return Decline("its weights have a scale per row, where LiteRT reads one for all; quantize with one scale")
    if any(any(scale.zero_point) for scale in scales):
        return Decline("its weights have zero points other than 0, which LiteRT does not read; quantize symmetrically")
    return None


def not_float(op: Operator) -> Decline | None:
    """Beside their weights the kernels of float32 read everything as float32, whatever it is."""
    for tensor in (*op.inputs, *op.outputs):
        weights = tensor is not None and tensor.constant and not tensor.is_variable
        if tensor is not None and tensor.dtype not in (("float32", "int8", "uint8") if weights else ("float32",)):
            return Decline(
                f"it computes with float32, and {tensor.name!r} is {tensor.dtype}, for which there is no kernel"
            )
    return None


def not_variable(op: Operator, slots: Iterable[int]) -> Decline | None:
    states = [op[slot] for slot in slots]
    if not all(state.is_variable for state in states):
        return Decline("its states are no variable tensors, which LiteRT insists on")
    shared = next((state for k, state in enumerate(states) if state in states[:k]), None)
    if shared is None:
        return None
    text = f"two of its states are one tensor, {shared.name!r}, as an old converter left them"
    return Decline(f"{text}, of which LiteRT makes other numbers than the network has; convert the original anew")


def unless_zero(ctx: Context, value: Value) -> Value | None:
    """A state as ONNX's recurrent operators take it; ``None`` where it is known to be what they begin with."""
    constant = ctx.known(value)
    return None if constant is not None and not constant.any() else value


def begun(ctx: Context, states: Sequence[Value]) -> Value | None:
    """The states of all directions, [directions, batch, n]; ``None`` where they are the zeros that ONNX begins with."""
    return None if all(unless_zero(ctx, state) is None for state in states) else viewed(ctx.ops, states)


def stacked(ops: Ops, parts: Sequence[Value | Array]) -> Value | Array:
    """One operand of each direction along a new first axis; an array where all are."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    return np.stack(arrays) if len(arrays) == len(parts) else viewed(ops, parts)


def viewed(ops: Ops, parts: Sequence[Value | Array]) -> Value:
    """The same where somebody else has the parts, too."""
    views = [ops.Unsqueeze(part, [0]) for part in parts]
    return ops.Concat(*views, axis=0) if len(views) > 1 else views[0]
