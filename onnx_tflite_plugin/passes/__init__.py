"""Rewrites of a finished ONNX model for one runtime: a target names those that pay on it, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Pass:
    """``run`` changes a model in place and returns in how many places.

    ``exact``: the same results, but for the last digits of float32; integers that are made of them stay as they are.
    Exact passes run always, the others under ``--optimize speed``. ``needs``: operators without any of which in the main
    graph it changes nothing.
    """

    name: str
    summary: str
    exact: bool
    needs: frozenset[str] = frozenset()

    def run(self, model: ir.Model) -> int:
        """The ``run`` of the module of that name, imported here: most models need few of them."""
        if not self.needs <= {node.op_type for node in model.graph}:
            return 0
        rewrite: Callable[[ir.Model], int] = import_module(f"{__name__}.{self.name}").run
        return rewrite(model)


PASSES = {
    one.name: one
    for one in (
        Pass(
            "transposed_as_convolution",
            "a quantized transposed convolution becomes a convolution that makes several positions at once",
            exact=True,
            needs=frozenset({"ConvTranspose", "QuantizeLinear"}),
        ),
        Pass(
            "batch_norm_as_convolution",
            "a quantized scale and offset per channel become one depthwise convolution, which rounds once",
            exact=False,
            needs=frozenset({"Add", "Mul", "QuantizeLinear"}),
        ),
        Pass(
            "affine_as_convolution",
            "a float scale and offset per channel become one depthwise convolution",
            exact=True,
            needs=frozenset({"Add", "Mul"}),
        ),
        Pass(
            "channel_pad_as_convolution",
            "zeros appended to the channels of a residual connection come from a 1 x 1 convolution",
            exact=True,
            needs=frozenset({"Add", "Conv", "Pad"}),
        ),
        Pass(
            "average_as_product",
            "an average of integers becomes a convolution by channel or, where windows reach over the border, a product",
            exact=True,
            needs=frozenset({"AveragePool", "QuantizeLinear"}),
        ),
        Pass(
            "one_feature",
            "a convolution of one feature is made channel by channel and added up by one of 1 x 1",
            exact=True,
            needs=frozenset({"Conv"}),
        ),
        Pass(
            "symmetric_weights",
            "uint8 weights become int8 with a zero point of 0, with input channels made twice for the few that do not fit",
            exact=True,
            needs=frozenset({"Conv", "QuantizeLinear"}),
        ),
        Pass(
            "pad_channels",
            "numbers of channels that kernels have no fast path for are rounded up, with weights of zero",
            exact=True,
            needs=frozenset({"Conv"}),
        ),
        Pass(
            "exact_neighbours",
            "channels are put into an order in which no processor overflows as it adds products of int8",
            exact=True,
            needs=frozenset({"Conv", "QuantizeLinear"}),
        ),
        Pass(
            "clip_in_blocks",
            "a bound of a sum or an activation becomes part of a convolution by channel, whose weights are 1",
            exact=True,
            needs=frozenset({"Conv"}),
        ),
        Pass(
            "gate_in_blocks",
            "a factor per channel that the network computes is repeated over the image that it multiplies",
            exact=True,
            needs=frozenset({"Conv", "Mul"}),
        ),
        Pass(
            "channels_as_columns",
            "channels of an image become columns for its first convolution, which spares the Transpose",
            exact=True,
            needs=frozenset({"Conv", "Transpose"}),
        ),
        Pass("subnormal_weights", "subnormal weights, which LiteRT takes for zeros, are stored as zeros", exact=True),
        Pass(
            "fold_width",
            "columns of an image with few channels become channels of its first convolution",
            exact=True,
            needs=frozenset({"Conv", "QuantizeLinear"}),
        ),
        Pass(
            "fold_depthwise",
            "columns of a few channels become channels of a dense convolution, where each had its own",
            exact=True,
            needs=frozenset({"Conv", "QuantizeLinear"}),
        ),
        Pass(
            "wide_constants",
            "a constant of a few channels is repeated for several pixels at a time",
            exact=True,
            needs=frozenset({"DequantizeLinear", "QuantizeLinear"}),
        ),
        Pass(
            "sum_in_gemm",
            "what is added to a product of matrices is added by it",
            exact=True,
            needs=frozenset({"Add", "Gemm"}),
        ),
        Pass(
            "rows_at_once",
            "products of all rows of a tensor with one matrix are one product",
            exact=True,
            needs=frozenset({"Gather", "Gemm"}),
        ),
        Pass(
            "rows_of_integers",
            "products of all rows of quantized integers with one matrix are one product, exact on each processor",
            exact=True,
            needs=frozenset({"Gather", "Gemm", "QuantizeLinear"}),
        ),
        Pass(
            "dequantized_once",
            "integers of 16 bits are cast and multiplied by their scale in one node",
            exact=True,
            needs=frozenset({"Cast", "Mul"}),
        ),
        Pass(
            "gates_at_once",
            "convolutions of one image in a loop that have few features are one",
            exact=True,
            needs=frozenset({"Loop"}),
        ),
        Pass(
            "split_once",
            "what most parts of a small tensor go through is computed before it is split",
            exact=True,
            needs=frozenset({"Split"}),
        ),
        Pass(
            "stacked_once",
            "small tensors are stacked by one Reshape behind their Concat",
            exact=True,
            needs=frozenset({"Concat", "Unsqueeze"}),
        ),
        Pass(
            "reshape_once",
            "of several Reshapes in a row only the last is left",
            exact=True,
            needs=frozenset({"Reshape"}),
        ),
    )
}
