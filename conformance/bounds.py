"""Operators whose results must equal the kernel's exactly.

By default, a float output may differ by 1e-5 of its range, and an integer of 8 or 16 bits by one step. Outputs of other
dtypes must be equal. On average, quantized values may not be off by more than ``ROUNDING_BIAS``. This detects a lowering that
truncates or rounds down, which is never off by more than one step. In a model with float activations on integer
weights, outputs may differ by 2e-2 of the range. Operators that only move or select elements must be exact, and so must
those of ``EXACT_DTYPES`` in the listed dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from conformance.case import Case
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.verify import Tolerance
from onnx_tflite_plugin.verify.criteria import ROUNDING_BIAS

OPERATOR_TOLERANCE = 1e-5  # of the range; convolutions before and after an operator do not round

# These operators move, select, cast or round elements: not even the last bit may differ.
EXACT_OPERATORS = frozenset(
    {
        "ARG_MAX",
        "ARG_MIN",
        "ASSIGN_VARIABLE",
        "BATCH_TO_SPACE_ND",
        "BITCAST",
        "BITWISE_XOR",
        "BROADCAST_ARGS",
        "BROADCAST_TO",
        "BUCKETIZE",
        "CAST",
        "CEIL",
        "CONCATENATION",
        "DEPTH_TO_SPACE",
        "DILATE",
        "DYNAMIC_UPDATE_SLICE",
        "EXPAND_DIMS",
        "FILL",
        "FLOOR",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "GATHER",
        "GATHER_ND",
        "HASHTABLE",
        "HASHTABLE_FIND",
        "HASHTABLE_IMPORT",
        "HASHTABLE_LOOKUP",
        "HASHTABLE_SIZE",
        "IMAG",
        "MATRIX_DIAG",
        "MATRIX_SET_DIAG",
        "MAXIMUM",
        "MAX_POOL_2D",
        "MINIMUM",
        "MIRROR_PAD",
        "NEG",
        "NON_MAX_SUPPRESSION_V4",
        "ONE_HOT",
        "PACK",
        "PAD",
        "PADV2",
        "RANGE",
        "RANK",
        "READ_VARIABLE",
        "REAL",
        "REDUCE_ALL",
        "REDUCE_ANY",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_SEQUENCE",
        "REVERSE_V2",
        "RIGHT_SHIFT",
        "ROUND",
        "SELECT",
        "SELECT_V2",
        "SHAPE",
        "SIGN",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPARSE_TO_DENSE",
        "SPLIT",
        "SPLIT_V",
        "SQUEEZE",
        "STABLEHLO_ADD",
        "STABLEHLO_AND",
        "STABLEHLO_GATHER",
        "STABLEHLO_MAXIMUM",
        "STABLEHLO_MINIMUM",
        "STABLEHLO_MULTIPLY",
        "STABLEHLO_PAD",
        "STABLEHLO_RNG_BIT_GENERATOR",
        "STABLEHLO_SHIFT_LEFT",
        "STRIDED_SLICE",
        "TILE",
        "TOPK_V2",
        "TRANSPOSE",
        "UNIQUE",
        "UNPACK",
        "VAR_HANDLE",
        "WHERE",
        "ZEROS_LIKE",
    }
)

# Operators whose lowering repeats the kernel's integer arithmetic in these dtypes.
EXACT_DTYPES: Mapping[str, frozenset[str]] = {
    "AVERAGE_POOL_2D": frozenset({"int8", "uint8"}),
    "LSTM": frozenset({"int8"}),
    "REDUCE_PROD": frozenset({"int8", "int16"}),
    "REDUCE_WINDOW": frozenset({"int8", "uint8", "int16"}),
    "SOFTMAX": frozenset({"int16"}),
    "STABLEHLO_REDUCE_WINDOW": frozenset({"int8", "uint8", "int16"}),
    "STABLEHLO_SCATTER": frozenset({"int8", "uint8", "int16"}),
    "TANH": frozenset({"int16"}),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": frozenset({"int8"}),
}


def tolerance_of(case: Case, model: Model) -> Tolerance:
    """Return the case's own tolerance, 0 for exact operators, or the default.

    A case of a fusion is named after its last operator, but the fusion replaces other operators too: it has the default.
    """
    if case.tolerance is not None:
        return case.tolerance
    is_quantized = case.options.get("quantization") != "float"
    is_exact = case.op in EXACT_OPERATORS or (is_quantized and case.dtype in EXACT_DTYPES.get(case.op, ()))
    if is_exact and not case.fusions:
        return Tolerance(of_range=0, steps=0, integers=0)
    default = Tolerance.of(model)
    if default.of_range <= Tolerance().of_range:
        default = Tolerance(of_range=OPERATOR_TOLERANCE)
    return replace(default, rounding_bias=ROUNDING_BIAS)
