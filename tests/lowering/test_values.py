"""Values are derived once, and again after their tensor is assigned."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder
from conformance.models import Net, Spec, constant
from onnx_tflite_plugin.api import Transparent, handler
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.tensor_layout import layout_of_permutation, source_layout
from onnx_tflite_plugin.lowering.arrays import replace_zero_scales
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.values import STORED, Values
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.quantization.storage import Storage
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import verify
from tests.helpers.single_output import build_model

DIMS = (2, 3)
TRANSPOSED = layout_of_permutation(DIMS, (1, 0))


def empty_values(target: str = "onnxruntime", opset: int = 18) -> tuple[Emitter, Values]:
    """Return an emitter without nodes, and its values."""
    emitter = Emitter(opset, UniqueNames(), TARGETS[target].wider_dtypes)
    return emitter, Values(emitter, StoragePlan(TARGETS[target], {}, {}))


def test_reading_a_variable_after_a_write_returns_the_new_value() -> None:
    emitter, values = empty_values()
    variable = Tensor(0, 0, "v", "float32", DIMS, DIMS, None, None, True)
    transposed = []
    for name in ("before", "after"):
        value = emitter.register(set_type(ir.Value(name=name), "float32", DIMS))
        values.put(variable, value, source_layout(DIMS), STORED)
        transposed += [values.get(variable, TRANSPOSED), values.get(variable, TRANSPOSED)]
        node = transposed[-1].producer()
        assert node is not None
        assert (node.op_type, node.inputs[0]) == ("Transpose", value)
    assert transposed[0] is transposed[1]
    assert transposed[2] is transposed[3]
    assert transposed[0] is not transposed[2]


def test_layouts_are_derived_from_the_value_of_the_producer() -> None:
    """Layouts are not derived from each other unless they differ only in unit axes."""
    emitter, values = empty_values()
    dims = (2, 3, 5, 1)
    tensor, value = (
        Tensor(0, 0, "t", "float32", dims, dims),
        emitter.register(set_type(ir.Value(name="t"), "float32", dims)),
    )
    values.put(tensor, value, source_layout(dims), STORED)
    layouts = [layout_of_permutation(dims, perm) for perm in ((1, 0, 2, 3), (2, 1, 0, 3), (1, 3, 0, 2))]
    first_transpose, second_transpose, unit_axis_move = (values.get(tensor, layout).producer() for layout in layouts)
    assert first_transpose is not None
    assert second_transpose is not None
    assert unit_axis_move is not None
    assert (first_transpose.inputs[0], second_transpose.inputs[0]) == (value, value)
    assert unit_axis_move.inputs[0] is first_transpose.outputs[0]


def test_forwarded_operand_keeps_its_known_sizes() -> None:
    emitter, values = empty_values()
    value = emitter.register(set_type(ir.Value(name="x"), "float32", (None, 3)))
    for name, dims in (("x", (None, 3)), ("y", (None, None))):
        values.put(Tensor(0, 0, name, "float32", (2, 3), dims, None, None, False), value, source_layout(dims), STORED)
    assert value.shape == ir.Shape([None, 3])


def test_reshape_to_size_0_does_not_copy_the_operand_size() -> None:
    """In Reshape, 0 copies the operand's size at that axis unless allowzero is set."""
    emitter, values = empty_values()
    x = emitter.register(set_type(ir.Value(name="x"), "float32", (3, 0)))
    y = values.conversions.reshape(x, (3, 0), (0, 2, 3))
    y.name, x.name = "y", "x"
    inputs = [x, *(value for node in emitter.nodes for value in node.inputs if value is not None and value.const_value)]
    graph = ir.Graph([x], [set_type(y, "float32", (0, 2, 3))], nodes=emitter.nodes, opset_imports={"": 18})
    for value in inputs[1:]:
        graph.register_initializer(value)
    proto = ir.to_proto(ir.Model(graph, ir_version=9))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros((3, 0), np.float32)})[0].shape == (0, 2, 3)


def test_generated_names_do_not_collide_with_file_names() -> None:
    def chain(g: GraphBuilder) -> int:
        t = g.input("x", (2, 3))
        for code, name in (("ABS", "t"), ("NEG", "t"), ("EXP", "t#1"), ("FLOOR", "t")):
            operand, t = t, g.tensor(name, (2, 3))
            g.operator(code, [operand], [t])
        return t

    conversion = otp.convert(build_model(chain))
    assert len({value.name for node in conversion.model.graph for value in node.outputs}) == 4
    assert verify(build_model(chain), conversion).ok


@pytest.mark.parametrize(("old_dims", "new_dims"), [((None, 2, None), (2, None, None)), ((None, 6), (None, 2, None))])
def test_reshape_with_reordered_dynamic_sizes_is_rejected(
    old_dims: tuple[int | None, ...], new_dims: tuple[int | None, ...]
) -> None:
    """A Reshape can infer only one size. Axes of size 1 may be inserted or removed."""
    emitter, values = empty_values()
    x = emitter.register(set_type(ir.Value(name="x"), "float32", old_dims))
    with pytest.raises(ValueError, match="more than one dynamic size"):
        values.conversions.reshape(x, old_dims, new_dims)


@pytest.mark.parametrize(("dtype", "node_count"), [("int8", 2), ("int4", 3)])
def test_clip_is_emitted_only_before_4_bit_quantization(dtype: str, node_count: int) -> None:
    """ONNX Runtime drops a Relu before 4-bit QuantizeLinear."""
    emitter, values = empty_values("generic", 21)
    x = emitter.register(set_type(ir.Value(name="x"), "float32", DIMS))
    relu = emitter.emit("Relu", [x], {})[0]
    storage = Storage(dtype, 0, Quantization((0.25,), (3,), 0))
    assert values.conversions.quantize(relu, storage, source_layout(DIMS)).dtype == ir.DataType[dtype.upper()]
    assert len(emitter.nodes) == node_count


RESCALED = [
    (dtype, code, final_scale)
    for dtype in ("int8", "uint8")
    for code in ("RELU", "RELU6", "QUANTIZE")
    for final_scale in (0.0018, 0.011, 1e-4)  # with the last, QUANTIZE has no table
]


@pytest.mark.parametrize(("dtype", "code", "final_scale"), RESCALED)
def test_values_rescaled_twice_are_rounded_twice(dtype: str, code: str, final_scale: float) -> None:
    """ONNX Runtime merges two adjacent Q/DQ pairs."""
    lowest = np.iinfo(dtype).min
    net = Net()
    operands = [
        net.input(Spec((3, 13), dtype, 0.0235, lowest + 127)),
        constant(np.array([168 + lowest]).astype(dtype), None, 0.02, lowest + 148),
    ]
    difference = net.call("SUB", operands, Spec((3, 13), dtype, 0.08, lowest + 148))
    rescaled = net.call(code, [difference], Spec((3, 13), dtype, final_scale, lowest))
    net.output(rescaled, net.call("ADD", [rescaled, rescaled], Spec((3, 13), dtype, 2.5 * final_scale, lowest + 20)))
    data = net.build()
    assert verify(data, otp.convert(data)).ok


def test_forwarded_value_keeps_the_name_of_the_first_tensor() -> None:
    def chain(g: GraphBuilder) -> int:
        t = g.input("x", (2, 3))
        for code, name in (("ABS", "magnitude"), ("RELU", "forwarded"), ("NEG", "y")):
            operand, t = t, g.tensor(name, (2, 3))
            g.operator(code, [operand], [t])
        return t

    forward_operand = handler("RELU", max_version=2, layout=Transparent())(lambda ctx, x: x)
    graph = otp.convert(build_model(chain), host=Host(packs="builtin", handlers={"RELU": forward_operand})).model.graph
    assert [node.outputs[0].name for node in graph] == ["magnitude", "y"]
    metadata = read_tensor("magnitude", graph[0].outputs[0].metadata_props)
    assert metadata is not None
    assert metadata.tensor == 1


@pytest.mark.parametrize(
    ("old_dims", "new_dims", "op_types"),
    [
        ((2, 3), (2, 1, 3, 1), ["Unsqueeze"]),
        ((1, 2, 3), (2, 3), ["Squeeze"]),
        ((2, 1, 3), (1, 2, 3), ["Reshape"]),
        ((2, 3), (2, 2, 3), ["Reshape"]),
        ((2, 3), (3, 2), ["Reshape"]),
        ((None, 1, None), (1, None, None), ["Squeeze", "Unsqueeze"]),
    ],
)
def test_unit_axes_are_inserted_and_removed_without_a_shape(
    old_dims: tuple[int | None, ...], new_dims: tuple[int | None, ...], op_types: list[str]
) -> None:
    emitter, values = empty_values()
    values.conversions.reshape(emitter.register(set_type(ir.Value(name="x"), "float32", old_dims)), old_dims, new_dims)
    assert [node.op_type for node in emitter.nodes] == op_types


def test_scale_0_is_replaced_by_1() -> None:
    """0 means no scale, and division by it is impossible."""
    storage = Storage("int8", 0, Quantization((0.0, 0.5), (3, 5), 0))
    parameters = replace_zero_scales(storage).quantization
    assert parameters == Quantization((1.0, 0.5), (3, 5), 0)
    assert replace_zero_scales(storage._replace(quantization=parameters)).quantization is parameters
