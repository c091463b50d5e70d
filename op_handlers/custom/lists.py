"""TensorFlow's tensor lists, lowered to arrays with one more axis.

TensorFlow's converter emits them for recurrent layers. The shape and dtype of elements come from the file
(``variant_tensors``), or from the operators in files written by TensorFlow versions before 2.13. A dynamic dimension has size 1 until
the first tensor is put into the list (tensorflow/core/kernels/list_kernels.h).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_tflite_plugin.api import Context, Decline, Instance, ListContents, Terminate, Value, handler, out
from op_handlers.custom.select.nodedef import node_of
from op_handlers.kernels.counted_loops import RESERVE, SET_ITEM
from op_handlers.kernels.operands import cast_to_int64


def contents_from(
    slot: int | None = None, leading_axes: int = 0, shape_slot: int | None = None
) -> Callable[[Instance], ListContents]:
    """Return a function for ``list_contents=`` that describes the list's elements.

    The dtype is read from the NodeDef. The shape of an element is read from one of two tensors. The tensor in ``slot`` has
    this shape after its first ``leading_axes`` axes. The operand in ``shape_slot`` contains the sizes, and -1 for a
    dynamic dimension.
    """

    def declare_contents(instance: Instance) -> ListContents:
        dtype = node_of(instance.op).dtype("element_dtype") or None
        if slot is not None and (tensor := instance.op.tensor(slot)) is not None:
            dims = tensor.dims[leading_axes:] if tensor.has_rank and tensor.rank >= leading_axes else None
            return ListContents(dtype or tensor.dtype, dims)
        sizes = None if shape_slot is None else instance.op.constant(shape_slot)
        if sizes is None or sizes.ndim != 1:  # a scalar -1: unknown rank
            return ListContents(dtype)
        return ListContents(dtype, tuple(int(size) if size >= 0 else None for size in sizes))

    return declare_contents


def check_known_contents(slot: int) -> Callable[[Instance], Decline | None]:
    """Return a check that declines a list whose elements the file does not describe."""

    def decline(instance: Instance) -> Decline | None:
        if instance.op[slot].dtype != "variant":
            return None
        return Decline(
            "the file does not store the shape and dtype of the list's elements",
            "export the model with TFLITE_BUILTINS only",
        )

    return decline


@handler(
    RESERVE,
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(out(0)),
    list_contents=contents_from(shape_slot=0),
)
def reserve(ctx: Context, shape: Value, count: Value) -> Value:
    """Emit zeros for the reserved elements."""
    ops, sizes = ctx.ops, [size or 1 for size in ctx.op[out(0)].dims[1:]]
    element_count = cast_to_int64(ctx, 1, count)
    first_size = element_count.reshape(1) if isinstance(element_count, np.ndarray) else ops.Reshape(element_count, [1])
    return ops.Expand(np.zeros((), ctx.op[out(0)].dtype), ops.Concat(first_size, np.asarray(sizes, np.int64), axis=0))


@handler(SET_ITEM, max_version=1, layout=Terminate(), accepts=check_known_contents(0), list_contents=contents_from(2))
def set_item(ctx: Context, items: Value, index: Value, item: Value) -> Value:
    """Emit ScatterND of one row.

    Dynamic dimensions of the list get the sizes of the item. A list that may grow is first padded with
    zeros up to the index.
    """
    ops = ctx.ops
    if None in ctx.op[0].dims[1:]:
        items = ops.Expand(items, ops.Concat(ops.Slice(ops.Shape(items), [0], [1]), ops.Shape(item), axis=0))
    position = ops.Reshape(ops.Cast(index, to="int64"), [1, 1])
    if ctx.op.custom_options and node_of(ctx.op).flag("resize_if_index_out_of_bounds"):
        count, required = ops.Slice(ops.Shape(items), [0], [1]), ops.Add(ops.Reshape(position, [1]), [1])
        missing = ops.Max(ops.Sub(required, count), np.zeros(1, np.int64))
        rank = len(ctx.op[0].dims)
        pads = ops.Concat(np.zeros(rank, np.int64), missing, np.zeros(rank - 1, np.int64), axis=0)
        items = ops.Pad(items, pads, np.zeros((), ctx.op[2].dtype), mode="constant")
    return ops.ScatterND(items, position, ops.Unsqueeze(item, [0]))


@handler(
    "CUSTOM.FlexTensorListGetItem",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(0),
    list_contents=contents_from(out(0)),
)
def get_item(ctx: Context, items: Value, index: Value, shape: Value) -> Value:
    """Emit Gather of one row."""
    return ctx.ops.Gather(items, index, axis=0)


@handler(
    "CUSTOM.FlexTensorListFromTensor",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(out(0)),
    list_contents=contents_from(0, leading_axes=1),
)
def from_tensor(ctx: Context, rows: Value, shape: Value) -> Value:
    """Return the rows unchanged."""
    return ctx.ops.Identity(rows)


@handler(
    "CUSTOM.FlexTensorListStack",
    max_version=1,
    layout=Terminate(),
    accepts=check_known_contents(0),
    list_contents=contents_from(out(0), leading_axes=1),
)
def stack(ctx: Context, items: Value, shape: Value) -> Value:
    """Return the rows unchanged."""
    return ctx.ops.Identity(items)


@handler("CUSTOM.FlexTensorListLength", max_version=1, layout=Terminate(), accepts=check_known_contents(0))
def length(ctx: Context, items: Value) -> Value:
    """Emit the size of the first axis."""
    ops = ctx.ops
    return ops.Cast(ops.Reshape(ops.Slice(ops.Shape(items), [0], [1]), np.zeros(0, np.int64)), to="int32")
