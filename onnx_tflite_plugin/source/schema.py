"""Tables of the TFLite schema that describe the structure of a model.

The declarations follow LiteRT's ``tflite/converter/schema/schema.fbs`` (version 3d), field for field in its order.
``table`` stands for any table type. The tables are repeated here, because the ``tflite`` package stops at schema 2.18 and
its accessors do not check the file. Operator options, except the newest, come from that package (see ``options``).
"""

from __future__ import annotations

from onnx_tflite_plugin.source.flatbuffer import Layout

# LiteRT accepts only this version (``TFLITE_SCHEMA_VERSION``) and this identifier.
VERSION = 3
IDENTIFIER = b"TFL3"

MODEL = Layout.parse(
    "Model",
    "version:uint; operator_codes:[table]; subgraphs:[table]; description:string; buffers:[table];"
    "metadata_buffer:[int]; metadata:[table]; signature_defs:[table]; external_buffer_groups:[table];"
    "external_buffers:[table]",
)
OPERATOR_CODE = Layout.parse(
    "OperatorCode", "deprecated_builtin_code:byte; custom_code:string; version:int=1; builtin_code:int"
)
SUBGRAPH = Layout.parse("SubGraph", "tensors:[table]; inputs:[int]; outputs:[int]; operators:[table]; name:string")
TENSOR = Layout.parse(
    "Tensor",
    "shape:[int]; type:byte; buffer:uint; name:string; quantization:table; is_variable:bool; sparsity:table;"
    "shape_signature:[int]; has_rank:bool; variant_tensors:[table]; external_buffer:uint",
)
VARIANT = Layout.parse("VariantSubType", "shape:[int]; type:byte; has_rank:bool")
OPERATOR = Layout.parse(
    "Operator",
    "opcode_index:uint; inputs:[int]; outputs:[int]; builtin_options:union; custom_options:[ubyte];"
    "custom_options_format:byte; mutating_variable_inputs:[bool]; intermediates:[int];"
    "large_custom_options_offset:ulong; large_custom_options_size:ulong; builtin_options_2:union",
)
BUFFER = Layout.parse("Buffer", "data:[ubyte]; offset:ulong; size:ulong")
METADATA = Layout.parse("Metadata", "name:string; buffer:uint")
TENSOR_MAP = Layout.parse("TensorMap", "name:string; tensor_index:uint")
SIGNATURE = Layout.parse(
    "SignatureDef",
    "inputs:[table]; outputs:[table]; signature_key:string; deprecated_tag:string; subgraph_index:uint",
)
EXTERNAL_GROUP = Layout.parse("ExternalBufferGroup", "name:string")
EXTERNAL_BUFFER = Layout.parse("ExternalBuffer", "id:uint; group:uint; offset:ulong; length:ulong; packing:string")

QUANTIZATION = Layout.parse(
    "QuantizationParameters",
    "min:[float]; max:[float]; scale:[float]; zero_point:[long]; details:union; quantized_dimension:int",
)
# ``block_shape`` is in the schema of ai-edge-litert 2.3, not yet in the published file.
BLOCKWISE = Layout.parse("BlockwiseQuantization", "scales:int; zero_points:int; block_size:int; block_shape:[int]")
MULTI_AXIS = Layout.parse(
    "MultiAxisQuantization", "scales:int; zero_points:int; block_size:int; quantized_dimensions:[int]"
)
# The union QuantizationDetails; 1 is CustomQuantization, which LiteRT ignores.
DETAILS_BLOCKWISE, DETAILS_MULTI_AXIS = 2, 3

SPARSITY = Layout.parse("SparsityParameters", "traversal_order:[int]; block_map:[int]; dim_metadata:[table]")
DIMENSION = Layout.parse("DimensionMetadata", "format:byte; dense_size:int; array_segments:union; array_indices:union")
DENSE, SPARSE_CSR = 0, 1
# The union SparseIndexVector.
INDEX_VECTORS = {
    1: Layout.parse("Int32Vector", "values:[int]"),
    2: Layout.parse("Uint16Vector", "values:[ushort]"),
    3: Layout.parse("Uint8Vector", "values:[ubyte]"),
}

# Operators and tables that the ``tflite`` package does not have yet.
NEWER_OPERATORS = {209: "STABLEHLO_CASE"}
NEWER_OPTIONS_2 = {23: "StablehloCaseOptions"}
NEWER_TABLES = {
    "StablehloCaseOptions": Layout.parse("StablehloCaseOptions", "branch_subgraph_indices:[int]"),
}
