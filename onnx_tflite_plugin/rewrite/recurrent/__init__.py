"""Rewrites of recurrent layers, whose time steps are many small nodes."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import ZEN_4, Gain, Needed, RuleDeclaration

RULES = (
    RuleDeclaration(
        __name__,
        "add_to_gemm",
        "an Add after a product of matrices becomes the bias of that product",
        Gain(2, 11.8, 12.2, 11.3),
        frozenset({"Add", "Gemm"}),
        module="sum_in_gemm",
    ),
    RuleDeclaration(
        __name__,
        "merge_step_gemms",
        "quantized products of all time steps with one matrix are one product, exact on each processor",
        Gain(4, 20.8, 34.6, 11.0),
        frozenset({"Gather", "Gemm", "QuantizeLinear"}),
        module="rows_of_integers",
    ),
    RuleDeclaration(
        __name__,
        "dequantize_int16",
        "Cast and Mul of int16 become one DequantizeLinear",
        Gain(28, 6.1, 22.4, -4.3),
        frozenset({"Cast", "Mul"}),
        after=("merge_step_gemms",),
        module="dequantized_once",
    ),
    RuleDeclaration(
        __name__,
        "merge_gate_convs",
        "convolutions of one image with few output channels in the body of a Loop are one",
        Gain(2, 81.0, 83.0, 79.0),
        frozenset({"Loop"}),
        module="gates_at_once",
    ),
    RuleDeclaration(
        __name__,
        "tanh_to_sigmoid",
        "a quantized Tanh becomes the Sigmoid that rounds to the same integers",
        Gain(4, 6.9, 14.7, 0.9),
        frozenset({"QuantizeLinear", "Tanh"}),
        module="tanh_as_sigmoid",
    ),
    RuleDeclaration(
        __name__,
        "activations_before_split",
        "element-wise operators that most parts of a small tensor go through are computed before the Split",
        Gain(3, 7.9, 12.9, 0.5),
        frozenset({"Split"}),
        after=("dequantize_int16", "tanh_to_sigmoid"),
        module="split_once",
    ),
    RuleDeclaration(
        __name__,
        "columns_first",
        "columns first",
        Gain(1, 2.4, 2.4, 2.4),
        frozenset({"Split"}),
        after=("activations_before_split",),
    ),
    RuleDeclaration(
        __name__,
        "stacked_once",
        "stack",
        Gain(1, 2.4, 2.4, 2.4),
        frozenset({"Concat", "Unsqueeze"}),
    ),
    RuleDeclaration(__name__, "reshape_by_broadcast", "", Gain(1, 2.4, 2.4, 2.4), frozenset({"Reshape"})),
    RuleDeclaration(__name__, "reshape_once", "", Gain(1, 2.4, 2.4, 2.4), frozenset({"Reshape"})),
)
