"""Elements picked by their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Along, Attribute, Context, Implicit, Operator, Raw, handler, out, spelled
from onnx_tflite_plugin.api.axes import letters
from op_handlers.operands import any_order, as_int64


def batch_dims(op: Operator) -> int:
    """Leading axes that input and indices share."""
    shared = int(op.options.batch_dims)
    return shared + op[1].rank if shared < 0 else shared


def picked_axis(op: Operator) -> int:
    return int(op.options.axis) % op[0].rank


def picked(op: Operator) -> str | None:
    """The axes of the indices take the place of the picked one; those it shares with the indices stay in front."""
    names, axis, shared = letters(op[0].rank), picked_axis(op), batch_dims(op)
    before, after = names[:axis], names[axis + 1 :]
    if shared:
        own = letters(op[1].rank - shared, "x")
        return spelled([names, [*names[:shared], *own]], [*before, *own, *after])
    if op[1].rank > 1:
        return None
    return spelled([names, None], [*before, *names[axis : axis + op[1].rank], *after])


def picking(op: Operator) -> Attribute | Implicit:
    """GatherND wants what batches share in front and the picked axis next; Gather takes any order."""
    axis, shared = picked_axis(op), batch_dims(op)
    if not shared:
        return any_order(op, (other for other in range(op[0].rank) if other != axis))
    names = letters(op[0].rank)
    own, rest = letters(op[1].rank - shared, "x"), [*names[shared:axis], *names[axis + 1 :]]
    return Implicit(
        onnx={0: " ".join([*names[:shared], names[axis], *rest]), out(0): " ".join([*names[:shared], *own, *rest])}
    )


def along(op: Operator) -> Along | None:
    return Along("Gather", f"a{picked_axis(op)}") if op[1].rank == 1 and not batch_dims(op) else None


@handler(
    "GATHER", max_version=8, layout=picking, axes=picked, along=along, quantization=Raw(shift_safe=True, onnx="Gather")
)
def gather(ctx: Context, x: Any, indices: Any) -> Any:
    """Gather; with batch dimensions GatherND on indices of one number each."""
    shared = batch_dims(ctx.op)
    if not shared:
        wide = indices if ctx.op[1].dtype in ("int32", "int64") else as_int64(ctx, 1, indices)
        return ctx.ops.Gather(x, wide, axis=ctx.axis(ctx.options.axis))
    places = as_int64(ctx, 1, indices)
    each = places[..., None] if isinstance(places, np.ndarray) else ctx.ops.Unsqueeze(places, [-1])
    return ctx.ops.GatherND(x, each, batch_dims=shared)
