"""Operators that LiteRT's resolver registers: newest version and dtypes.

Source: register.cc. Operators that only move elements accept every dtype of a supported size. For them, only dtypes that
occur in models are listed.
"""

from __future__ import annotations

from typing import NamedTuple


class Kernel(NamedTuple):
    """Newest version and dtypes of a kernel."""

    version: int
    dtypes: frozenset[str]


_KERNELS = """\
ABS 5 float32 float16 int8 int16 int32
ADD 6 float32 float16 int32 int64 int8 uint8 int16
ADD_N 1 float32 int32
ARG_MAX 3 float32 int8 uint8 int32 bool
ARG_MIN 3 float32 int8 uint8 int32 bool
ASSIGN_VARIABLE 1 float32 int8 int32
ATAN2 1 float32 float64 float16 bfloat16
AVERAGE_POOL_2D 3 float32 int8 uint8 int16
BATCH_MATMUL 4 float32 int8 int16
BATCH_TO_SPACE_ND 4 float32 int8 uint8 int16 int32 int64 bool
BIDIRECTIONAL_SEQUENCE_LSTM 3 float32
BIDIRECTIONAL_SEQUENCE_RNN 3 float32
BITCAST 1 float32 int8 uint8 int16 int32 int64 bool
BITWISE_XOR 1 int8 uint8 int16 uint16 int32 uint32
BROADCAST_ARGS 1 int32 int64
BROADCAST_TO 4 float32 int8 uint8 int16 int32 int64 bool
BUCKETIZE 1 float32 int32 int64
CALL_ONCE 1 float32
CAST 9 float32 float16 float64 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 bool complex64 int4
CEIL 1 float32
COMPLEX_ABS 1 complex64
CONCATENATION 7 float32 float16 int8 uint8 int16 int32 int64 uint32 bool
CONV_2D 8 float32 int8 uint8 int16 int4
CONV_3D 1 float32
CONV_3D_TRANSPOSE 1 float32
COS 2 float32 float16
CUMSUM 1 float32 int32 int64
DENSIFY 1 float32 float16 int8
DEPTHWISE_CONV_2D 7 float32 int8 uint8 int16 int4
DEPTH_TO_SPACE 2 float32 uint8 int8 int32 int64
DEQUANTIZE 9 int8 uint8 int16 int4 float16
DILATE 1 float32 int8 uint8 int16 int32 int64 bool
DIV 2 float32 int32 uint8 int8 int16
DYNAMIC_UPDATE_SLICE 6 float32 int8 uint8 int16 int32 int64 bool
ELU 1 float32 int8
EMBEDDING_LOOKUP 5 float32 int8 uint8 int4
EMBEDDING_LOOKUP_SPARSE 1 float32
EQUAL 5 float32 float16 bool int16 int32 int64 uint8 int8 string
EXP 2 float32 int8 int16
EXPAND_DIMS 1 float32 int8 uint8 int16 int32 int64 bool
FAKE_QUANT 2 float32
FILL 5 float32 int8 uint8 int16 int32 int64 bool string
FLOOR 1 float32 float16 bfloat16
FLOOR_DIV 3 float32 int32 int16 int8
FLOOR_MOD 2 float32 int32 int64 int16 int8
FULLY_CONNECTED 14 float32 int8 uint8 int16 int4 int2
GATHER 8 float32 int8 uint8 int16 int32 int64 bool string
GATHER_ND 6 float32 int8 uint8 int16 int32 int64 bool string
GELU 3 float32 float16 int8 uint8 int16
GREATER 2 float32 float16 int16 int32 int64 uint8 int8
GREATER_EQUAL 3 float32 float16 int16 int32 int64 uint8 int8
HARD_SWISH 1 float32 uint8 int8
HASHTABLE 1 int64
HASHTABLE_FIND 1 int64
HASHTABLE_IMPORT 1 int64
HASHTABLE_LOOKUP 1 float32 int32 string
HASHTABLE_SIZE 1 int64
IF 1 float32 int8 int32
IMAG 1 complex64
L2_NORMALIZATION 2 float32 uint8 int8
L2_POOL_2D 1 float32
LEAKY_RELU 2 float32 uint8 int8 int16
LESS 3 float32 float16 bfloat16 int16 int32 int64 uint8 int8
LESS_EQUAL 2 float32 float16 int16 int32 int64 uint8 int8
LOCAL_RESPONSE_NORMALIZATION 1 float32
LOG 2 float32 int8 int16
LOGICAL_AND 1 bool
LOGICAL_NOT 1 bool
LOGICAL_OR 1 bool
LOGISTIC 3 float32 float16 bfloat16 int8 uint8 int16
LOG_SOFTMAX 2 float32 int8 uint8
LSH_PROJECTION 1 float32
LSTM 4 float32 uint8 int8
MATRIX_DIAG 1 float32 uint8 int8 int16 int32 int64
MATRIX_SET_DIAG 1 float32 uint8 int8 int16 int32 int64
MAXIMUM 4 float32 float16 bfloat16 uint8 int8 int16 int32 int64
MAX_POOL_2D 3 float32 int8 uint8 int16
MEAN 3 float32 int32 int64 uint8 int8 int16
MINIMUM 4 float32 float16 bfloat16 uint8 int8 int16 int32 int64
MIRROR_PAD 3 float32 int8 uint8 int16 int32 int64
MUL 8 float32 float16 int32 int64 uint32 int16 uint8 int8 complex64
MULTINOMIAL 1 float32
NEG 1 float32 float16 bfloat16 int8 int16 int32 int64
NON_MAX_SUPPRESSION_V4 1 float32
NON_MAX_SUPPRESSION_V5 1 float32
NOT_EQUAL 4 float32 float16 bool int16 int32 int64 uint8 int8 string
ONE_HOT 1 float32 int8 uint8 int32 int64 bool
PACK 5 float32 uint8 int8 int16 int32 int64 uint32
PAD 6 float32 float16 bfloat16 uint8 int8 int16 int32 int64 bool
PADV2 6 float32 float16 bfloat16 uint8 int8 int16 int32 int64 bool
POW 1 float32 int32
PRELU 1 float32 uint8 int8 int16
QUANTIZE 6 int8 uint8 int16 int32
RANDOM_STANDARD_NORMAL 1 float32
RANDOM_UNIFORM 1 float32
RANGE 2 float32 int32 int64
RANK 1 float32 int8 uint8 int16 int32 int64 bool
READ_VARIABLE 1 float32 int8 int32
REAL 1 complex64
REDUCE_ALL 1 bool
REDUCE_ANY 1 bool
REDUCE_MAX 3 float32 int32 int64 uint8 int8 int16
REDUCE_MIN 3 float32 int32 int64 uint8 int8 int16
REDUCE_PROD 2 float32 int32 int64 int8 int16
REDUCE_WINDOW 1 float32 int8 int16 int32 int64 bool
RELU 3 float32 int8 uint8 int16
RELU6 3 float32 int8 uint8 int16
RELU_0_TO_1 1 float32 uint8 int8
RELU_N1_TO_1 1 float32 uint8 int8
RESHAPE 1 float32 int8 uint8 int16 int32 int64 bool string
RESIZE_BILINEAR 4 float32 uint8 int8 int16
RESIZE_NEAREST_NEIGHBOR 4 float32 int8 uint8 int16 int32
REVERSE_SEQUENCE 1 float32 uint8 int16 int32 int64
REVERSE_V2 4 float32 float16 bfloat16 uint8 int8 int16 int32 int64 bool
RFFT2D 1 float32
RIGHT_SHIFT 1 int8 uint8 int16 uint16 int32 uint32
RNN 3 float32
ROUND 1 float32 float16 bfloat16
RSQRT 3 float32 int8 int16
SCATTER_ND 1 float32 int8 uint8 int32 int64 bool
SEGMENT_SUM 1 float32 int32
SELECT 4 float32 int8 uint8 int16 int32 int64 bool
SELECT_V2 2 float32 int8 uint8 int16 int32 int64 bool
SHAPE 1 float32 int8 uint8 int16 int32 int64 bool
SIGN 2 float32 float64 int32
SIN 2 float32 float16
SKIP_GRAM 1 string
SLICE 8 float32 int8 uint8 int16 int32 int64 bool string
SOFTMAX 4 float32 int8 uint8 int16
SPACE_TO_BATCH_ND 4 float32 int8 uint8 int16 int32 int64 bool
SPACE_TO_DEPTH 2 float32 uint8 int8 int32 int64
SPARSE_TO_DENSE 3 float32 int8 uint8 int32 int64
SPLIT 5 float32 uint8 int8 int16 int32 int64
SPLIT_V 3 float32 uint8 int8 int16 int32 int64
SQRT 2 float32 int8 int16
SQUARE 1 float32
SQUARED_DIFFERENCE 2 float32 int32 int8
SQUEEZE 2 float32 int8 uint8 int16 int32 int64 bool string
STABLEHLO_ADD 1 float32 float16 int8 int16 int32 int64 uint8 bool
STABLEHLO_AND 1 bool
STABLEHLO_CASE 1 float32
STABLEHLO_COMPOSITE 1 float32 int8
STABLEHLO_GATHER 1 float32 int8 uint8 int16 int32 int64 bool
STABLEHLO_MAXIMUM 1 float32 float16 int8 int16 int32 int64 uint8 bool
STABLEHLO_MINIMUM 1 float32 float16 int8 int16 int32 int64 uint8 bool
STABLEHLO_MULTIPLY 1 float32 float16 int8 int16 int32 int64 uint8 bool
STABLEHLO_PAD 1 float32 int8 uint8 int16 int32 int64 bool
STABLEHLO_REDUCE_WINDOW 1 float32 float64 int8 int16 int32 int64 uint8 bool
STABLEHLO_RNG_BIT_GENERATOR 1 int32 int64 uint32 uint64
STABLEHLO_SCATTER 1 float32 float16 float64 int8 int16 int32 int64 uint8 uint64 bool
STABLEHLO_SHIFT_LEFT 1 int8 int16 int32
STRIDED_SLICE 8 float32 int8 uint8 int16 int32 int64 bool string
SUB 5 float32 int32 int64 uint8 int8 int16
SUM 2 float32 int32 int64 uint8 int8 int16
SVDF 4 float32 int8
TANH 3 float32 float16 bfloat16 int8 uint8 int16
TILE 3 float32 int8 uint8 int16 int32 int64 bool string
TOPK_V2 3 float32 int8 uint8 int16 int32 int64
TRANSPOSE 9 float32 int8 uint8 int16 int32 int64 bool
TRANSPOSE_CONV 5 float32 int8 uint8 int16
UNIDIRECTIONAL_SEQUENCE_LSTM 4 float32 int8
UNIDIRECTIONAL_SEQUENCE_RNN 3 float32
UNIQUE 1 float32 uint8 int8 int16 int32 int64
UNPACK 6 float32 float16 bfloat16 uint8 int8 int16 int32 bool
UNSORTED_SEGMENT_MAX 1 float32 int32
UNSORTED_SEGMENT_MIN 1 float32 int32
UNSORTED_SEGMENT_PROD 1 float32 int32
UNSORTED_SEGMENT_SUM 1 float32 int32
VAR_HANDLE 1 float32
WHERE 2 bool float32 int32 int64 uint32 int8 uint8
WHILE 1 float32 int8 int32
ZEROS_LIKE 1 float32 int32 int64
"""

REGISTERED = {
    code: Kernel(int(version), frozenset(dtypes)) for code, version, *dtypes in map(str.split, _KERNELS.splitlines())
}
