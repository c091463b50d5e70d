"""ONNX Runtime's CPU provider, as measured with version 1.31, with what 1.22 lacks left out (x86-64 with VNNI, default session options)."""

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.widening import WIDER

_INT16 = frozenset({"int16", "uint16", "int4", "uint4", "int2"})
_SUB_BYTE = frozenset({"int4", "uint4", "int2"})

ONNXRUNTIME = Target(
    name="onnxruntime",
    opsets=(13, 18, 26),
    # uint8 activations with int8 weights fuse where int8 activations stay in float (1.79x against 1.00x LiteRT's time).
    storage={"int8": ("uint8", 128)},
    # Integer kernels take int8 weights only; int4 and int2 would be dequantized at every run, or not load.
    weights={"uint8": ("int8", -128), "int4": ("int8", 0), "int2": ("int8", 0)},
    no_integer_kernel={
        **dict.fromkeys(("Pad", "Where", "Max", "Min", "MaxPool"), _INT16),
        "Resize": _INT16 | {"int64"},
        **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _INT16 | {"int32", "int64"}),
        **dict.fromkeys(("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Clip", "Relu", "TopK"), _INT16),
        **dict.fromkeys(("Concat", "Split", "Slice", "Gather", "Tile", "Expand"), _SUB_BYTE),
    },
    wraps_int8=frozenset({"Softmax"}),  # before version 1.29: a share of 1 became -128; uint8 is right
    widens=WIDER,
    # A DequantizeLinear of int16 fuses with nothing: MobileNetV2 9.4 ms, 4.6 with Cast and Mul.
    multiplies=frozenset({"int16"}),
    # 1 x 2048 by 2048 x 5632, int4 in blocks of 32: MatMulNBits 0.27 ms, float Gemm 2.0; of other sizes, not fused, 20.
    fused_blocks=(16, 256),
    # 16x1024 by 1024x1024: 94 us, 336 in float32.
    multiplies_dynamically=True,
    rounds_activations=True,
    # 4 heads of 16: 1.2 us, 7.9 spelled out; 64 rows of 8 heads of 64: 15.8 against 49.5.
    rotates_embeddings=True,
    clips_integers=True,
    prefers=frozenset({"GlobalAveragePool"}),
    blocks_channels=frozenset({"Conv", "Relu", "Add", "MaxPool", "AveragePool", "GlobalAveragePool"}),
    # A streaming network of 12 us in LiteRT: 16 Transposes of 60 nodes where its states are channels first, 2 of 46 else.
    channels_last=frozenset({"uint8"}),
    # Blocks are of images only: as sequences, convolutions of floats take 1.03 to 1.9 times as long, by channel up to 4.6;
    # those of int8, and what is between them, 0.76 to 1.01. int16 is computed as float.
    keeps_unit_axes=frozenset({"float32", "int16"}),
    # At 64x64x32 float32: Softmax 0.084 ms over the last axis, 1.05 over axis 1; at 8 kB a microsecond that is
    # 15 bytes for each byte of the operand. The others likewise. On AVX2 each differs in the same direction: Softmax 1.3,
    # reductions 1.5, ArgMax 0.6, Resize and Gather 0.9 of what they do here, in transposed bytes; no plan of 50 networks was another.
    prices={
        "Softmax": Price(inner=15.0),
        "LogSoftmax": Price(inner=15.0),
        **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"), Price(inner=3.4)),
        "ReduceL2": Price(inner=2.6),
        "ArgMax": Price(inner=3.4),
        "ArgMin": Price(inner=3.4),
        "GlobalAveragePool": Price(inner=1.4),
        # A linear Resize of 32 channels, 32x32 to 64x64: 0.186 ms channels first, 0.060 last; half of that for floats,
        # whose Transposes keep convolutions out of the blocked layout.
        "Resize": Price(last=0.8),
        "Resize/dequantized": Price(last=5.3),
        # 64 channels of 32x32 between convolutions, 8 bit: 0.234, 0.146 and (to 64x64) 0.500 ms channels first, 0.165, 0.112
        # and 0.292 last. Six axes transposed channels first: 0.244 against 0.024 ms. One number at a time, Gather takes 7 ns.
        "DepthToSpace/integers": Price(last=8.0),
        "SpaceToDepth/integers": Price(last=5.0),
        "Resize/nearest/integers": Price(last=6.0),
        "Transpose/blocks": Price(last=6.7),
        "Gather": Price(last=15.0),
    },
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
    ),
    saturates=True,
    quantizes_weights=True,
    opens=True,
)
