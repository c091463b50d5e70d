"""Target for ONNX Runtime's CPU provider.

Measured with version 1.31 on x86-64 with VNNI, in a default session. Features that 1.22 lacks are not used.
"""

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.widening import WIDER

_INT16 = frozenset({"int16", "uint16", "int4", "uint4", "int2"})
_SUB_BYTE = frozenset({"int4", "uint4", "int2"})

ONNXRUNTIME = Target(
    name="onnxruntime",
    opsets=(13, 18, 26),
    # Only uint8 activations with int8 weights are fused. With int8 activations, networks take 1.79 times as long as with uint8.
    storage={"int8": ("uint8", 128)},
    # Integer kernels support only int8 weights; int4 and int2 would be dequantized in every run, or not load.
    weights={"uint8": ("int8", -128), "int4": ("int8", 0), "int2": ("int8", 0)},
    no_integer_kernel={
        **dict.fromkeys(("Pad", "Max", "Min", "MaxPool"), _INT16),
        "Resize": _INT16 | {"int64"},
        **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _INT16 | {"int32", "int64"}),
        **dict.fromkeys(("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Clip", "Relu", "TopK"), _INT16),
        **dict.fromkeys(("Concat", "Split", "Slice", "Gather", "Tile", "Expand"), _SUB_BYTE),
    },
    # Before version 1.29, int8 Softmax returns -128 for a probability of 1. uint8 Softmax is correct.
    wrapping_int8_operators=frozenset({"Softmax"}),
    wider_dtypes=WIDER,
    # DequantizeLinear of int16 is never fused. MobileNetV2 takes 9.4 ms with it, and 4.6 ms with Cast and Mul.
    cast_mul_dtypes=frozenset({"int16"}),
    # Product of 1 x 2048 and 2048 x 5632 with int4 blocks of 32: MatMulNBits takes 0.27 ms, a float Gemm 2.0 ms. Other block
    # sizes are not fused and take 20 ms.
    fused_blocks=(16, 256),
    # Product of one row and weights with a scale per row, with int4 blocks of 128 or with MatMulInteger: 1024 x 1024 takes
    # 20 or 26 us, 2048 x 2048 takes 72 or 121 us, 640 x 65536 takes 1.0 or 2.5 ms. Blocks of 32 take 1.4 times as long as
    # blocks of 128.
    int4_block=128,
    packed_int4_lookups=True,
    # 16x1024 by 1024x1024 takes 94 us, and 336 us in float32.
    fast_dynamic_quantization=True,
    rounds_activations=True,
    # RotaryEmbedding of 4 heads of 16 takes 1.2 us, and 7.9 us decomposed; 64 rows of 8 heads of 64 take 15.8 us, and 49.5 us
    # decomposed.
    rotates_embeddings=True,
    fuses_cached_attention=True,
    clips_integers=True,
    fast_operators=frozenset({"GatherElements", "GlobalAveragePool"}),
    channel_blocked_operators=frozenset({"Conv", "Relu", "Add", "MaxPool", "AveragePool", "GlobalAveragePool"}),
    # A streaming network has 16 Transposes in 60 nodes with channels-first states, and 2 in 46 nodes with channels last.
    channels_last=frozenset({"uint8"}),
    # The blocked layout supports only images. Times of a sequence relative to an image with a unit axis: 1.03 to 1.9 for float
    # convolutions, up to 4.6 if they are depthwise, 0.76 to 1.01 for int8 convolutions with the operators between them. int16
    # is computed in float.
    keeps_unit_axes=frozenset({"float32", "int16"}),
    # At 64x64x32 float32, Softmax takes 0.084 ms over the last axis and 1.05 ms over axis 1. At 8 kB per microsecond, this
    # is a price of 15 bytes per byte of the operand. The other prices are measured in the same way. On AVX2, the prices are
    # 1.3 (Softmax), 1.5 (reductions), 0.6 (ArgMax) and 0.9 times (Resize, Gather) the prices here; with them, no layout plan
    # of 50 networks changed.
    prices={
        "Softmax": Price(inner=15.0),
        "LogSoftmax": Price(inner=15.0),
        **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"), Price(inner=3.4)),
        "ReduceL2": Price(inner=2.6),
        "ArgMax": Price(inner=3.4),
        "ArgMin": Price(inner=3.4),
        "GlobalAveragePool": Price(inner=1.4),
        # Linear Resize of 32 channels, 32x32 to 64x64: 0.186 ms channels first, 0.060 ms channels last. Floats have half
        # that price, because their Transposes keep convolutions out of the blocked layout.
        "Resize": Price(last=0.8),
        "Resize/dequantized": Price(last=5.3),
        # DepthToSpace, SpaceToDepth and Resize (to 64x64) of 64 8-bit channels of 32x32, between convolutions: 0.234, 0.146
        # and 0.500 ms channels first; 0.165, 0.112 and 0.292 ms channels last. A Transpose of six axes takes 0.244 ms
        # channels first, and 0.024 ms channels last. Gather takes 7 ns per element if it gathers single elements.
        "DepthToSpace/integers": Price(last=8.0),
        "SpaceToDepth/integers": Price(last=5.0),
        "Resize/nearest/integers": Price(last=6.0),
        "Transpose/blocks": Price(last=6.7),
        "Gather": Price(last=15.0),
    },
    # The order matters. squeeze_excite_blocks traces the batch size from the graph inputs, so it runs before rules that
    # add Reshapes. fold_width runs once the channels of the first convolution are final. dequantize_int16 runs before
    # other rules move operators upstream of Splits.
    passes=(
        "conv_transpose_to_conv",
        "batch_norm_to_conv",
        "scale_offset_to_conv",
        "pad_to_conv",
        "average_pool_to_conv",
        "split_single_feature_conv",
        "symmetric_weights",
        "pad_channels",
        "reorder_channels",
        "clip_to_conv",
        "squeeze_excite_blocks",
        "image_channels_to_width",
        "zero_subnormals",
        "fold_width",
        "fold_depthwise",
        "lookup_channels_last",
        "widen_quantized_constants",
        "widen_constants",
        "slices_to_split",
        "add_to_gemm",
        "merge_step_gemms",
        "dequantize_int16",
        "merge_gate_convs",
        "add_before_split",
        "tanh_to_sigmoid",
        "activations_before_split",
        "columns_before_rows",
        "reshape_after_concat",
        "drop_unit_axes",
        "merge_reshapes",
        "gemm_to_matmul",
        "tie_tables",
        "block_products",
        "share_repeated",
        "sum_before_norm",
        "bound_masked_scores",
    ),
    may_saturate=True,
    quantizes_weights=True,
    opens_in_onnxruntime=True,
    domains=frozenset({"com.microsoft", "com.microsoft.nchwc"}),
)
