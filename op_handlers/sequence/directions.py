"""Sequences in both directions: what their operators declare, and outputs beside each other or apart.

The second direction sees the input, or in its place the auxiliary input where that has no weights of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Context, Decline, Implicit, Instance, Operator, Value, out, spelled


def auxiliary_slot(op: Operator) -> int:
    """The auxiliary input's, of the 48 operands of LSTMs or the 12 of layers without gates."""
    return 39 if len(op.inputs) > 12 else 9


def time_first_both(at: Instance) -> Implicit:
    """All sequences in ONNX's order."""
    op, slot = at.op, auxiliary_slot(at.op)
    orders = {0: "t b i", out(0): "t b o"}
    if op.tensor(slot) is not None:
        orders[slot] = "t b a"
    if len(op.outputs) > 1:
        orders[out(1)] = "t b p"
    return Implicit(orders)


def both_axes(at: Instance) -> str:
    op, slot = at.op, auxiliary_slot(at.op)
    first = ["t", "b"] if op.options.time_major else ["b", "t"]
    auxiliary = [*[None] * (slot - 1), [*first, "a"]] if op.tensor(slot) is not None else []
    return spelled([[*first, "i"], *auxiliary], *([*first, letter] for letter in "op"[: len(op.outputs)]))


def both_ways(op: Operator, forward: int, backward: int) -> Decline | None:
    """What the kernels refuse of outputs and the auxiliary input, whose weights begin at these slots, or misread."""
    auxiliary = op.tensor(auxiliary_slot(op))
    weighted = [op.tensor(slot) is not None for slot in (forward, backward)]
    wanted = 1 if op.options.merge_outputs else 2
    if len(op.outputs) != wanted or any(tensor is None or tensor.rank != 3 for tensor in op.outputs):
        return Decline(f"it has {len(op.outputs)} outputs of some rank, where LiteRT gives {wanted} of rank 3")
    if weighted[0] != weighted[1]:
        return Decline("only one of its directions has weights for the auxiliary input, which LiteRT refuses")
    if any(weighted) and auxiliary is None:
        return Decline("it has weights for an auxiliary input and no such input, which LiteRT refuses")
    if auxiliary is not None and (auxiliary.dtype != "float32" or auxiliary.rank != 3):
        return Decline(
            f"its auxiliary input is {auxiliary.dtype} of rank {auxiliary.rank}, where LiteRT takes a sequence"
        )
    return None


def as_wide(op: Operator) -> Decline | None:
    """Whether the auxiliary input, where there is one, has the size of the input."""
    auxiliary = op.tensor(auxiliary_slot(op))
    if auxiliary is None or auxiliary.shape[-1] == op[0].shape[-1]:
        return None
    return Decline("its auxiliary input is not as wide as its input, which LiteRT's kernel takes it for")


def apart(ctx: Context, value: Value, directions: int, axis: int) -> Sequence[Value]:
    """Each direction's own, without the axis of directions."""
    if directions == 1:
        return [ctx.ops.Squeeze(value, [axis])]
    parts = ctx.ops.Split(value, [1] * directions, axis=axis, outputs=directions)
    return [ctx.ops.Squeeze(part, [axis]) for part in parts]


def side_by_side(ctx: Context, outputs: Sequence[Value]) -> Value | tuple[Value, ...]:
    """The outputs of both directions, (T, B, U) each, as one along the last axis, or as two."""
    return ctx.ops.Concat(*outputs, axis=2) if ctx.options.merge_outputs else tuple(outputs)
