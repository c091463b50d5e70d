"""Reading valid TFLite files: structure, names, options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

from onnx_tflite_plugin.source import BlockwiseQuantization, MultiAxisQuantization, Quantization, read
from onnx_tflite_plugin.source.dtypes import NAMES
from onnx_tflite_plugin.source.options import default_options, operator_names, options_table
from tests.source.writer import INT8, Model, Operator, Tensor, conv, details, options, table, unary


def test_a_convolution_reads_as_written() -> None:
    data = conv().write()
    model = read(data)
    image, weights, out = model.main.tensors
    assert (image.shape, image.dims, image.dtype, image.is_static) == ((1, 8, 9, 7), (None, 8, 9, 7), "int8", False)
    assert image.quantization == Quantization((0.5,), (-3,))
    assert weights.quantization == Quantization((0.25, 0.125), (0, 0), 0)
    assert out.quantization == Quantization((2.0,), (0,)), "no zero points: all 0"
    assert (model.main.inputs, model.main.outputs) == ((image,), (out,))
    assert (model.description, model.version, model.size) == ("a test", 3, len(data))
    [operator] = model.main.operators
    assert (operator.code, operator.builtin, operator.version) == ("CONV_2D", "CONV_2D", 5)
    assert operator.inputs == (image, weights, None), "an absent operand keeps its slot"
    assert operator.outputs == (out,)
    assert dict(operator.options) == {
        "padding": "VALID",
        "stride_w": 4,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
        "dilation_w_factor": 1,
        "dilation_h_factor": 3,
        "quantized_bias_type": "FLOAT32",
    }


def test_a_path_is_mapped_and_constants_are_views_into_it(tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(conv().write())
    for source in (path, str(path), path.read_bytes()):
        weights = read(source).main.tensors[1].array
        np.testing.assert_array_equal(weights, np.arange(210, dtype=np.int8).reshape(2, 3, 5, 7))
        assert not weights.flags.owndata
        assert not weights.flags.writeable


def test_options_of_a_custom_operator_are_those_of_the_file() -> None:
    renamed = conv()
    renamed.codes = [(32, 32, "Mine", 1)]
    [operator] = read(renamed.write()).main.operators
    assert (operator.code, operator.builtin) == ("CUSTOM.Mine", "CUSTOM")
    [original] = read(conv().write()).main.operators
    assert (operator.options.table, dict(operator.options)) == ("Conv2DOptions", dict(original.options))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ((101, 101, None, 1), "ABS"),
        ((101, 0, None, 1), "ABS"),
        ((127, 150, None, 1), "GELU"),
        ((0, 150, None, 1), "GELU"),
        ((32, 0, "Old", 1), "CUSTOM.Old"),
        ((32, 32, "", 1), "CUSTOM."),
        ((127, 209, None, 1), "STABLEHLO_CASE"),
        ((127, 4711, None, 1), "UNKNOWN_4711"),
        ((0, -5, None, 1), "ADD"),
    ],
)
def test_operator_code_is_the_larger_of_two_fields(code: Any, expected: str) -> None:
    model = unary()
    model.codes = [code]
    assert read(model.write()).main.operators[0].code == expected


def test_composite_name_is_read_from_builtin_options_2() -> None:
    fields = {
        "Name": "odml.rms_norm",
        "DecompositionSubgraphIndex": 7,
        "CompositeAttributes": b"\x01\xff",
        "Version": 2,
    }
    built = (tflite.BuiltinOptions2.StableHLOCompositeOptions, options("StableHLOCompositeOptions", **fields))
    model = unary(operators=[Operator(options_2=built)])
    model.codes = [(127, 206, None, 1)]
    [operator] = read(model.write()).main.operators
    assert (operator.code, operator.builtin) == ("COMPOSITE.odml.rms_norm", "STABLEHLO_COMPOSITE")
    assert dict(operator.options) == {
        "name": "odml.rms_norm",
        "decomposition_subgraph_index": 7,
        "composite_attributes": b"\x01\xff",
        "composite_attributes_format": "FLEXBUFFERS",
        "version": 2,
    }


def builtin_operator_model(code: int, **fields: Any) -> Model:
    """Return a model of one operator with a builtin code."""
    model = unary(operators=[Operator(**fields)])
    model.codes = [(min(code, 127), code, None, 1)]
    return model


def test_vectors_are_tuples_and_enums_in_them_have_names() -> None:
    fields = {"WindowStrides": [3, 5], "Padding": [1, 2], "PrecisionConfig": [0, 2], "FeatureGroupCount": 1 << 40}

    def build(builder: Any) -> int:
        vectors: dict[str, Any] = {}
        for key, value in fields.items():
            dtype = np.uint32 if key == "PrecisionConfig" else np.int64
            vectors[key] = builder.CreateNumpyVector(np.array(value, dtype)) if isinstance(value, list) else value
        return table(builder, "StablehloConvolutionOptions", **vectors)

    built = (tflite.BuiltinOptions2.StablehloConvolutionOptions, build)
    options = read(builtin_operator_model(171, options_2=built).write()).main.operators[0].options
    assert (options.window_strides, options.padding, options.lhs_dilation) == ((3, 5), (1, 2), ())
    assert (options.precision_config, options.feature_group_count) == (("DEFAULT", "HIGHEST"), 1 << 40)


def test_options_the_package_lacks_are_read() -> None:
    def build(builder: Any) -> int:
        branches = builder.CreateNumpyVector(np.array([2, 3], np.int32))
        return table(builder, "", 1, raw=[(0, "UOffsetTRelative", branches)])

    options = read(builtin_operator_model(209, options_2=(23, build)).write()).main.operators[0].options
    assert (options.table, dict(options)) == ("StablehloCaseOptions", {"branch_subgraph_indices": (2, 3)})


def test_options_name_the_newest_element_types() -> None:
    options = (
        read(builtin_operator_model(53, options=(tflite.BuiltinOptions.CastOptions, cast_to(21))).write())
        .main.operators[0]
        .options
    )
    assert options.out_data_type == "FLOAT8_E4M3FN"


def cast_to(number: int) -> Any:
    return lambda builder: table(builder, "CastOptions", OutDataType=number)


def test_unknown_options_differ_from_no_options() -> None:
    built = (200, options("AbsOptions"))
    parsed = read(builtin_operator_model(4711, options=built).write()).main.operators[0].options
    assert (parsed.table, dict(parsed)) == ("builtin_options[200]", {})


@pytest.mark.parametrize("code", [4711, 32])
def test_unknown_operator_keeps_its_options_table(code: int) -> None:
    model = builtin_operator_model(
        code, options=(tflite.BuiltinOptions.AddOptions, options("AddOptions", FusedActivationFunction=1))
    )
    model.codes = [(min(code, 127), code, "Mine", 1)]
    parsed = read(model.write()).main.operators[0].options
    assert (parsed.table, parsed.fused_activation_function) == ("AddOptions", "RELU")


@pytest.mark.parametrize(
    ("code", "expected_table"), [(0, "AddOptions"), (18, "MulOptions"), (101, "AbsOptions"), (19, "")]
)
def test_options_table_of_another_operator_is_ignored(code: int, expected_table: str) -> None:
    """LiteRT reads only the operator's own table: a MUL ignores the table of an ADD."""
    parsed = (
        read(builtin_operator_model(code, options=(11, options("AddOptions", FusedActivationFunction=1))).write())
        .main.operators[0]
        .options
    )
    assert parsed.table == expected_table
    assert parsed.get("fused_activation_function", "NONE") == ("RELU" if code == 0 else "NONE")


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("CONV_2D", "Conv2DOptions"),
        ("BATCH_MATMUL", "BatchMatMulOptions"),
        ("TOPK_V2", "TopKV2Options"),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions"),
        ("STABLEHLO_CASE", "StablehloCaseOptions"),
        ("RELU", ""),
        ("CUSTOM", ""),
    ],
)
def test_the_options_table_of_an_operator_follows_from_its_name(operator: str, expected: str) -> None:
    assert options_table(operator) == expected


def test_an_operator_without_options_has_the_schemas_defaults() -> None:
    model = unary(tensors=[Tensor("x"), Tensor("y")], operators=[Operator((0, 0))])
    model.codes = [(0, 0, None, 1)]
    options = read(model.write()).main.operators[0].options
    assert (options.table, dict(options)) == (
        "AddOptions",
        {"fused_activation_function": "NONE", "pot_scale_int16": True},
    )
    model.codes = [(19, 19, None, 1)]
    assert not read(model.write()).main.operators[0].options


def test_every_options_table_has_snake_case_fields() -> None:
    tables = [name for name in vars(tflite) if name.endswith("Options") and isinstance(getattr(tflite, name), type)]
    assert len(tables) > 120
    names = {field for name in tables if name != "BuiltinOptions" for field in default_options(name)}
    assert all(name == name.lower() and "__" not in name for name in names)
    expected = "adj_x keep_num_dims new_shape pot_scale_int16 dilation_d_factor seed2 idx_out_type cond_subgraph_index"
    assert not {*expected.split()} - names
    assert default_options("WhileOptions").cond_subgraph_index == 0, "an index stays a number"
    assert default_options("BidirectionalSequenceLSTMOptions").time_major is True
    assert default_options("ArgMaxOptions").output_type == "FLOAT32"


def test_operator_names_equal_the_schema() -> None:
    names = operator_names()
    assert (names[0], names[32], names[127], names[208]) == (
        "ADD",
        "CUSTOM",
        "PLACEHOLDER_FOR_GREATER_OP_CODES",
        "STABLEHLO_CBRT",
    )


def test_states_and_intermediates_of_an_operator_are_read() -> None:
    tensors = [Tensor("x"), Tensor("y"), Tensor("state", variable=True), Tensor("inner", (0,))]
    operator = Operator((0, 2), (1, -1), intermediates=(3, -1), mutating=(False, True), custom=b"\x00\x01")
    main = read(unary(tensors=tensors, operators=[operator]).write()).main
    [operator_read] = main.operators
    _, y, state, inner = main.tensors
    assert (state.is_variable, state.is_constant) == (True, False)
    assert (operator_read.outputs, operator_read.intermediates) == ((y, None), (inner, None))
    assert (operator_read.mutating, operator_read.custom_options) == ((False, True), b"\x00\x01")


def test_a_stale_list_of_mutated_inputs_is_dropped() -> None:
    model = unary(operators=[Operator(mutating=(False, True))])
    assert read(model.write()).main.operators[0].mutating == ()


def test_signatures_and_metadata_are_read() -> None:
    model = unary()
    model.buffers = [b"payload"]
    model.metadata = {"min_runtime_version": 1, "empty": 0, "beyond": 2, "lost": 99}
    model.signatures = [("serve", 0, {"b": 0, "a": 0}, {"out": 1})]
    source = read(model.write())
    assert source.metadata == {"min_runtime_version": b"payload", "empty": b""}, "LiteRT also skips a missing buffer"
    [signature] = source.signatures
    assert (signature.key, signature.subgraph, list(signature.inputs.items())) == ("serve", 0, [("b", 0), ("a", 0)])
    assert signature.outputs == {"out": 1}


def test_empty_tensor_without_producer_is_an_empty_constant() -> None:
    empty = Tensor("shape", (0,), tflite.TensorType.INT32)
    tensors = [Tensor("x"), Tensor("y"), empty, Tensor("given", (0,)), Tensor("grows", (0,), signature=(-1,))]
    model = unary(tensors=tensors, operators=[Operator((0, 2))], inputs=(0, 3, 4))
    _, y, shape, empty_input, growing_input = read(model.write()).main.tensors
    assert shape.array.shape == (0,)
    assert (y.is_constant, empty_input.is_constant, growing_input.is_constant) == (False, False, False)


def test_buffer_0_and_empty_buffers_are_not_constants() -> None:
    model = unary(tensors=[Tensor("x", data=b""), Tensor("y", buffer=0)])
    assert not any(tensor.is_constant for tensor in read(model.write()).main.tensors)


def test_scalar_without_producer_is_an_absent_operand() -> None:
    tensors = [Tensor("x"), Tensor("y"), Tensor("shape", None, tflite.TensorType.INT32)]
    [operator] = read(unary(tensors=tensors, operators=[Operator((0, 2))]).write()).main.operators
    assert operator.inputs[1] is None


def test_rank_is_unknown_by_flag_and_for_computed_tensors_of_old_files() -> None:
    for ranked, expected in ((True, False), (False, True)):
        tensors = [Tensor("x", None, ranked=False), Tensor("y", ranked=ranked)]
        assert read(unary(tensors=tensors).write()).main.tensors[0].has_rank is expected
    for ranked in (True, False):
        tensors = [Tensor("x", ranked=ranked), Tensor("y", None, ranked=False)]
        assert not read(unary(tensors=tensors).write()).main.tensors[1].has_rank


@pytest.mark.parametrize(
    ("slot", "message"), [(0, "ABS has no input 0"), (2, "no input 2"), (~0, "no output 0"), (~1, "no output 1")]
)
def test_absent_operand_is_reported_with_its_slot(slot: int, message: str) -> None:
    operator = Operator((-1, 0), (-1,))
    (op,) = read(unary(operators=[operator], outputs=(0,)).write()).main.operators
    assert op[1].name == "x"
    with pytest.raises(LookupError, match=message):
        op[slot]


RESOURCE = tflite.TensorType.RESOURCE


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([(INT8, (5, -1, 0), True)], ("int8", (None, 5, None, None), (1, 5, 1, 1))),
        ([(INT8, (), True)], ("int8", (None,), (1,))),
        ([(INT8, (1,) * 63, True)], ("int8", (None, *(1,) * 63), (1,) * 64)),
        ([(INT8, (1,) * 64, True)], None),  # one axis more than there may be
        ([(INT8, (5,), False)], None),
        ([(INT8, (5,), True)] * 2, None),
        ([(RESOURCE, (5,), True)], None),
        ([(len(NAMES), (5,), True)], None),
        ([(-1, (5,), True)], None),
        ([], None),
    ],
)
def test_variant_list_of_one_type_is_an_array_with_one_more_axis(lists: Any, expected: object) -> None:
    variant = Tensor("list", None, tflite.TensorType.VARIANT, lists=lists)
    tensor = read(unary(tensors=[Tensor("x"), variant]).write()).main.tensors[1]
    assert (tensor.dtype, tensor.dims, tensor.shape) == (expected or ("variant", (), ()))


def test_signature_with_a_different_rank_is_ignored_like_in_litert() -> None:
    model = unary(tensors=[Tensor("x", signature=(-1, 4)), Tensor("y", signature=())])
    assert [tensor.dims for tensor in read(model.write()).main.tensors] == [(4,), (4,)]


def test_constant_has_stored_sizes_despite_shape_signature() -> None:
    weights = Tensor("w", (2, 3), data=bytes(24), signature=(-1, 3))
    tensor = read(unary(tensors=[Tensor("x"), Tensor("y"), weights]).write()).main.tensors[2]
    assert (tensor.dims, tensor.is_static) == ((2, 3), True)


@pytest.mark.parametrize("zero_point", [-128, 127])
def test_a_zero_point_may_be_either_end_of_the_dtype(zero_point: int) -> None:
    x = Tensor("x", type=INT8, scale=[0.5], zero_point=[zero_point])
    assert read(unary(tensors=[x, Tensor("y")]).write()).main.tensors[0].quantization == Quantization(
        (0.5,), (zero_point,)
    )


def test_per_axis_weight_scale_may_be_negative_as_in_litert() -> None:
    """QuantizeMultiplier supports it. A per-tensor scale must not be negative."""
    weights = Tensor("w", (2, 3), INT8, bytes(6), scale=[0.5, -0.25], zero_point=[0, 0])
    tensor = read(unary(tensors=[Tensor("x"), Tensor("y"), weights]).write()).main.tensors[2]
    assert tensor.quantization == Quantization((0.5, -0.25), (0, 0), 0)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ((3, details(1, -1, 0, dimensions=(0, 1))), MultiAxisQuantization(1, None, 0, (0, 1))),
        ((3, details(1, 0, 2, dimensions=(1,))), MultiAxisQuantization(1, 0, 2, (1,))),
        ((1, details()), Quantization((0.5,), (3,))),  # CustomQuantization, which LiteRT ignores
    ],
)
def test_quantization_details_are_read(quantization: Any, expected: object) -> None:
    weights = Tensor("w", (2, 4), INT8, bytes(8), scale=[0.5], zero_point=[3], details=quantization)
    tensor = read(unary(tensors=[Tensor("x"), Tensor("y"), weights]).write()).main.tensors[2]
    assert tensor.quantization == expected


@pytest.mark.parametrize("zero_points", [-1, 0, 2, 3])  # none, the default 0, the scales, zeros
def test_blockwise_quantization_has_scales(zero_points: int) -> None:
    scales = Tensor("scales", (2, 3), tflite.TensorType.FLOAT16, np.array([1, 2, 3, 4, 5, 0.1], np.float16).tobytes())
    zeros = Tensor("zeros", (6,), INT8, bytes(6))
    weights = Tensor("w", (2, 12), tflite.TensorType.INT4, bytes(12), details=(2, details(2, zero_points, 4)))
    parsed = read(unary(tensors=[Tensor("x"), Tensor("y"), scales, zeros, weights]).write()).main.tensors
    assert parsed[4].quantization == BlockwiseQuantization(parsed[2], 4)
    assert parsed[4].blocks is not None
    assert parsed[4].blocks.flat().tolist() == [1, 2, 3, 4, 5, np.float32(np.float16(0.1))]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf")])
def test_odd_scales_are_accepted_as_in_litert(scale: float) -> None:
    model = unary(tensors=[Tensor("x", scale=[scale], zero_point=[0]), Tensor("y", scale=[], zero_point=[])])
    x, y = read(model.write()).main.tensors
    assert x.ignored_quantization == Quantization((scale,), (0,))
    assert y.quantization is None


def test_string_tensor_has_no_scale() -> None:
    text = Tensor("x", (2,), tflite.TensorType.STRING, scale=[0.5], zero_point=[3])
    assert read(unary(tensors=[text, Tensor("y")]).write()).main.tensors[0].quantization is None


def test_names_that_are_not_utf8_are_escaped() -> None:
    data = unary(tensors=[Tensor("zz"), Tensor("y")]).write().replace(b"zz", b"\xff\n")
    assert read(data).main.tensors[0].name == "\\xff\n"


def test_schema_is_imported_on_first_read() -> None:
    code = "import sys, onnx_tflite_plugin.source.reader; sys.exit('tflite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
