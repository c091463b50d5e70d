"""Tests of the model builder: its files run in LiteRT, wrong arguments fail."""

from __future__ import annotations

import flatbuffers.flexbuffers
import ml_dtypes
import numpy as np
import pytest
import tflite

from conformance.builder import BuilderError, GraphBuilder, ModelBuilder, blockwise, quant
from conformance.models import binary, tensor
from conformance.schema import enum, fields_of, options_table, options_tables
from conformance.storage import pack_bits, pack_strings
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT

ONES = np.ones(3, np.float32)


def outputs(model: ModelBuilder, *inputs: Array, kernels: str = "builtin") -> list[Array]:
    return LiteRT(model.build(), kernels).run(inputs)


def unary(graph: GraphBuilder, code: str, shape: tuple[int | None, ...] = (3,)) -> None:
    x, y = graph.input("x", shape), graph.tensor("y", shape)
    graph.operator(code, [x], [y])
    graph.output(y)


def test_options_enums_and_absent_operands_reach_the_kernel() -> None:
    model = ModelBuilder("a description")
    g = model.main
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("y", (1, 3, 4, 2))
    w = g.constant("w", np.full((2, 3, 3, 3), -1, np.float32))
    b = g.constant("b", [30.0, 1.0])
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "fused_activation_function": "RELU"}
    g.operator("CONV_2D", [x, w, b], [y], options)
    g.output(y)
    (output,) = outputs(model, np.ones((1, 5, 7, 3), np.float32))
    assert output.shape == (1, 3, 4, 2)
    assert output[0, 1, 1].tolist() == [3.0, 0.0]
    assert output[0, 0, 0].tolist() == [18.0, 0.0]


def test_plain_numbers_become_float32_and_int32() -> None:
    g = ModelBuilder().main
    assert g.constant("a", [1.0]).dtype == "float32"
    assert g.constant("b", [1]).dtype == "int32"
    assert g.constant("c", np.array([1])).dtype == "int64"
    assert g.constant("d", [1], "uint8").dtype == "uint8"
    assert g.constant("e", ["text"]).dtype == "string"


@pytest.mark.parametrize(
    ("dtype", "low", "high", "columns"),
    [
        pytest.param("int4", -8, 8, 5, id="int4"),
        pytest.param("int2", -2, 2, 8, id="int2", marks=pytest.mark.needs("ai-edge-litert", "2.1.6", "int2")),
    ],
)
def test_packed_integers_are_weights_of_a_hybrid_layer(dtype: str, low: int, high: int, columns: int) -> None:
    values = np.random.default_rng(0).integers(low, high, (3, columns))
    scales = [0.5, 0.25, 2.0]
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, columns)), g.tensor("y", (1, 3))
    w = g.constant("w", values.astype(getattr(ml_dtypes, dtype)), quantization=quant(scales, 0, axis=0))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    g.output(y)
    (output,) = outputs(model, np.ones((1, columns), np.float32))
    np.testing.assert_allclose(output[0], values.sum(1) * scales, rtol=1e-5)


def test_packs_low_bits_first_and_pads_with_zeros() -> None:
    assert pack_bits(np.array([1, -1, 3]), 4) == bytes([0xF1, 0x03])
    assert pack_bits(np.array([1, -1, 0, -2, 1]), 2) == bytes([0b10_00_11_01, 0b01])
    assert pack_bits(np.zeros((0, 3)), 4) == b""
    assert pack_strings(np.array([], object)) == np.array([0, 8], "<i4").tobytes()


def test_strings_keep_zero_bytes_and_non_ascii_text() -> None:
    model = ModelBuilder()
    g = model.main
    indices, y = g.input("i", (3,), "int32"), g.tensor("y", (3,), "string")
    g.operator("GATHER", [g.constant("s", ["a", "kůň", "d\0e"]), indices], [y], {"axis": 0})
    g.output(y)
    (output,) = outputs(model, np.array([2, 1, 0], np.int32))
    assert output.tolist() == [b"d\0e", "kůň".encode(), b"a"]


@pytest.mark.parametrize("index_dtype", ["int32", "uint8", "uint16"])
@pytest.mark.parametrize(
    ("formats", "order", "blocks"),
    [
        (("dense", "csr"), None, ()),
        (("csr", "csr"), (1, 0), ()),
        (("dense", "csr", "dense", "dense"), None, ((0, 2), (1, 3))),
    ],
    ids=["rows", "columns first", "blocks"],
)
def test_sparse_constants_densify_to_the_original(
    formats: tuple[str, ...], order: tuple[int, ...] | None, blocks: tuple[tuple[int, int], ...], index_dtype: str
) -> None:
    dense = np.zeros((4, 6), np.float32)
    dense[0, 1], dense[3, 5], dense[2, 0] = 2, 4, -1
    model = ModelBuilder()
    g = model.main
    w = g.sparse("w", dense, formats, order=order, blocks=blocks, index_dtype=index_dtype)
    x, full, y = g.input("x", (4, 6)), g.tensor("full", (4, 6)), g.tensor("y", (4, 6))
    g.operator("DENSIFY", [w], [full])
    g.operator("ADD", [x, full], [y])
    g.output(y)
    np.testing.assert_array_equal(outputs(model, np.zeros((4, 6), np.float32))[0], dense)


def test_blockwise_scales_are_a_tensor() -> None:
    values = np.random.default_rng(0).integers(-8, 8, (4, 64))
    scales = np.array([[0.5, 0.25]] * 4, np.float16)
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 64)), g.tensor("y", (1, 4))
    block = blockwise(g.constant("scales", scales), 32)
    g.operator("FULLY_CONNECTED", [x, g.constant("w", values.astype(ml_dtypes.int4), quantization=block), None], [y])
    g.output(y)
    (output,) = outputs(model, np.ones((1, 64), np.float32))
    expected = (values.reshape(4, 2, 32).sum(2) * scales.astype(np.float32)).sum(1)
    np.testing.assert_allclose(output[0], expected, rtol=1e-4, atol=1e-4)


def test_external_buffers_follow_the_flatbuffer_aligned() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (3,)), g.tensor("y", (3,))
    for value in (1, 2):
        g.constant("unused", np.full(5, value, np.int8), external=True)
    w = g.constant("w", np.array([1, 2, 3], np.float32), external=True)
    g.operator("ADD", [x, w], [y])
    g.output(y)
    data = model.build()
    buffers = [tflite.Model.GetRootAs(data).Buffers(k) for k in range(4)]
    assert [buffer.Size() for buffer in buffers] == [0, 5, 5, 12]
    assert all(buffer.Offset() % 16 == 0 for buffer in buffers)
    assert data[buffers[2].Offset() :][:5] == bytes([2] * 5)
    assert outputs(model, ONES)[0].tolist() == [2, 3, 4]


def test_embedded_buffers_are_aligned_to_16_bytes() -> None:
    model = ModelBuilder()
    for size in (1, 3, 17, 64):
        model.main.constant("c", np.arange(size, dtype=np.uint8))
    data = model.build()
    file = tflite.Model.GetRootAs(data)
    for k in range(1, file.BuffersLength()):
        stored = file.Buffers(k).DataAsNumpy()
        position = stored.__array_interface__["data"][0] - np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        assert position % 16 == 0


def test_custom_options_are_flexbuffers_inline_or_external() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (3,)), g.tensor("y", (3,))
    for external in (False, True):
        g.operator("CUSTOM.My Op", [x], [y], custom_options={"a": 1, "b": [1.5]}, external_custom_options=external)
    data = model.build()
    file = tflite.Model.GetRootAs(data)
    inline_op, external_op = (file.Subgraphs(0).Operators(k) for k in (0, 1))
    assert file.OperatorCodesLength() == 1
    assert file.OperatorCodes(0).CustomCode() == b"My Op"
    assert flatbuffers.flexbuffers.Loads(inline_op.CustomOptionsAsNumpy().tobytes()) == {"a": 1, "b": [1.5]}
    start, size = external_op.LargeCustomOptionsOffset(), external_op.LargeCustomOptionsSize()
    assert flatbuffers.flexbuffers.Loads(data[start : start + size]) == {"a": 1, "b": [1.5]}


def test_codes_above_127_use_the_wide_field() -> None:
    model = ModelBuilder()
    unary(model.main, "GELU")
    code = tflite.Model.GetRootAs(model.build()).OperatorCodes(0)
    assert code.DeprecatedBuiltinCode() == 127
    assert code.BuiltinCode() == 150
    assert outputs(model, ONES)[0].shape == (3,)


def test_builds_stablehlo_case() -> None:
    model = ModelBuilder()
    branches = [model.subgraph(code) for code in ("NEG", "ABS")]
    for branch in branches:
        unary(branch, branch.name)
    g = model.main
    which, x, y = g.input("which", (), "int32"), g.input("x", (3,)), g.tensor("y", (3,))
    g.operator("STABLEHLO_CASE", [which, x], [y], {"branch_subgraph_indices": [b.index for b in branches]})
    g.output(y)
    assert [outputs(model, np.array(k, np.int32), ONES)[0][0] for k in (0, 1)] == [-1, 1]


def test_composites_are_named_by_their_code() -> None:
    model = ModelBuilder()
    body = model.subgraph("body")
    unary(body, "NEG")
    g = model.main
    x, y = g.input("x", (3,)), g.tensor("y", (3,))
    options = {"decomposition_subgraph_index": body.index, "composite_attributes": {"epsilon": 0.5}}
    g.operator("COMPOSITE.pack.norm", [x], [y], options)
    g.output(y)
    table = tflite.StableHLOCompositeOptions()
    union = tflite.Model.GetRootAs(model.build()).Subgraphs(0).Operators(0).BuiltinOptions2()
    table.Init(union.Bytes, union.Pos)
    assert table.Name() == b"pack.norm"
    assert flatbuffers.flexbuffers.Loads(table.CompositeAttributesAsNumpy().tobytes()) == {"epsilon": 0.5}
    assert outputs(model, ONES)[0].tolist() == [-1, -1, -1]


def test_variables_change_between_runs() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 3)), g.tensor("y", (1, 2))
    state = g.tensor("state", (1, 4), variable=True)
    features, time = g.constant("f", np.ones((2, 3), np.float32)), g.constant("t", np.ones((2, 2), np.float32))
    g.operator("SVDF", [x, features, time, None, state], [y], {"rank": 1}, mutating=[state])
    g.output(y)
    operator = tflite.Model.GetRootAs(model.build()).Subgraphs(0).Operators(0)
    assert operator.MutatingVariableInputsAsNumpy().tolist() == [False, False, False, False, True]
    session = LiteRT(model.build(), "builtin")
    assert [session.run([np.ones((1, 3), np.float32)])[0][0, 0] for _ in range(3)] == [3, 6, 6]


def test_dynamic_dimensions_are_stored_as_1_with_a_signature() -> None:
    model = ModelBuilder()
    unary(model.main, "NEG", (None, 3))
    model.main.tensor("no rank", None)
    graph = tflite.Model.GetRootAs(model.build()).Subgraphs(0)
    assert graph.Tensors(0).ShapeAsNumpy().tolist() == [1, 3]
    assert graph.Tensors(0).ShapeSignatureAsNumpy().tolist() == [-1, 3]
    assert [graph.Tensors(k).HasRank() for k in range(3)] == [True, True, False]
    assert outputs(model, np.ones((4, 3), np.float32))[0].shape == (4, 3)


def test_signatures_and_metadata_are_written() -> None:
    model = ModelBuilder()
    second = model.subgraph("second")
    unary(model.main, "NEG")
    unary(second, "SQUARE")
    model.signature("go", {"left": 0}, {"right": 1}, subgraph=second.index)
    model.metadata("min_runtime_version", b"1.14.0")
    file = tflite.Model.GetRootAs(model.build())
    assert file.Buffers(file.Metadata(0).Buffer()).DataAsNumpy().tobytes() == b"1.14.0"
    output = LiteRT(model.build(), signature="go").run({"left": 3 * ONES})
    assert output[0].tolist() == [9, 9, 9]


def test_intermediates_and_quantization_ranges_are_written() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3,), "int8", quantization=quant(0.5, -3, minimum=[-1.0], maximum=[2.0]))
    y, inner = g.tensor("y", (3,), "int8", quantization=quant(0.5, -3)), g.tensor("inner", (3,))
    g.operator("RELU", [x], [y], intermediates=[inner, None])
    graph = tflite.Model.GetRootAs(model.build()).Subgraphs(0)
    assert graph.Operators(0).IntermediatesAsNumpy().tolist() == [2, -1]
    quantization = graph.Tensors(0).Quantization()
    assert (quantization.Scale(0), quantization.ZeroPoint(0), quantization.Min(0), quantization.Max(0)) == (
        0.5,
        -3,
        -1.0,
        2.0,
    )


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        ("CONV_2D", {"strideh": 1}, "Conv2DOptions has no field 'strideh': did you mean 'stride_h'"),
        ("CONV_2D", {"padding": "SAMEE"}, "Padding has no value 'SAMEE': did you mean 'SAME'"),
        ("CONV_2D", {"stride_h": 1.5}, "stride_h takes an integer, not 1.5"),
        ("CONV_2D", {"stride_h": "two"}, "stride_h takes a number, not 'two'"),
        ("CONV_2D", {"stride_h": 2**40}, "stride_h takes numbers from -2147483648 to 2147483647"),
        ("RESHAPE", {"new_shape": 3}, "new_shape takes a list, not 3"),
        ("RESHAPE", {"new_shape": [1.5]}, "new_shape takes a list of int32 values"),
        ("GELU", {"approximate": 2}, "approximate takes True or False, not 2"),
        ("RELU", {"alpha": 1}, "RELU has no options table, but was given the option 'alpha'"),
        ("CUSTOM.a", {"axis": 1}, "CUSTOM has no options table, but was given the option 'axis'; .* custom_options="),
        ("acme.Shrink", {}, "TFLite has no operator 'acme.Shrink'; did you mean 'CUSTOM.acme.Shrink'"),
        ("CONV2D", {}, "BuiltinOperator has no value 'CONV2D': did you mean 'CONV_2D'"),
    ],
)
def test_rejects_wrong_options(code: str, options: dict[str, object], message: str) -> None:
    g = ModelBuilder().main
    x = g.input("x", (1,))
    with pytest.raises(BuilderError, match=message.replace("(", r"\(")):
        g.operator(code, [x], [x], options)


def test_rejects_a_tensor_of_another_subgraph() -> None:
    model = ModelBuilder()
    stray = model.subgraph("body").input("x", (3,))
    with pytest.raises(BuilderError, match="belongs to subgraph 'body', not to 'main'"):
        model.main.output(stray)


def test_builds_invalid_files() -> None:
    model = ModelBuilder()
    x = model.main.input("x", (3,))
    model.main.operator(250, [x, 77], [-5], version=99)
    file = tflite.Model.GetRootAs(model.build())
    assert file.Subgraphs(0).Operators(0).InputsAsNumpy().tolist() == [0, 77]
    assert file.OperatorCodes(0).BuiltinCode() == 250


def test_each_code_maps_to_at_most_one_options_table() -> None:
    for table in options_tables():
        assert all(entry.kind in ("scalar", "vector", "offset") for entry in fields_of(table).values())
    assert options_table("MAX_POOL_2D") == "Pool2DOptions"
    assert options_table("TOPK_V2") == "TopKV2Options"
    assert options_table("STABLEHLO_COMPOSITE") == "StableHLOCompositeOptions"
    assert options_table("RELU") == ""
    assert enum("BuiltinOperator")["STABLEHLO_CASE"] == 209


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((None, 5), (5,)), (None, 5)),
        (((None, 5), (3, 1)), (3, 5)),
        (((1, None), (2, 1)), (2, None)),
        (((2, 1), (2, 1)), (2, 1)),
    ],
)
def test_a_binary_case_has_the_dynamic_sizes_of_its_operands(
    shapes: tuple[tuple[int | None, ...], ...], expected: tuple[int | None, ...]
) -> None:
    case = binary("ADD", "broadcast", *(tensor(*shape) for shape in shapes))
    assert read(case.build()).subgraphs[0].outputs[0].dims == expected
