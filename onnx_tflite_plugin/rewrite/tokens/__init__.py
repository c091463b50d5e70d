"""Rules for transformers, whose tensors have one row of features per token."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import XEON, Gain, Needed, RuleDeclaration

RULES = (
    RuleDeclaration(
        __name__,
        "slices_to_split",
        "Slices that together cover a tensor become one Split",
        Gain(26, 1.2, 12.0, -0.9),
        frozenset({"Slice"}),
    ),
    RuleDeclaration(
        __name__,
        "gemm_to_matmul",
        "a Gemm between two Reshapes becomes a MatMul of the tensor",
        Gain(10, 1.6, 7.7, -0.8),
        frozenset({"Gemm", "Reshape"}),
        after=("add_to_gemm", "merge_step_gemms"),
    ),
    RuleDeclaration(
        __name__,
        "sum_before_norm",
        "an Add before LayerNormalization becomes a Sum, which ONNX Runtime does not fuse into its slow kernel",
        Gain(2, 33.2, 35.1, 31.3, XEON),
        frozenset({"LayerNormalization"}),
        after=("add_to_gemm",),
    ),
    RuleDeclaration(
        __name__,
        "bound_masked_scores",
        "masked scores are bounded before Softmax, so that their exponentials are not subnormal numbers",
        Gain(3, 18.0, 30.7, 4.8, XEON),
        frozenset({"Softmax"}),
    ),
    RuleDeclaration(
        __name__,
        "share_repeated",
        "values that every layer recomputes are computed once",
        Needed("without the rule, the graph of a language model has 1.5 times as many nodes"),
        frozenset({"GroupQueryAttention"}),
        after=("merge_reshapes",),
    ),
)
