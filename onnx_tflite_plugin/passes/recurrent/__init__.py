"""Rewrites of recurrent layers, whose time steps are many small nodes."""

from __future__ import annotations

from onnx_tflite_plugin.passes.declared import Pass

PASSES = (
    Pass(
        __name__,
        "sum_in_gemm",
        "what is added to a product of matrices is added by it",
        exact=True,
        needs=frozenset({"Add", "Gemm"}),
    ),
    Pass(
        __name__,
        "rows_at_once",
        "products of all rows of a tensor with one matrix are one product",
        exact=True,
        needs=frozenset({"Gather", "Gemm"}),
    ),
    Pass(
        __name__,
        "rows_of_integers",
        "products of all rows of quantized integers with one matrix are one product, exact on each processor",
        exact=True,
        needs=frozenset({"Gather", "Gemm", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "dequantized_once",
        "integers of 16 bits are cast and multiplied by their scale in one node",
        exact=True,
        needs=frozenset({"Cast", "Mul"}),
    ),
    Pass(
        __name__,
        "gates_at_once",
        "convolutions of one image in a loop that have few features are one",
        exact=True,
        needs=frozenset({"Loop"}),
    ),
    Pass(
        __name__,
        "tanh_as_sigmoid",
        "a quantized Tanh becomes the Sigmoid that rounds to the same integers",
        exact=True,
        needs=frozenset({"QuantizeLinear", "Tanh"}),
    ),
    Pass(
        __name__,
        "split_once",
        "what most parts of a small tensor go through is computed before it is split",
        exact=True,
        needs=frozenset({"Split"}),
    ),
    Pass(
        __name__,
        "columns_first",
        "rows that are all split into the same columns are split after these",
        exact=True,
        needs=frozenset({"Split"}),
    ),
    Pass(
        __name__,
        "stacked_once",
        "small tensors are stacked by one Reshape behind their Concat",
        exact=True,
        needs=frozenset({"Concat", "Unsqueeze"}),
    ),
    Pass(
        __name__,
        "reshape_by_broadcast",
        "axes of size 1 are not dropped in front of an operator that broadcasts them anyhow",
        exact=True,
        needs=frozenset({"Reshape"}),
    ),
    Pass(
        __name__,
        "reshape_once",
        "of several Reshapes in a row only the last is left",
        exact=True,
        needs=frozenset({"Reshape"}),
    ),
)
