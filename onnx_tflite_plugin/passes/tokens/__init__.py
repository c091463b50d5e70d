"""Rewrites of transformers, whose tensors hold one row of features a token."""

from __future__ import annotations

from onnx_tflite_plugin.passes.declared import Pass

PASSES = (
    Pass(
        __name__,
        "matmul_of_tensors",
        "tensors are multiplied by a matrix as they are, not reshaped to rows and back",
        exact=True,
        needs=frozenset({"Gemm", "Reshape"}),
    ),
    Pass(
        __name__,
        "slices_as_split",
        "slices that are all of a tensor are one Split",
        exact=True,
        needs=frozenset({"Slice"}),
    ),
)
