"""Pooling of volumes (depth, height and width)."""

from __future__ import annotations

from onnx_tflite_plugin.api import (
    Context,
    Implicit,
    Instance,
    Padding,
    Value,
    handler,
    out,
    padding_attributes,
)
from op_handlers.custom.select.image import FLOAT16_OR_FLOAT32, image_axes, padding_mode, pool_kernel, spatial_entries
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import HandlerDecorator, acceptance_check, rank_check, uniform_types


def volume_axes(instance: Instance) -> str:
    """Return the axes of a volume and of its pooled result."""
    return "n c d h w -> n c z y x" if image_axes(node_of(instance.op), 5).channels_first else "n d h w c -> n z y x c"


def pool_handler(name: str, *, largest: bool) -> HandlerDecorator:
    """Return a decorator that declares a pool over depth, height and width."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Implicit(onnx={0: "n c d h w", out(0): "n c z y x"}),
        axes=volume_axes,
        types=uniform_types(FLOAT16_OR_FLOAT32),
        accepts=acceptance_check(1, accepts=rank_check({0: 5, out(0): 5})),
        kernel=pool_kernel(largest),
    )


class WindowAttributes(Padding):
    kernel_shape: list[int]
    strides: list[int]


def window_attributes(ctx: Context) -> WindowAttributes:
    node = node_of(ctx.op)
    axes = image_axes(node, 5)
    kernel, strides = (spatial_entries(node, name, axes) for name in ("ksize", "strides"))
    pads = padding_attributes(padding_mode(node), ctx.shape(0)[2:], kernel, strides, [1] * 3)
    return {"kernel_shape": kernel, "strides": strides, **pads}


@pool_handler("MaxPool3D", largest=True)
def max_pool_3d(ctx: Context, x: Value) -> Value:
    """Emit MaxPool over depth, height and width."""
    return ctx.ops.MaxPool(x, **window_attributes(ctx))


@pool_handler("AvgPool3D", largest=False)
def avg_pool_3d(ctx: Context, x: Value) -> Value:
    """Emit AveragePool over depth, height and width, without padding in the mean."""
    return ctx.ops.AveragePool(x, count_include_pad=0, **window_attributes(ctx))
