"""Rewrites that number, order or double the channels of convolutions, so that kernels have fast paths for them."""

from __future__ import annotations

from onnx_tflite_plugin.passes.declared import Pass

PASSES = (
    Pass(
        __name__,
        "channel_pad_as_convolution",
        "zeros appended to the channels of a residual connection come from a 1 x 1 convolution",
        exact=True,
        needs=frozenset({"Add", "Conv", "Pad"}),
    ),
    Pass(
        __name__,
        "one_feature",
        "a convolution of one feature is made channel by channel and added up by one of 1 x 1",
        exact=True,
        needs=frozenset({"Conv"}),
    ),
    Pass(
        __name__,
        "symmetric_weights",
        "uint8 weights become int8 with a zero point of 0, with input channels made twice for the few that do not fit",
        exact=True,
        needs=frozenset({"Conv", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "pad_channels",
        "numbers of channels that kernels have no fast path for are rounded up, with weights of zero",
        exact=True,
        needs=frozenset({"Conv"}),
    ),
    Pass(
        __name__,
        "exact_neighbours",
        "channels are put into an order in which no processor overflows as it adds products of int8",
        exact=True,
        needs=frozenset({"Conv", "QuantizeLinear"}),
    ),
)
