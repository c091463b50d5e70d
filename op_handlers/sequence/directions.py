"""Declarations and outputs of bidirectional recurrent operators.

If the auxiliary input has no separate weights, the backward direction reads it instead of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Context, Decline, Implicit, Instance, Operator, Value, format_axes, out


def auxiliary_slot(op: Operator) -> int:
    """Return the slot of the auxiliary input.

    LSTMs have 48 operands, layers without gates have 12.
    """
    return 39 if len(op.inputs) > 12 else 9


def bidirectional_layout(at: Instance) -> Implicit:
    """Return ONNX's layout of all sequences, time first."""
    op, slot = at.op, auxiliary_slot(at.op)
    layouts = {0: "t b i", out(0): "t b o"}
    if op.tensor(slot) is not None:
        layouts[slot] = "t b a"
    if len(op.outputs) > 1:
        layouts[out(1)] = "t b p"
    return Implicit(layouts)


def bidirectional_axes(at: Instance) -> str:
    """Return the axes of input, auxiliary input and outputs."""
    op, slot = at.op, auxiliary_slot(at.op)
    leading_axes = ["t", "b"] if op.options.time_major else ["b", "t"]
    auxiliary = [*[None] * (slot - 1), [*leading_axes, "a"]] if op.tensor(slot) is not None else []
    return format_axes(
        [[*leading_axes, "i"], *auxiliary], *([*leading_axes, letter] for letter in "op"[: len(op.outputs)])
    )


def check_directions(op: Operator, forward: int, backward: int) -> Decline | None:
    """Return a Decline for outputs or auxiliary inputs that the kernels misread.

    ``forward``, ``backward``: slots of the auxiliary input's weights.
    """
    auxiliary = op.tensor(auxiliary_slot(op))
    has_weights = [op.tensor(slot) is not None for slot in (forward, backward)]
    output_count = 1 if op.options.merge_outputs else 2
    if len(op.outputs) != output_count or any(tensor is None or tensor.rank != 3 for tensor in op.outputs):
        return Decline(f"{len(op.outputs)} outputs; LiteRT computes {output_count} of rank 3")
    if has_weights[0] != has_weights[1]:
        return Decline("only one direction has weights for the auxiliary input, which LiteRT refuses")
    if any(has_weights) and auxiliary is None:
        return Decline("the operator has weights for an auxiliary input but no auxiliary input, which LiteRT refuses")
    if auxiliary is not None and (auxiliary.dtype != "float32" or auxiliary.rank != 3):
        return Decline(
            f"the auxiliary input is {auxiliary.dtype} of rank {auxiliary.rank}; LiteRT requires a float32 sequence"
        )
    return None


def check_auxiliary_size(op: Operator) -> Decline | None:
    """Return a Decline unless the auxiliary input has the size of the input."""
    auxiliary = op.tensor(auxiliary_slot(op))
    if auxiliary is None or auxiliary.shape[-1] == op[0].shape[-1]:
        return None
    return Decline("auxiliary input and input differ in size, but LiteRT's kernel assumes equal sizes")


def split_directions(ctx: Context, value: Value, directions: int, axis: int) -> Sequence[Value]:
    """Return the value of each direction, without the axis of directions."""
    if directions == 1:
        return [ctx.ops.Squeeze(value, [axis])]
    slices = ctx.ops.Split(value, [1] * directions, axis=axis, outputs=directions)
    return [ctx.ops.Squeeze(part, [axis]) for part in slices]


def merge_outputs(ctx: Context, outputs: Sequence[Value]) -> Value | tuple[Value, ...]:
    """Return the outputs of both directions, [T, B, U] each.

    If the option merge_outputs is set, the outputs are concatenated along the last axis.
    """
    return ctx.ops.Concat(*outputs, axis=2) if ctx.options.merge_outputs else tuple(outputs)
