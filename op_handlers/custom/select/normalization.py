"""Batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Implicit,
    Instance,
    Operator,
    Value,
    format_axes,
    handler,
    out,
)
from op_handlers.custom.select.image import image_axes
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import acceptance_check, uniform_types

CHANNEL_OPERANDS = 4
"""Number of per-channel operands: scale, offset, mean, variance."""


def axis_letters(instance: Instance) -> list[str]:
    """Return the letters of the image's axes in the layout of the file."""
    spatial_letters = list("dhw")[5 - instance.op[0].rank :]
    return (
        ["n", "c", *spatial_letters]
        if image_axes(node_of(instance.op), instance.op[0].rank).channels_first
        else ["n", *spatial_letters, "c"]
    )


def batch_norm_axes(instance: Instance) -> str:
    """Return the axes of operands and results.

    The image is followed by four per-channel results, and by a result that only training uses.
    """
    image, further_results = axis_letters(instance), len(instance.op.outputs) - 1
    channel_results = min(further_results, 4)
    training_results = [["r"]] * (further_results - channel_results)
    return format_axes([image, *[["c"]] * CHANNEL_OPERANDS], image, *[["c"]] * channel_results, *training_results)


def batch_norm_layout(instance: Instance) -> Implicit:
    spatial_letters = [name for name in axis_letters(instance) if name not in "nc"]
    layout = " ".join(["n", "c", *spatial_letters])
    return Implicit(onnx={0: layout, out(0): layout})


def check_inference(instance: Instance) -> Decline | None:
    node = node_of(instance.op)
    if instance.op[0].rank not in (4, 5):
        return Decline(f"the image has rank {instance.op[0].rank}; only 4 and 5 are supported")
    if node.flag("is_training", True):
        return Decline(
            "is_training is set, so the operator normalizes each batch by its own mean and variance",
            "export the model for inference",
        )
    return None


def normalize(op: Operator, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Sequence[Array]:
    node = node_of(op)
    trailing_axes = [1] * (x.ndim - 2) if image_axes(node, x.ndim).channels_first else []
    factors, offsets, means, variances = (a.reshape(-1, *trailing_axes) for a in (scale, offset, mean, variance))
    epsilon = np.float32(node.real("epsilon", 1e-4))
    y = (x - means) / np.sqrt(variances + epsilon) * factors + offsets
    unused = [np.zeros(tensor.shape if tensor is not None else 0, np.float32) for tensor in op.outputs[5:]]
    return [y.astype(x.dtype), *(mean, variance, mean, variance)[: len(op.outputs) - 1], *unused]


def batch_norm_handler(name: str) -> Any:
    """Return the handler of batch normalization for inference."""

    @handler(
        PREFIX + name,
        max_version=1,
        layout=batch_norm_layout,
        axes=batch_norm_axes,
        types=uniform_types("float32", 5)
        if name == "FusedBatchNorm"
        else "float16 float32, float32, float32, float32, float32",
        accepts=acceptance_check(5, accepts=check_inference),
        kernel=normalize,
    )
    def lower(
        ctx: Context, x: Value, scale: Value, offset: Value, mean: Value, variance: Value
    ) -> Sequence[Value | None]:
        """Emit BatchNormalization."""
        ops, is_float16 = ctx.ops, ctx.op[0].dtype == "float16"
        image = ops.Cast(x, to="float32") if is_float16 else x
        epsilon = node_of(ctx.op).real("epsilon", 1e-4)
        y = ops.BatchNormalization(image, scale, offset, mean, variance, epsilon=epsilon)
        results: list[Value | None] = [ops.Cast(y, to="float16") if is_float16 else y]
        for k, value in enumerate((mean, variance, mean, variance), 1):
            results.append(ops.Identity(value) if k < len(ctx.op.outputs) and ctx.is_used(k) else None)
        results.extend(  # outputs that only training computes
            None if tensor is None else ctx.constant_value(np.zeros(tensor.shape, np.float32))
            for tensor in ctx.op.outputs[5:]
        )
        return results[: len(ctx.op.outputs)]

    return lower


fused_batch_norm = batch_norm_handler("FusedBatchNorm")
fused_batch_norm_v2 = batch_norm_handler("FusedBatchNormV2")
fused_batch_norm_v3 = batch_norm_handler("FusedBatchNormV3")
