"""Random values of inputs by use: indices, permutations, thresholds, states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_tflite_plugin.errors import InvalidInputs
from onnx_tflite_plugin.graph.serialized import read_onnx
from onnx_tflite_plugin.source.model import Dims, Operator, Options, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.verify.inputs import random_inputs, user_data
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.structure import StoredConstant


class BufferStub:
    """Constant data with FlatBuffers accessors."""

    def __init__(self, *numbers: int) -> None:
        self.stored = np.array(numbers, np.int32)

    def DataLength(self) -> int:
        return self.stored.nbytes

    def DataAsNumpy(self) -> Any:
        return self.stored.view(np.uint8)


def tensor(index: int, dtype: str, shape: tuple[int, ...], dims: Dims | None = None, **fields: Any) -> Tensor:
    return Tensor(0, index, f"t{index}", dtype, shape, shape if dims is None else dims, **fields)


def graph(inputs: tuple[Tensor | None, ...], *outputs: Tensor | None) -> Subgraph:
    return Subgraph(0, "", (), (), (), (Operator(0, 0, "X", "X", 1, Options(), inputs, outputs),))


IDS = tensor(0, "int32", (3,))


@pytest.mark.parametrize(
    ("x", "result", "shape", "is_permutation"),
    [
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "float32", (7, 2, 5)), (3,), True),
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "float32", (7, 2, 11)), (3,), False),
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "float32", (1, 1, 1), (None, 1, 1)), (3,), True),
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "float32", ()), (3,), True),
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "int8", (7, 2, 5)), (3,), False),
        (tensor(1, "float32", (2, 5, 7, 3)), tensor(2, "float32", (7, 2, 5, 3)), (3,), False),
        (tensor(1, "float32", (2, 5, 7)), tensor(2, "float32", (7, 2, 5)), (3, 1), False),
        (tensor(1, "float32", (3,)), tensor(2, "float32", (3,)), (1,), False),
        (tensor(1, "int32", (2, 5, 3)), tensor(2, "int32", (2, 5, 3)), (3,), False),
        (tensor(1, "int32", (2, 5, 1)), tensor(2, "int32", (2, 5, 1)), (3,), False),
        (tensor(1, "int32", (2, 5, 7)), tensor(2, "int32", (2, 5, 7)), (3,), True),
    ],
)
def test_detects_permutation_operands(x: Tensor, result: Tensor, shape: tuple[int, ...], is_permutation: bool) -> None:
    assert random_inputs._is_permutation(graph((x, IDS), result), IDS, shape) is is_permutation
    assert not random_inputs._is_permutation(graph((IDS, x), result), IDS, shape)
    assert not random_inputs._is_permutation(graph((x, IDS, x), result), IDS, shape)


@pytest.mark.parametrize(
    ("table", "result", "rows"),
    [
        (tensor(1, "float32", (11, 7)), tensor(2, "float32", (3, 7)), 11),
        (tensor(1, "float32", (11,)), tensor(2, "float32", (3,)), 11),
        (tensor(1, "float32", (11, 7)), tensor(2, "float32", (3, 5)), 0),
        (tensor(1, "float32", (11, 7)), tensor(2, "int8", (3, 7)), 0),
        (tensor(1, "int32", (11, 7)), tensor(2, "int32", (3, 7)), 0),
        (tensor(1, "float32", ()), tensor(2, "float32", (3,)), 0),
        (None, tensor(2, "float32", (3,)), 0),
    ],
)
def test_detects_row_indices(table: Tensor | None, result: Tensor, rows: int) -> None:
    gather_graph = graph((table, IDS), result, None)
    assert random_inputs._table_length(gather_graph.operators[0], 0) == rows
    if rows:
        assert random_inputs._integer_range(gather_graph, IDS) == (0, rows)


def test_bounds_random_indices_but_not_arithmetic_operands() -> None:
    low, high = random_inputs._integer_range(graph((IDS, IDS), tensor(2, "int32", (3,))), IDS)
    assert low == -high < 0
    gather_graph = graph((tensor(1, "float32", (5, 1, 4)), IDS), tensor(2, "float32", (3, 2)))
    assert random_inputs._integer_range(gather_graph, IDS) == (0, 4)


def test_thresholds_include_compared_constants_and_their_neighbors() -> None:
    bound, other = (
        tensor(1, dtype, (2,), data=StoredConstant(BufferStub(5, 2**31 - 1))) for dtype in ("int32", "int64")
    )
    truth = tensor(2, "bool", (3,))
    assert random_inputs._thresholds(graph((IDS, bound), truth), IDS).tolist() == [4, 5, 6, 2**31 - 2, 2**31 - 1]
    assert random_inputs._thresholds(graph((bound, IDS), truth), IDS).size == 5
    for unrelated_graph in (
        graph((IDS, other), truth),
        graph((IDS, bound, None, bound), truth),
        graph((IDS, bound), tensor(2, "bool", (5,))),
        graph((IDS, bound), tensor(2, "int32", (3,))),
        graph((tensor(7, "int32", (3,)), bound), truth),
    ):
        assert not random_inputs._thresholds(unrelated_graph, IDS).size


@pytest.mark.parametrize(
    ("result", "span"),
    [
        (tensor(2, "int8", (3,), quantization=Quantization((0.5,), (28,))), (-78, 49.5)),
        (tensor(2, "uint8", (3,), quantization=Quantization((2.0,), (5,))), (-10, 500)),
        (tensor(2, "int8", (5,), quantization=Quantization((0.5,), (28,))), None),
        (tensor(2, "int8", (3,), quantization=Quantization((0.5, 1, 2), (0, 0, 0), 0)), None),
        (tensor(2, "float32", (3,)), None),
    ],
)
def test_random_floats_cover_the_range_of_their_quantized_dtype(result: Tensor, span: Any) -> None:
    x = tensor(0, "float32", (3,))
    assert random_inputs._float_range(graph((x,), result), x) == span
    assert random_inputs._float_range(graph((x, tensor(7, "float32", (3,))), result), x) is None


# --- user inputs ------------------------------------------------------------------------------


def test_rejects_complex_for_float_inputs_and_float_for_complex() -> None:
    for dtype, array in (("float32", np.ones(3, np.complex64)), ("complex64", np.ones(3, np.float32))):
        with pytest.raises(InvalidInputs, match=rf"is {dtype} \[3\], not {array.dtype}"):
            user_data._fit_array(tensor(0, dtype, (3,)), "x", array, nan=False)


# --- reading of files -------------------------------------------------------------------------


def test_only_negative_dimensions_are_dynamic() -> None:
    class File:
        def __getattr__(self, name: str) -> Any:
            sizes = {"Shape": [0, 1, 5], "ShapeSignature": [0, -1, 5]}
            for field, numbers in sizes.items():
                if name == f"{field}AsNumpy":
                    return lambda: np.array(numbers)
                if name == f"{field}Length":
                    return lambda: len(numbers)
                if name == field:
                    return lambda k: numbers[k]
            return lambda *of: {"Name": b"t", "Quantization": None, "Buffers": None}.get(name, 0)

    schema = import_optional("ai_edge_litert.schema_py_generated")
    read_tensor = structure._tensor(schema, File(), File(), 0, 0, is_runtime=True)
    assert (read_tensor.shape, read_tensor.dims) == ((0, 1, 5), (0, None, 5))


def test_signature_of_another_subgraph_hides_other_tensors() -> None:
    tensors = tuple(tensor(k, "float32", (3,)) for k in range(3))
    for index, expected_names in ((0, ("t0", "a", "t2")), (1, ("a",))):
        _, names = structure._signature_side(Subgraph(index, "", tensors, (), (), ()), tensors, {"a": 1, "b": 9})
        assert names == expected_names


# --- the converted model ----------------------------------------------------------------------


def accumulating_session(stored: bool, **state: Any) -> OnnxRuntime:
    """Return a session of a stateful model that accumulates its input."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in ("x", "in", "out")]
    constants = [numpy_helper.from_array(np.array([5, 7], np.float32), "in")] if stored else []
    nodes = [helper.make_node("Add", ["x", "in"], ["out"]), helper.make_node("Neg", ["out"], ["y"])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))
    graph = helper.make_graph(nodes, "g", ends[:2], [ends[2], y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    reported = {"input": "in", "output": "out", "dtype": "float32", "shape": [2], **state}
    helper.set_model_props(model, {"onnx_tflite_plugin.state": json.dumps([reported])})
    return OnnxRuntime(model)


@pytest.mark.parametrize(
    ("stored", "state", "first_output"),
    [(False, {}, [-1, -1]), (True, {}, [-6, -8]), (False, {"initial": [2, 3]}, [-3, -4])],
)
def test_initial_state_comes_from_metadata_then_initializer_then_zeros(
    stored: bool, state: dict[str, Any], first_output: list[int]
) -> None:
    session = accumulating_session(stored, **state)
    [y] = session.run([np.ones(2, np.float32)])
    assert y.tolist() == first_output
    [second_y] = session.run([np.ones(2, np.float32)])
    assert second_y.tolist() == [k - 1 for k in first_output]
    session.reset()
    assert session.run([np.ones(2, np.float32)])[0].tolist() == first_output


def test_external_weights_are_read_only_on_request(tmp_path: Path) -> None:
    stored = numpy_helper.from_array(np.ones(300, np.float32), "w")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (300,))
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [y], [stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    assert read_onnx(tmp_path / "m.onnx").graph.initializer[0].raw_data
    (tmp_path / "m.data").unlink()
    assert not read_onnx(tmp_path / "m.onnx", external=False).graph.initializer[0].raw_data
