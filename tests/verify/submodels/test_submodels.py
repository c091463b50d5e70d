"""Submodels on the same inputs: hidden errors are found, rounding is tolerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases.fusions import rotation
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.verify import LiteRT, verify
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.weights import _unpack
from onnx_tflite_plugin.verify.submodels.operands import KINDS, random_operands, rounded_operands
from tests.helpers.control_flow import add_branches
from tests.helpers.verify_graphs import operator, slot, subgraph

SHAPE = (1, 5, 7)


def rare_branch() -> bytes:
    """Return a model with a branch that random inputs do not take."""
    model = ModelBuilder()
    add_branches(model)
    g = model.main
    x, total, condition, y = g.input("x", (1, 5)), g.tensor("s", ()), g.tensor("c", (), "bool"), g.tensor("y", (1, 5))
    g.operator("SUM", [x, g.constant("axes", np.array([0, 1], np.int32))], [total], {"keep_dims": False})
    g.operator("GREATER", [total, g.constant("three", np.float32(300))], [condition])
    g.operator("IF", [condition, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    g.output(y)
    return model.build()


def chain_of_outputs(*codes: str) -> bytes:
    """Return a chain of operators, each of whose results is an output."""
    net = Net()
    x = net.input(tensor(*SHAPE))
    net.output(*(net.call(code, [x], tensor(*SHAPE)) for code in codes))
    return net.build()


def dynamic_range(bias: float = 0.3) -> bytes:
    """Return a model with dynamic-range int8 weights."""
    net = Net()
    x = net.input(tensor(3, 67))
    weights = constant(random_array(31, 67, dtype="int8"), "int8", 0.01)
    y = net.call("FULLY_CONNECTED", [x, weights, constant(np.full(31, bias, np.float32))], tensor(3, 31))
    net.output(net.call("TANH", [y], tensor(3, 31)))
    return net.build()


def change_constants_of_size(proto: onnx.ModelProto, size: int, change: Any) -> onnx.ModelProto:
    constants = [initializer for initializer in proto.graph.initializer if np.prod(initializer.dims) == size]
    assert constants
    for initializer in constants:
        array = numpy_helper.to_array(initializer)
        initializer.CopyFrom(
            numpy_helper.from_array(np.ascontiguousarray(change(array)).astype(array.dtype), initializer.name)
        )
    return proto


def test_compares_a_branch_that_no_input_takes() -> None:
    data = rare_branch()
    proto = otp.convert(data).proto
    assert verify(data, proto).ok
    (branch,) = (node for node in proto.graph.node if node.op_type == "If")
    for attribute in branch.attribute:
        for node in attribute.g.node:
            node.op_type = {"Tanh": "Sigmoid"}.get(node.op_type, node.op_type)
    verification = verify(data, proto)
    assert verification.verdict == "differs"
    assert verification.comparisons[0].ok
    assert verification.diverging is not None
    assert verification.diverging.operator.code == "IF"


def test_detects_swapped_outputs_beyond_the_observed_range() -> None:
    data = chain_of_outputs("RELU", "RELU6")
    proto = otp.convert(data).proto
    inputs = {"x0": np.linspace(-1, 1, 35, dtype=np.float32).reshape(SHAPE)}
    assert verify(data, proto, inputs=inputs).ok
    names = [value.name for value in proto.graph.output]
    for node in proto.graph.node:
        node.output[0] = names[1 - names.index(node.output[0])] if node.output[0] in names else node.output[0]
    assert not verify(data, proto, inputs=inputs).ok


def test_litert_activation_rounding_is_tolerated() -> None:
    data = dynamic_range()
    verification = verify(data, otp.convert(data))
    assert verification.ok, verification.text


@pytest.mark.parametrize(
    ("size", "change"),
    [(31 * 67, lambda w: w * 1.02 if w.dtype == np.float32 else w + (w > 20)), (31, np.zeros_like)],
    ids=["weights off by 2 %", "missing bias"],
)
def test_finds_faults_below_litert_activation_rounding(size: int, change: Any) -> None:
    data = dynamic_range()
    assert verify(data, change_constants_of_size(otp.convert(data).proto, size, change)).verdict == "differs"


def test_names_the_operator_of_a_wrong_submodel() -> None:
    data = chain_of_outputs("ABS", "NEG")
    proto = otp.convert(data).proto
    next(node for node in proto.graph.node if node.op_type == "Neg").op_type = "Exp"
    verification = verify(data, proto)
    assert "operator 1 NEG: " in verification.text
    assert verification.diverging is not None
    assert verification.diverging.operator.code == "NEG"


def test_outputs_decide_without_metadata() -> None:
    data = chain_of_outputs("ABS")
    proto = otp.convert(data).proto
    for info in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        del info.metadata_props[:]
    verification = verify(data, proto)
    assert verification.ok
    assert "the ONNX model does not record which tensors its values hold" in verification.text
    proto.graph.node[0].op_type = "Neg"
    assert verify(data, proto).verdict == "differs"


# --- the cut file -----------------------------------------------------------------------------


def chain() -> tuple[bytes, Any]:
    net = Net()
    x = net.input(tensor(2, 3))
    for code in ("NEG", "EXP", "ABS"):
        x = net.call(code, [x], tensor(2, 3))
    net.output(x)
    data = net.build()
    return data, structure.read(data).main


def test_operators_of_the_cut_file_read_given_operands() -> None:
    data, graph = chain()
    first, second, third = (op.outputs[0].index for op in graph.operators)
    cut_model = SubmodelWriter(data, graph).write(
        graph.operators, [graph.inputs[0].index], [first, second, third], [first, second]
    )
    x, a, b = (np.full((2, 3), value, np.float32) for value in (5, 0, -7))
    results = LiteRT(cut_model, "builtin").run([x, a, b])
    assert [float(result[0, 0]) for result in results] == [-5, 1, 7]


def test_cut_file_without_cuts_computes_the_model() -> None:
    data, graph = chain()
    last = graph.operators[-1].outputs[0].index
    cut_model = SubmodelWriter(data, graph).write(graph.operators, [graph.inputs[0].index], [last])
    (result,) = LiteRT(cut_model, "builtin").run([np.zeros((2, 3), np.float32)])
    assert result.tolist() == np.ones((2, 3)).tolist()


def test_dynamic_range_weights_become_floats() -> None:
    data = dynamic_range(0.0)
    graph = structure.read(data).main
    product, last = (op.outputs[0].index for op in graph.operators)
    array = random_array(3, 67, seed="x")
    cut_model = SubmodelWriter(data, graph).write(
        graph.operators, [graph.inputs[0].index], [product, last], floats=True
    )
    result, _ = LiteRT(cut_model, "builtin").run([array])
    weights = random_array(31, 67, dtype="int8").astype(np.float32) * np.float32(0.01)
    np.testing.assert_allclose(result, array @ weights.T, rtol=1e-4, atol=1e-5)


def test_unpacks_sub_byte_integers_lowest_bits_first() -> None:
    assert _unpack(np.array([0x1F, 0x80], np.uint8), 4, False).tolist() == [-1, 1, 0, -8]
    assert _unpack(np.array([0b11100100], np.uint8), 2, False).tolist() == [0, 1, -2, -1]
    assert _unpack(np.array([255], np.uint8), 8, True).tolist() == [255]
    assert _unpack(np.array([255], np.uint8), 8, False).tolist() == [-1]


# --- operands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (1,), (11, 13)])
def test_random_operands_have_observed_shape_and_dtype(kind: str, shape: tuple[int, ...]) -> None:
    tensors = [slot(0), slot(1, "int8", scale=0.5), slot(2, "bool"), slot(3, "int32"), slot(4, "int16", scale=0.5)]
    observed = {t.index: np.ones(shape, t.dtype) for t in tensors}
    operands = random_operands(kind, subgraph(operator(tensors, [slot(9)])), tensors, observed, ())
    for index, array in operands.items():
        assert (array.shape, array.dtype) == (shape, observed[index].dtype)
    assert not operands[2].any()
    assert np.array_equal(operands[3], observed[3])


def random_floats(kind: str, array: Any) -> Any:
    return random_operands(kind, subgraph(), [slot(0)], {0: np.asarray(array, np.float32)}, ())[0]


def test_random_floats_reach_range_limits_and_8x_maximum() -> None:
    observed = np.linspace(-2, 3, 7)
    assert (random_floats("uniform", observed).min(), random_floats("uniform", observed).max()) == (-2, 3)
    assert (random_floats("wide", observed).min(), random_floats("wide", observed).max()) == (-24, 24)
    assert random_floats("wide", np.abs(observed)).min() == 0
    assert set(random_floats("special", np.full(1000, 2.5)).tolist()) >= {0.0, 0.5, 6.0, 2.5}


@pytest.mark.parametrize(("size", "lowest"), [(1000, 0.0), (15, -1.5)])
def test_special_floats_are_negative_only_if_observed(size: int, lowest: float) -> None:
    assert random_floats("special", np.linspace(0, 2.5, size)).min() == lowest
    assert random_floats("special", np.linspace(-0.5, 2.5, 1000)).min() == -1.5


def test_integral_floats_stay_within_the_observed_range() -> None:
    observed = np.arange(24)
    assert np.array_equal(random_floats("wide", observed), observed)
    uniform = random_floats("uniform", observed)
    assert np.array_equal(uniform, np.rint(uniform))
    assert uniform.max() <= 23


@pytest.mark.parametrize(("dtype", "limit"), [("int32", 46_340), ("int64", 3_037_000_499)])
def test_wide_integers_are_limited_by_their_product(dtype: str, limit: int) -> None:
    x = slot(0, dtype, (5000,))
    observed = {0: np.arange(5000, dtype=dtype)}
    graph = subgraph(operator([x, x], [slot(1, dtype, (5000,))]))
    array = random_operands("wide", graph, [x], observed, ())[0]
    assert 0.9 * limit <= array.max() <= limit
    assert array.min() < -0.9 * limit
    assert np.array_equal(random_operands("uniform", graph, [x], observed, ())[0], observed[0])


@pytest.mark.parametrize(
    ("operands", "result", "is_wide"),
    [
        ([], slot(1, "float32", (500,)), True),
        ([], slot(1, "float32", (500, 3)), False),
        ([], slot(1, "float16", (500,)), False),
        ([slot(2, "float32", (500,))], slot(1, "float32", (500,)), False),
    ],
    ids=["floats of equal shape", "different shape", "different floats", "additional operand"],
)
def test_wide_indices_stay_within_the_observed_range(operands: list[Any], result: Any, is_wide: bool) -> None:
    x = slot(0, "int32", (500,))
    graph = subgraph(operator([x, *operands], [result]))
    assert (random_operands("wide", graph, [x], {0: np.ones(500, np.int32)}, ())[0].max() > 1000) == is_wide


def test_special_floats_include_integers_constants_and_equal_pairs() -> None:
    x, y = slot(0, shape=(5000,)), slot(1, shape=(5000,))
    bound = slot(2, shape=(), values=np.array([0.7], np.float32))
    graph = subgraph(operator([x, bound], [slot(3, "bool", (5000,))]))
    generator = np.random.default_rng(7)
    observed = {k: generator.standard_normal(5000).astype(np.float32) for k in (0, 1)}
    operands = random_operands("special", graph, [x, y], observed, ())
    first, second = operands[0], operands[1]
    assert all((first == value).any() for value in (-1.5, -0.5, 0.0, 0.5, 1.0))
    assert np.count_nonzero(first == np.float32(0.7)) > 100
    assert not (second == np.float32(0.7)).any()
    assert np.count_nonzero(first[1:] == first[:-1]) > 300
    assert np.count_nonzero(first == second) > 50


def test_loop_counter_is_0_once() -> None:
    observed = {0: np.int32(5), 1: np.int32(7)}
    tensors: list[Tensor] = [slot(0, "int32", ()), slot(1, "int32", ())]
    assert random_operands("special", subgraph(), tensors, observed, {0}) == {0: 0, 1: 7}
    assert random_operands("uniform", subgraph(), tensors, observed, {0}) == {0: 5, 1: 7}


def test_operands_with_assumed_values_are_not_random() -> None:
    case = next(case for case in rotation.cases() if case.name.endswith("by tables, basic"))
    data = case.build()
    proto = otp.convert(data).proto
    verification = verify(data, proto)
    assert verification.ok, verification.text
    assert verification.operators == 10
    for node in proto.graph.node:
        for entry in [entry for entry in node.metadata_props if entry.key.endswith(".assumed")]:
            node.metadata_props.remove(entry)
    assert not verify(data, proto).ok


def test_rounded_operands_match_dynamic_quantize_linear() -> None:
    array = np.linspace(-1, 4, 1000, dtype=np.float32)
    rounded = rounded_operands([slot(0), slot(1, "int32")], {0: array, 1: np.int32([3])})
    assert len(np.unique(rounded[0])) == 256
    assert float(np.abs(rounded[0] - array).max()) <= 5 / 255 / 2 * 1.01
    assert rounded[1].tolist() == [3]
    assert rounded_operands([slot(0)], {0: np.zeros(3, np.float32)})[0].tolist() == [0, 0, 0]


def test_integer_network_with_correct_submodels_agrees() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = (
        g.input("x", (3, 17), "int8", quantization=quant(0.02, 3)),
        g.tensor("y", (3, 5), "int8", quantization=quant(0.1, -7)),
    )
    w = g.constant("w", random_array(5, 17, dtype="int8"), quantization=quant(0.01, 0))
    b = g.constant("b", np.arange(5, dtype=np.int32) * 100, quantization=quant(0.0002, 0))
    g.operator("FULLY_CONNECTED", [x, w, b], [y])
    g.output(y)
    assert verify(model.build(), otp.convert(model.build())).ok


def test_compares_remaining_runs_if_builtin_kernels_reject_a_batch() -> None:
    """XNNPACK accepts a batch of 2 with a constant output shape for a batch of 1."""
    net = Net()
    shape, weights = constant(np.int32([1, 10, 14, 3])), constant(random_array(3, 2, 2, 5))
    x = net.input(tensor(None, 5, 7, 5))
    result = tensor(None, 10, 14, 3)
    net.output(net.call("TRANSPOSE_CONV", [shape, weights, x], result, padding="VALID", stride_h=2, stride_w=2))
    verification = verify(net.build(), otp.convert(net.build()))
    assert (verification.verdict, verification.operators) == ("agrees", 1), verification.text


def test_compares_operators_on_complex_numbers() -> None:
    """ONNX Runtime gets LiteRT's complex64 as pairs of floats."""
    net = Net()
    x = net.input(tensor(2, 5, 1, 16))
    spectra = net.call("RFFT2D", [x, constant(np.int32([1, 16]))], tensor(2, 5, 1, 9, dtype="complex64"))
    reshaped = net.call("RESHAPE", [spectra, constant(np.int32([5, 2, 1, 9]))], tensor(5, 2, 1, 9, dtype="complex64"))
    net.output(net.call("COMPLEX_ABS", [reshaped], tensor(5, 2, 1, 9)))
    proto = otp.convert(net.build(), optimize="none").proto
    verification = verify(net.build(), proto)
    assert (verification.verdict, verification.operators, verification.notes) == ("agrees", 3, ()), verification.text
    (sqrt_node,) = (node for node in proto.graph.node if node.op_type == "Sqrt")
    sqrt_node.op_type = "Neg"
    assert verify(net.build(), proto).verdict == "differs"
