"""``ctx.ops``: its stub for editors, and operators adapted to the model's opset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from conformance.builder import ModelBuilder
from conformance.models import Net, Spec, tensor
from onnx_tflite_plugin.api import (
    Behavior,
    Context,
    Dequantized,
    Handler,
    Raw,
    Refusal,
    Transparent,
    builtin,
    handler,
    out,
)
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.schemas import schema_of
from onnx_tflite_plugin.source.dtypes import bits
from onnx_tflite_plugin.targets import TARGETS
from tools.ops_stub import OPSET, STUB, stub

CODE = "CUSTOM.Tried"
X = np.asarray([[2, -3, 5], [-7, 11, -13]], np.float32)


def handler_of(lower: Callable[..., Any], **declared: Any) -> Handler:
    return handler(CODE, max_version=1, **{"layout": Transparent(), "axes": "a b, _ -> a b", **declared})(lower)


def convert_model(lower: Callable[..., Any], opset: int | None = None) -> Conversion:
    """Convert one operator, 2 x 3 to 2 x 3, whose second operand is a single int32."""
    model = Net()
    model.output(model.call(CODE, [tensor(2, 3), tensor(1, dtype="int32")], tensor(2, 3)))
    return convert(model.build(), host=Host(packs="builtin", handlers={CODE: handler_of(lower)}), opset=opset)


def test_stub_matches_the_schemas() -> None:
    if onnx.defs.onnx_opset_version() < OPSET:
        pytest.skip(f"this version of onnx has no opset {OPSET}")
    assert STUB.read_text(encoding="utf-8") == stub(), "python -m tools.ops_stub --write"


# --- opsets ----------------------------------------------------------------------------


def emit(opset: int, op_type: str, *operands: Any, **attributes: Any) -> Any:
    return Emitter(opset, UniqueNames()).emit(op_type, operands, attributes)[0].producer()


@pytest.mark.parametrize(("opset", "operand_count"), [(13, 1), (17, 1), (18, 2), (26, 2)])
@pytest.mark.parametrize("axes_source", ["operand", "array", "attribute"])
def test_axes_are_an_operand_or_an_attribute_by_opset(axes_source: str, opset: int, operand_count: int) -> None:
    axes = {"operand": ([2, 5],), "array": (np.asarray([2, 5]),), "attribute": ()}[axes_source]
    node = emit(opset, "ReduceMax", X, *axes, keepdims=0, **({} if axes else {"axes": [2, 5]}))
    assert len(node.inputs) == operand_count
    emitted_axes = (
        node.attributes["axes"].as_ints() if operand_count == 1 else node.inputs[1].const_value.numpy().tolist()
    )
    assert list(emitted_axes) == [2, 5]
    assert node.attributes["keepdims"].as_int() == 0


@pytest.mark.parametrize("opset", [17, 20])
def test_rank_0_operand_becomes_a_scalar_attribute(opset: int) -> None:
    node = emit(opset, "DFT", np.zeros((1, 2, 3, 2), np.float32), None, np.asarray(2))
    axis = node.attributes["axis"].as_int() if opset < 20 else int(node.inputs[2].const_value.numpy())
    assert axis == 2


def test_absent_operand_becomes_no_attribute() -> None:
    assert "axes" not in emit(13, "ReduceMax", X, None).attributes


def test_runtime_axes_for_an_attribute_name_the_opset_needed() -> None:
    def lower(ctx: Context, x: Any, axis: Any) -> Any:
        return ctx.ops.Add(x, ctx.ops.ReduceMax(x, ctx.ops.Cast(axis, to="int64"), keepdims=1))

    with pytest.raises(
        ConversionError,
        match="needs opset 18, the model has opset 17; try opset=18; the handler's author can declare min_opset=18",
    ):
        convert_model(lower, opset=17)
    assert convert_model(lower, opset=18)


@pytest.mark.parametrize(
    ("op_type", "attributes", "text"),
    [
        ("ReduceMax", {"axis": [1]}, "ReduceMax has no attribute axis; did you mean 'axes'?"),
        ("Reducemax", {}, "ONNX has no operator Reducemax; did you mean 'ReduceMax'?"),
    ],
)
def test_operators_and_attributes_unknown_to_onnx_are_rejected(
    op_type: str, attributes: dict[str, Any], text: str
) -> None:
    with pytest.raises((TypeError, LookupError), match=text):
        emit(17, op_type, X, **attributes)


@pytest.mark.parametrize(
    ("opset", "op_type", "operands", "attributes", "text"),
    [
        (17, "Gelu", (X,), {}, "Gelu needs opset 20"),
        (11, "Celu", (X,), {}, "Celu needs opset 12"),
        (11, "Einsum", (X,), {"equation": "ab->ba"}, "Einsum needs opset 12"),
        (11, "GatherND", (X, np.zeros((2, 1), np.int64)), {"batch_dims": 1}, "GatherND with batch_dims needs opset 12"),
        (11, "Min", (X.astype(np.int32), X.astype(np.int32)), {}, "Min of int32 needs opset 12"),
        (12, "Min", (X, X, X.astype(np.uint8)), {}, ""),
        (13, "Relu", (X.astype(np.int8),), {}, "Relu of int8 needs opset 14"),
        (13, "LogSoftmax", (X.astype(np.int8),), {}, ""),
    ],
)
def test_node_that_needs_a_newer_opset_names_it(
    opset: int, op_type: str, operands: tuple[Any, ...], attributes: dict[str, Any], text: str
) -> None:
    """A dtype that no opset allows is reported by the checks of the finished model."""
    if not text:
        assert emit(opset, op_type, *operands, **attributes).op_type == op_type
        return
    with pytest.raises(Refusal, match=f"^{text}, the model has opset {opset}; try --opset {text.split()[-1]}$"):
        emit(opset, op_type, *operands, **attributes)


def test_operator_of_a_newer_opset_is_decomposed() -> None:
    builder = Emitter(11, UniqueNames())
    values = [builder.constant(X), builder.constant(-X)]
    builder.emit("GreaterOrEqual", values, {})
    assert [node.op_type for node in builder.nodes] == ["Greater", "Equal", "Or"]
    assert emit(12, "GreaterOrEqual", *values).op_type == "GreaterOrEqual"


def test_operand_required_in_older_opsets_is_an_empty_constant() -> None:
    sizes = np.asarray([3, 5])
    node_11, node_13 = (emit(opset, "Resize", X, None, None, sizes, mode="linear") for opset in (11, 13))
    assert [operand is None for operand in node_13.inputs] == [False, True, True, False]
    assert [operand.const_value.size for operand in node_11.inputs[1:]] == [0, 0, 2]


# --- other domains ------------------------------------------------------------------------------


def test_operator_of_the_onnx_runtime_domain_runs() -> None:
    def lower(ctx: Context, x: Any, _axis: Any) -> Any:
        return ctx.ops.domain("com.microsoft").QuickGelu(x, alpha=1.5)

    conversion = convert_model(lower)
    (node,) = conversion.proto.graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", "QuickGelu")
    session = onnxruntime.InferenceSession(conversion.proto.SerializeToString())
    (y,) = session.run(None, {"x0": X, "x1": np.zeros(1, np.int32)})
    np.testing.assert_allclose(y, X / (1 + np.exp(-1.5 * X)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "INT"),
        (0.5, "FLOAT"),
        ("tanh", "STRING"),
        ([2, 3], "INTS"),
        ([0.5, 2.0], "FLOATS"),
        (np.zeros((2, 3), np.int8), "TENSOR"),
    ],
)
def test_attributes_of_another_domain_keep_the_type_of_the_value(value: Any, kind: str) -> None:
    node = Emitter(17, UniqueNames()).emit("Own", [X], {"given": value}, domain="com.example")[0].producer()
    assert node is not None
    assert node.attributes["given"].type.name == kind


# --- operands -----------------------------------------------------------------------------------


def test_missing_required_constant_is_refused_by_name() -> None:
    with pytest.raises(ConversionError, match=r"operand 1 \('.*'\) must be a constant"):
        convert_model(lambda ctx, x, axis: ctx.ops.Mul(x, ctx.require_constant(1).astype(np.float32)))


def test_array_in_place_of_a_value_is_rejected() -> None:
    with pytest.raises(
        ConversionError, match=r"a ndarray is not a value of the model; make constants with ctx.constant_value"
    ):
        convert_model(lambda ctx, x, axis: ctx.reshape_to_slot(X, 0))


# --- dtypes without a kernel --------------------------------------------------------------------


def emitted_types(op_type: str, *operands: Any, opset: int = 18, **attributes: Any) -> tuple[list[str], str]:
    """Return the node types emitted for ONNX Runtime, and the first output's dtype."""
    emitter = Emitter(opset, UniqueNames(), TARGETS["onnxruntime"].wider_dtypes)
    graph_inputs = [
        emitter.register(set_type(ir.Value(name=f"x{k}"), a.dtype.name, a.shape)) for k, a in enumerate(operands)
    ]
    y = emitter.emit(op_type, graph_inputs, attributes)[0]
    assert y.type is not None
    return [node.op_type for node in emitter.nodes], y.type.dtype.name


INT16_ARRAY, BOOL_ARRAY = np.zeros((2, 3), np.int16), np.zeros((2, 3), bool)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "op_types", "dtype"),
    [
        ("Max", (INT16_ARRAY, INT16_ARRAY), {}, ["Cast", "Cast", "Max", "Cast"], "INT16"),
        ("Max", (X, X), {}, ["Max"], "FLOAT"),
        ("Less", (INT16_ARRAY, INT16_ARRAY), {}, ["Cast", "Cast", "Less"], "BOOL"),
        ("ArgMax", (BOOL_ARRAY,), {}, ["Cast", "ArgMax"], "INT64"),
        ("Where", (BOOL_ARRAY, BOOL_ARRAY, BOOL_ARRAY), {}, ["Cast", "Cast", "Where", "Cast"], "BOOL"),
        ("Where", (BOOL_ARRAY, X, X), {}, ["Where"], "FLOAT"),
        ("Unique", (INT16_ARRAY,), {"sorted": 0}, ["Cast", "Unique", "Cast"], "INT16"),
    ],
)
def test_dtype_without_a_kernel_is_widened(
    op_type: str, operands: Any, attributes: Any, op_types: list[str], dtype: str
) -> None:
    assert emitted_types(op_type, *operands, **attributes) == (op_types, dtype)


def test_scatter_is_widened_only_with_a_reduction() -> None:
    indices = np.zeros((2, 3), np.int64)
    assert emitted_types("ScatterElements", BOOL_ARRAY, indices, BOOL_ARRAY, reduction="max")[0] == [
        "Cast",
        "Cast",
        "ScatterElements",
        "Cast",
    ]
    assert emitted_types("ScatterElements", BOOL_ARRAY, indices, BOOL_ARRAY)[0] == ["ScatterElements"]


def test_handler_constants_are_widened() -> None:
    emitter = Emitter(18, UniqueNames(), TARGETS["onnxruntime"].wider_dtypes)
    x = emitter.register(set_type(ir.Value(name="x"), "int16", (2, 3)))
    emitter.emit("Max", [x, np.asarray(7, np.int16)], {})
    assert [node.op_type for node in emitter.nodes] == ["Cast", "Max", "Cast"]
    constant = emitter.nodes[1].inputs[1]
    assert constant is not None
    assert constant.dtype is not None
    assert constant.dtype.name == "INT32"


def test_widening_tables_name_onnx_operators_and_wider_dtypes() -> None:
    for target in TARGETS.values():
        for key, dtypes in target.wider_dtypes.items():
            name, _, reduction = key.partition("/")
            attributes = onnx.defs.get_schema(name, 26).attributes
            assert not reduction or "reduction" in attributes
            for narrow, wide in dtypes.items():
                assert bits(wide) > bits(narrow) or (narrow, wide) == ("bool", "uint8"), (target.name, key)


def test_required_constant_may_be_absent() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", X.shape), g.tensor("y", (2, 5))
    g.operator("FULLY_CONNECTED", [x, g.constant("w", np.ones((5, 3), np.float32)), None], [y])
    g.output(y)
    handler_that_requires = replace(builtin("FULLY_CONNECTED"), requires_constant={1, 2})
    host = Host(packs="builtin", handlers={"FULLY_CONNECTED": handler_that_requires})
    assert [node.op_type for node in convert(model.build(), host=host).proto.graph.node] == ["Gemm"]


# --- results in the tensor's shape ----------------------------------------------------------------


def convert_dynamic(lower: Callable[..., Any]) -> Conversion:
    """Convert an operator of operands [?, 3, 1] and [?, 1, ?] whose output is [?, ?]."""
    model = Net()
    operands = [tensor(None, 3, 1), tensor(None, 1, None)]
    model.output(model.call(CODE, operands, tensor(None, None)))
    declared = handler_of(lower, axes=None)
    return convert(model.build(), host=Host(packs="builtin", handlers={CODE: declared}))


def test_dynamic_operand_is_squeezed_to_its_shape() -> None:
    graph = convert_dynamic(lambda ctx, _, x: ctx.reshape_to_slot(x, out(0))).model.graph
    assert [node.op_type for node in graph] == ["Squeeze"]


@pytest.mark.parametrize("x_is_computed", [True, False])
def test_ambiguous_reshape_of_dynamic_dimensions_is_refused(x_is_computed: bool) -> None:
    with pytest.raises(ConversionError, match=r"more than one dynamic dimension.*give input shapes with input_shape"):
        convert_dynamic(lambda ctx, x, y: ctx.reshape_to_slot(ctx.ops.Neg(y) if x_is_computed else x, out(0)))


# --- scalars with the dtype of a slot ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operand", "other_operand", "behavior", "expected"),
    [
        (tensor(2, 3), tensor(2, 3), Dequantized(), "float32"),
        (tensor(2, 3, dtype="float16"), tensor(2, 3), Dequantized(), "float16"),
        (tensor(2, 3, dtype="bfloat16"), tensor(2, 3), Dequantized(), "bfloat16"),
        (tensor(2, 3, dtype="int32"), tensor(2, 3), Dequantized(), "int32"),
        (tensor(2, 3, dtype="int32"), tensor(2, 3, dtype="int8", scale=0.5), Dequantized(), "int32"),
        (tensor(2, 3, dtype="int8", scale=0.5), tensor(2, 3), Dequantized(), "float32"),
        (tensor(2, 3, dtype="int8", scale=0.5), tensor(2, 3), Raw(), "int8"),
    ],
)
def test_scalar_has_the_dtype_of_its_slot(
    operand: Spec, other_operand: Spec, behavior: Behavior, expected: str
) -> None:
    """The dtypes of other operands do not matter."""
    scalar_dtypes = []

    def lower(ctx: Context, _x: Any, y: Any) -> Any:
        scalar_dtypes.append(ctx.scalar(3).dtype.name)
        return ctx.ops.Identity(y)

    model = Net()
    model.output(model.call(CODE, [operand, other_operand], other_operand))
    declared = handler_of(lower, axes="a b, a b -> a b", quantization=behavior)
    convert(model.build(), host=Host(packs="builtin", handlers={CODE: declared}))
    assert scalar_dtypes == [expected]


@pytest.mark.parametrize(
    ("domain", "full_name"),
    [
        ("", "Nothing"),
        ("ai.onnx.ml", "ai.onnx.ml.Nothing"),
        ("ai.onnx.preview.training", "ai.onnx.preview.training.Nothing"),
    ],
)
def test_operator_without_a_schema_in_a_known_domain_is_refused(domain: str, full_name: str) -> None:
    with pytest.raises(LookupError, match=f"ONNX has no operator {full_name}"):
        schema_of("Nothing", 1, domain)
    assert schema_of("Nothing", 1, "com.microsoft") is None


def test_misspelled_dtype_of_a_cast_has_a_suggestion() -> None:
    with pytest.raises(ConversionError, match="'flaot32' is not a dtype; did you mean 'float32'"):
        convert_model(lambda ctx, x, axis: ctx.ops.Cast(x, to="flaot32"), opset=18)
