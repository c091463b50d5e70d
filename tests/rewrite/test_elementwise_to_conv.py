"""Rules that merge scales, offsets and clips into convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import (
    BuildNetwork,
    Network,
    float_input,
    image,
)
from tests.rewrite.harness import Case, declines, graph, rule_test


def conv_relu(net: Network, features: int = 16, batch: int | None = 1, size: tuple[int, int] = (5, 7)) -> TensorRef:
    """Build a convolution with its activation."""
    return net.conv(float_input(net, batch, *size, 3), features, (1, 1), fused_activation_function="RELU")


# --- scale_offset_to_conv ---------------------------------------------------------------------


def float_constant(*shape: int, seed: str, dtype: str = "float32") -> Spec:
    return constant(random_array(*shape, dtype="float32", seed=seed).astype(dtype))


def normalize(net: Network, channels: int = 16, shape: tuple[int, ...] = ()) -> TensorRef:
    """Build batch normalization before an activation and a convolution.

    ``shape``: the shape of the scale.
    """
    x = conv_relu(net, channels)
    y = net.like("MUL", x, float_constant(*(shape or (1, 1, 1, channels)), seed="scale"))
    y = net.like("ADD", y, float_constant(1, 1, 1, channels, seed="offset"), fused_activation_function="RELU6")
    return net.conv(y, 32, (1, 1))


def normalize_and_read(net: Network, read_tensor: str, offset: str = "") -> tuple[TensorRef, TensorRef]:
    """Build a convolution of a normalized image.

    ``read_tensor``: the tensor that has another user. ``offset``: the operator that computes the offset; empty for a constant.
    """
    x = conv_relu(net)
    y = net.like("MUL", x, float_constant(1, 1, 1, 16, seed="a"))
    z = net.like("ADD", y, net.like(offset, x) if offset else float_constant(1, 1, 1, 16, seed="b"))
    return net.conv(z, 32, (1, 1)), net.like("EXP", {"x": x, "y": y, "z": z}[read_tensor])


def scale_and_shift(*shape: int, op: str = "RELU", dtype: str = "float32", axes: int = 4) -> BuildNetwork:
    """Build a scale and an offset per element of axis 1 for the result of ``op``."""

    def build(net: Network) -> TensorRef:
        x = net.input(image(*shape, dtype=dtype))
        x = net.like(op, x, *([constant(np.asarray(3, dtype))] if op == "MAXIMUM" else []))
        scale, offset = (float_constant(*(1, shape[1], 1, 1)[-axes:], seed=seed, dtype=dtype) for seed in "ab")
        return net.like("ADD", net.like("MUL", x, scale), offset)

    return build


def broadcast_scale(net: Network) -> TensorRef:
    x = conv_relu(net, 1)
    y = net.call("MUL", [x, float_constant(1, 1, 1, 16, seed="a")], net.spec(x).with_shape(1, 5, 7, 16))
    return net.conv(net.like("ADD", y, float_constant(1, 1, 1, 16, seed="b")), 32, (1, 1))


ONE_CONV = {"Conv": 3, "Mul": 0, "Add": 0}

test_scale_and_offset_become_one_convolution = rule_test(
    "scale_offset_to_conv",
    Case("four axes", normalize, tolerance=1e-6, nodes=ONE_CONV),
    Case("one axis", lambda net: normalize(net, shape=(16,)), tolerance=1e-6, nodes=ONE_CONV),
    Case("the image is read by others", lambda net: normalize_and_read(net, "x"), tolerance=1e-6),
    Case("the result is read by others", lambda net: normalize_and_read(net, "z"), tolerance=1e-6),
    Case("any image in the blocked layout", scale_and_shift(1, 16, 5, 7), tolerance=1e-6),
    declines("the product is read by others", lambda net: normalize_and_read(net, "y")),
    declines(
        "a scale per element", lambda net: normalize(net, shape=(1, 5, 7, 16)), "no operand is a constant per channel"
    ),
    declines(
        "a computed offset", lambda net: normalize_and_read(net, "x", "NEG"), "no operand is a constant per channel"
    ),
    declines("not in the blocked layout", scale_and_shift(1, 16, 5, 7, op="EXP"), "not in the blocked layout"),
    declines("one channel for all", broadcast_scale, "broadcast"),
    declines("29 channels", lambda net: normalize(net, 29), "not a multiple of 4"),
    declines("a single pixel", scale_and_shift(1, 16, 1, 1), "single pixel"),
    declines("three axes", scale_and_shift(16, 16, 7, axes=3), "is not an image"),
    declines("integers", scale_and_shift(1, 16, 5, 7, op="MAXIMUM", dtype="int32"), "not float"),
)


# --- clip_to_conv -----------------------------------------------------------------------------


def clip(
    net: Network, channels: int = 16, batch: int | None = 1, *, bound: str = "RELU6", dtype: str = "float32",
    size: tuple[int, int] = (11, 13), is_output: bool = False, addend: Spec | None = None, has_reader: bool = False,
) -> TensorRef | tuple[TensorRef, TensorRef]:  # fmt: skip
    """Build a residual sum that is clipped before a convolution.

    ``has_reader``: the sum is also an output.
    """
    x = net.conv(net.input(image(batch, *size, 3, dtype=dtype)), channels, name="before")
    addend_value = net.conv(x, channels, name="inside") if addend is None else addend
    add = net.like("ADD", x, addend_value, **({} if has_reader else {"fused_activation_function": bound}))
    if has_reader:
        return net.conv(net.like(bound, add), 7), add
    return add if is_output else net.conv(add, 7, name="after")


def activate(op: str = "MAXIMUM", bound: float | Array = -0.25) -> BuildNetwork:
    """Build a clipped activation before another convolution."""

    def build(net: Network) -> TensorRef:
        x = net.like("LEAKY_RELU", net.conv(float_input(net, 1, 11, 13, 3), 16), alpha=0.5)
        return net.conv(net.like(op, x, constant(bound)), 7)

    return build


CLIPPED_SUM = "a = Conv (x, w) b = Conv (x, w) c = Add (a, b) d = Clip (c, low, high) y = Conv (d, v)"
QUANTIZED = "q = QuantizeLinear (d, s, p) e = DequantizeLinear (q, s, p) f = Conv (e, v) g = Conv (d, v) y = Add (f, g)"
FUSED_CLIP = {"Clip": 0, "Max": 0, "Min": 0, "ReorderInput": 0}


def clip_graph(nodes: str) -> Any:
    return graph(
        f"(float[1,3,5,7] x) => (float[1,7,5,7] y) {{ {nodes} }}",
        w=random_array(8, 3, 1, 1), v=random_array(7, 8, 1, 1), per_channel=random_array(1, 8, 1, 1),
        low=np.float32(-0.5), high=np.float32(0.5), s=np.float32(0.05), p=np.uint8(120),
    )  # fmt: skip


test_clips_are_fused_with_a_convolution = rule_test(
    "clip_to_conv",
    *(
        Case(f"{bound} of {channels} channels", lambda net, c=channels, b=bound: clip(net, c, bound=b), tolerance=1e-6, fused=FUSED_CLIP)
        for channels in (8, 20, 48) for bound in ("RELU6", "RELU_N1_TO_1")
    ),
    Case("a lower bound of an activation", activate(), tolerance=1e-6, fused=FUSED_CLIP),
    Case("an upper bound of an activation", activate("MINIMUM", 0.5), tolerance=1e-6, fused=FUSED_CLIP),
    Case("a dynamic batch", lambda net: clip(net, batch=None), tolerance=1e-6, batch=5),
    Case("a graph", clip_graph(CLIPPED_SUM)),
    declines("RELU, which is fused with sums", lambda net: clip(net, bound="RELU")),
    declines("18 channels", lambda net: clip(net, 18), "not a multiple of 4"),
    declines("a single pixel", lambda net: clip(net, size=(1, 1)), "single pixel"),
    declines("no convolution after it", lambda net: clip(net, is_output=True), "no operator in the blocked layout"),
    declines("integers", lambda net: clip(net, dtype="int8")),
    declines("a constant term", lambda net: clip(net, addend=constant(random_array(1, 11, 13, 16))), "constant or broadcast"),
    declines("the sum is an output", lambda net: clip(net, has_reader=True), "has other users"),
    declines("a bound per channel", activate(bound=random_array(16, dtype="float32")), "not a scalar"),
    declines(
        "an operand per channel", clip_graph(CLIPPED_SUM.replace("b = Conv (x, w)", "m = GlobalAveragePool (x) b = Conv (m, w)")),
        "broadcast",
    ),
    declines("a computed constant", clip_graph(CLIPPED_SUM.replace("b = Conv (x, w)", "b = Neg (per_channel)")), "broadcast"),
    declines("quantized too", clip_graph(CLIPPED_SUM.replace("y = Conv (d, v)", QUANTIZED)), "quantized"),
)  # fmt: skip
