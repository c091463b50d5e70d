"""Checks and operands of recurrent operators: weights, states, stacked directions."""

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

PER_STEP = FusedActivation(ActivationKernel.ELEMENTWISE, in_lowering=True)
"""Fused activation that the layer applies in each time step."""


def check_symmetric_weights(op: Operator, slots: Iterable[int]) -> Decline | None:
    """Return a Decline unless weights are symmetric with one scale, as kernels assume."""
    quantizations = [op[slot].quantization for slot in slots if op.tensor(slot) is not None]
    parameters = [quantization for quantization in quantizations if isinstance(quantization, Quantization)]
    if any(quantization.per_axis for quantization in parameters):
        return Decline(
            "the weights have one scale per row, but LiteRT reads one scale for all; quantize with one scale"
        )
    if any(any(quantization.zero_point) for quantization in parameters):
        return Decline("the weights have nonzero zero points, which LiteRT ignores; quantize symmetrically")
    return None


def check_float_operands(op: Operator) -> Decline | None:
    """Return a Decline if a tensor is not float32; constant weights may be 8-bit."""
    for tensor in (*op.inputs, *op.outputs):
        is_weight = tensor is not None and tensor.is_constant and not tensor.is_variable
        if tensor is not None and tensor.dtype not in (("float32", "int8", "uint8") if is_weight else ("float32",)):
            return Decline(f"{tensor.name!r} has dtype {tensor.dtype}, but LiteRT's kernel requires float32")
    return None


def check_variable_states(op: Operator, slots: Iterable[int]) -> Decline | None:
    """Return a Decline unless the states are distinct variable tensors."""
    states = [op[slot] for slot in slots]
    if not all(state.is_variable for state in states):
        return Decline("the states are not variable tensors, which LiteRT requires")
    shared_state = next((state for k, state in enumerate(states) if state in states[:k]), None)
    if shared_state is None:
        return None
    fact = f"two states share tensor {shared_state.name!r}, a bug of an old converter"
    return Decline(f"{fact}, so LiteRT's results differ from the original network; convert the original again")


def nonzero_state(ctx: Context, value: Value) -> Value | None:
    """Return a state, or ``None`` for constant zeros, the default in ONNX."""
    constant = ctx.constant_array(value)
    return None if constant is not None and not constant.any() else value


def stack_initial_states(ctx: Context, states: Sequence[Value]) -> Value | None:
    """Return the states of all directions, ``[directions, batch, n]``.

    Return ``None`` if all are constant zeros, the default in ONNX.
    """
    return None if all(nonzero_state(ctx, state) is None for state in states) else stack_values(ctx.ops, states)


def stack_directions(ops: Ops, operands: Sequence[Value | Array]) -> Value | Array:
    """Return the operands of all directions, stacked along a new first axis.

    The result is an array if all operands are arrays.
    """
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    return np.stack(arrays) if len(arrays) == len(operands) else stack_values(ops, operands)


def stack_values(ops: Ops, values: Sequence[Value | Array]) -> Value:
    """Emit nodes that stack values along a new first axis."""
    expanded = [ops.Unsqueeze(value, [0]) for value in values]
    return ops.Concat(*expanded, axis=0) if len(expanded) > 1 else expanded[0]
