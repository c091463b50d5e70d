"""Rules for recurrent layers, whose time steps consist of many small nodes."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import ZEN_4, Gain, Needed, RuleDeclaration

RULES = (
    RuleDeclaration(
        __name__,
        "fold_captures",
        "values computed from constants, which loop bodies capture, are stored as initializers",
        Needed("OpenVINO does not load bodies that capture computed values"),
    ),
    RuleDeclaration(
        __name__,
        "copy_captures",
        "a copy separates dequantized values from the inner graphs that capture them",
        Needed("ONNX Runtime crashes when it loads the model"),
        operators=frozenset({"DequantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "add_to_gemm",
        "an Add after a matrix multiplication becomes its bias",
        Gain(2, 11.8, 12.2, 11.3),
        frozenset({"Add", "Gemm"}),
    ),
    RuleDeclaration(
        __name__,
        "merge_step_gemms",
        "quantized multiplications of all time steps by one matrix become one multiplication, exact on every processor",
        Gain(6, 18.7, 34.6, 11.0),
        frozenset({"Gather", "Gemm", "QuantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "dequantize_int16",
        "Cast and Mul of int16 become one DequantizeLinear",
        Gain(28, 6.1, 22.4, -4.3),
        frozenset({"Cast", "Mul"}),
        after=("merge_step_gemms",),
    ),
    RuleDeclaration(
        __name__,
        "merge_gate_convs",
        "convolutions of one image with few output channels in the body of a Loop are merged",
        Gain(2, 81.0, 83.0, 79.0),
        frozenset({"Loop"}),
    ),
    RuleDeclaration(
        __name__,
        "tanh_to_sigmoid",
        "a quantized Tanh becomes the Sigmoid that rounds to the same integers",
        Gain(4, 6.9, 14.7, 0.9),
        frozenset({"QuantizeLinear", "Tanh"}),
    ),
    RuleDeclaration(
        __name__,
        "activations_before_split",
        "elementwise operators on most parts of a small tensor are computed before the Split",
        Gain(5, 4.8, 12.9, 0.5),
        frozenset({"Split"}),
        after=("dequantize_int16", "tanh_to_sigmoid"),
        module="splits",
    ),
    RuleDeclaration(
        __name__,
        "add_before_split",
        "the results of two convolutions in the body of a Loop are added before they are split",
        # Measured with merge_gate_convs, which writes the Splits.
        Gain(2, 81.0, 83.0, 79.0),
        frozenset({"Loop"}),
        after=("merge_gate_convs",),
        module="merge_gate_convs",
    ),
    RuleDeclaration(
        __name__,
        "columns_before_rows",
        "a tensor whose rows are all split into the same columns is split into columns first",
        Gain(1, 2.4, 2.4, 2.4),
        frozenset({"Split"}),
        after=("activations_before_split",),
        module="splits",
    ),
    RuleDeclaration(
        __name__,
        "reshape_after_concat",
        "small tensors are stacked by one Reshape after their Concat",
        Gain(1, 5.1, 5.1, 5.1, ZEN_4),
        frozenset({"Concat", "Unsqueeze"}),
        module="reshapes",
    ),
    RuleDeclaration(
        __name__,
        "drop_unit_axes",
        "Reshapes that drop leading axes of size 1 are removed before operators that broadcast",
        Gain(2, 2.9, 8.4, -2.6),
        frozenset({"Reshape"}),
        module="reshapes",
    ),
    RuleDeclaration(
        __name__,
        "merge_reshapes",
        "several Reshapes in a row become one",
        Gain(34, 1.2, 22.5, -8.2, ZEN_4),
        frozenset({"Reshape"}),
        # Both rules emit Reshapes.
        after=("reshape_after_concat", "drop_unit_axes"),
        module="reshapes",
    ),
    RuleDeclaration(
        __name__,
        "unroll_loops",
        "loops with a small constant trip count are unrolled",
        Needed("the option --unroll requests it"),
    ),
)
