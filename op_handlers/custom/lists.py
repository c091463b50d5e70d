"""TensorFlow's tensor lists, which its converter leaves in recurrent layers: lowered to arrays with one more axis.

The shape and dtype of elements come from the file (``variant_tensors``), or from the operators in files of TensorFlow
before 2.13. A size that is left open is 1 until the first tensor is put into the list.
(tensorflow/core/kernels/list_kernels.h)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Instance, ListContents, Terminate, Value, handler, out
from op_handlers.custom.select.nodedef import node_of
from op_handlers.kernels.counted_loops import RESERVE, SET_ITEM
from op_handlers.kernels.operands import cast_to_int64


def contents(slot: int | None = None, axes: int = 0, shape: int | None = None) -> Callable[[Instance], ListContents]:
    """Return a function for ``list_contents=``: the dtype of the NodeDef, the sizes of the tensor in ``slot``, or in ``shape``.

    ``axes``: as many of the first axes of the tensor count tensors of the list. ``shape``: the operand that holds the sizes of a
    tensor, -1 for unknown ones.
    """

    def declare_contents(at: Instance) -> ListContents:
        dtype = node_of(at.op).dtype("element_dtype") or None
        if slot is not None and (tensor := at.op.tensor(slot)) is not None:
            dims = tensor.dims[axes:] if tensor.has_rank and tensor.rank >= axes else None
            return ListContents(dtype or tensor.dtype, dims)
        sizes = None if shape is None else at.op.constant(shape)
        if sizes is None or sizes.ndim != 1:  # -1 alone is an unknown rank
            return ListContents(dtype)
        return ListContents(dtype, tuple(int(size) if size >= 0 else None for size in sizes))

    return declare_contents


def check_known_contents(slot: int) -> Callable[[Instance], Decline | None]:
    """Return a Decline for a list whose elements the file does not describe."""

    def decline(at: Instance) -> Decline | None:
        if at.op[slot].dtype != "variant":
            return None
        return Decline(
            "the file does not store the shape and dtype of the list's elements",
            "export the model with TFLITE_BUILTINS alone",
        )

    return decline


@handler(
    RESERVE, max_version=1, layout=Terminate(), accepts=check_known_contents(out(0)), list_contents=contents(shape=0)
)
def reserve(ctx: Context, shape: Value, count: Value) -> Value:
    """Emit zeros for the reserved elements."""
    ops, sizes = ctx.ops, [size or 1 for size in ctx.op[out(0)].dims[1:]]
    number = cast_to_int64(ctx, 1, count)
    first = number.reshape(1) if isinstance(number, np.ndarray) else ops.Reshape(number, [1])
    return ops.Expand(np.zeros((), ctx.op[out(0)].dtype), ops.Concat(first, np.asarray(sizes, np.int64), axis=0))


@handler(SET_ITEM, max_version=1, layout=Terminate(), accepts=check_known_contents(0), list_contents=contents(2))
def set_item(ctx: Context, items: Value, index: Value, item: Value) -> Value:
    """Emit ScatterND of one row; dynamic sizes come from the item."""
    ops = ctx.ops
    if None in ctx.op[0].dims[1:]:
        items = ops.Expand(items, ops.Concat(ops.Slice(ops.Shape(items), [0], [1]), ops.Shape(item), axis=0))
    place = ops.Reshape(ops.Cast(index, to="int64"), [1, 1])
    return ops.ScatterND(items, place, ops.Unsqueeze(item, [0]))


@handler(
    "CUSTOM.FlexTensorListGetItem",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(0),
    list_contents=contents(out(0)),
)
def get_item(ctx: Context, items: Value, index: Value, shape: Value) -> Value:
    """Emit Gather of one row."""
    return ctx.ops.Gather(items, index, axis=0)


@handler(
    "CUSTOM.FlexTensorListFromTensor",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(out(0)),
    list_contents=contents(0, 1),
)
def from_tensor(ctx: Context, rows: Value, shape: Value) -> Value:
    """Return the rows unchanged."""
    return ctx.ops.Identity(rows)


@handler(
    "CUSTOM.FlexTensorListStack",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(0),
    list_contents=contents(out(0), 1),
)
def stack(ctx: Context, items: Value, shape: Value) -> Value:
    """Return the rows unchanged."""
    return ctx.ops.Identity(items)
