"""Random inputs end to end, and how sessions receive them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from onnx import helper

from conformance.builder import ModelBuilder, quant
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.errors import (
    InvalidInputs,
    VerificationError,
)
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime, generate_inputs, verify
from onnx_tflite_plugin.verify.inputs.random_inputs import Restriction
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.times.bench import bench
from tests.helpers.verify_pairs import INT32, build_chain, build_model, channels_first, onnx_model


class TestInputs:
    def entry(self, build: Callable[[Any], None]) -> structure.Entry:
        return structure.entry(structure.read(build_model(build)))

    def test_seed_determines_random_inputs(self) -> None:
        entry = self.entry(build_chain)
        first, same_seed, other_seed = (generate_inputs(entry, seed=seed, runs=2) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, same_seed)
        assert not np.array_equal(first, other_seed)
        assert not np.array_equal(first[0], first[1])

    def test_scalar_inputs_are_arrays(self) -> None:
        def build(g: Any) -> None:
            for dtype in ("float32", "int8", "int32", "bool"):
                g.input(dtype, (), dtype)

        for restriction in get_args(Restriction):
            assert all(
                isinstance(x, np.ndarray) for x in generate_inputs(self.entry(build), restriction=restriction)[0]
            )

    def test_scalar_string_reaches_litert_unchanged(self) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (), "string"), g.tensor("y", (1,), "string")
            g.operator("RESHAPE", [x, g.constant("shape", np.array([1], np.int32))], [y], {"new_shape": [1]})
            g.output(y)

        data = build_model(build)
        for text in (None, {"x": np.asarray("žluťoučký", object)}):
            verification = verify(data, convert(data).proto, inputs=text)
            assert verification.ok, verification.text

    @pytest.mark.parametrize("sizes_are_constant", [True, False])
    def test_sparse_indices_are_sorted_and_within_bounds(self, sizes_are_constant: bool) -> None:
        def build(g: Any) -> None:
            ids, coordinates = g.input("ids", (23,), "int32"), g.input("places", (23, 3), "int32")
            sizes = (
                g.constant("sizes", np.array([2, 3, 5], np.int32))
                if sizes_are_constant
                else g.input("sizes", (3,), "int32")
            )
            weights, table = g.input("weights", (23,)), g.input("table", (7, 11))
            y = g.tensor("y", (2, 3, 11))
            g.operator("EMBEDDING_LOOKUP_SPARSE", [ids, coordinates, sizes, weights, table], [y], {"combiner": "SUM"})

        entry = self.entry(build)
        inputs = dict(zip(entry.input_names, generate_inputs(entry)[0], strict=True))
        sizes = (2, 3, 5) if sizes_are_constant else tuple(inputs["sizes"])
        assert sizes[:2] == (2, 3)
        assert (np.diff(np.ravel_multi_index(tuple(inputs["places"].T), sizes)) >= 0).all()
        assert len(np.unique(inputs["places"], axis=0)) > 5

    def test_random_values_suit_their_dtype(self) -> None:
        def build(g: Any) -> None:
            for dtype in ("float32", "int8", "uint8", "int16", "int32", "bool", "string", "complex64", "int4"):
                g.input(dtype, (4, 500), dtype)

        entry = self.entry(build)
        inputs = dict(zip(entry.input_names, generate_inputs(entry)[0], strict=True))
        assert abs(inputs["float32"].mean()) < 0.1
        assert [inputs[dtype].dtype.name for dtype in ("int8", "uint8", "int16", "int32")] == [
            "int8", "uint8", "int16", "int32",
        ]  # fmt: skip
        assert (inputs["int8"].min(), inputs["int8"].max(), inputs["uint8"].max()) == (-128, 127, 255)
        assert np.abs(inputs["int16"].astype(int)).max() > 32000
        assert (inputs["int4"].dtype.name, inputs["int4"].min(), inputs["int4"].max()) == ("int8", -8, 7)
        assert set(inputs["bool"].reshape(-1).tolist()) == {True, False}
        assert all(isinstance(item, str) for item in inputs["string"].flat)
        assert inputs["complex64"].dtype == np.complex64

    def test_random_indices_stay_within_bounds(self) -> None:
        def build(g: Any) -> None:
            ids, rows = g.input("ids", (7,), "int32"), g.tensor("rows", (7, 4))
            g.operator("GATHER", [g.constant("table", np.ones((5, 4), np.float32)), ids], [rows], {"axis": 0})
            left, right, total = (make("n", (50,), "int32") for make in (g.input, g.input, g.tensor))
            g.operator("ADD", [left, right], [total])
            g.output(rows)

        entry = self.entry(build)
        for seed in range(5):
            ids, left, _ = generate_inputs(entry, seed=seed)[0]
            assert ids.min() >= 0
            assert ids.max() < 5
            assert left.min() < 0

    def test_random_integers_include_compared_constants(self) -> None:
        """Fully random integers do not distinguish LESS from LESS_EQUAL."""
        limits = np.iinfo(np.int32)

        def build(g: Any) -> None:
            for code, number in {"LESS": 100_003, "GREATER": limits.max, "EQUAL": limits.min}.items():
                x, y = g.input(code, (300,), "int32"), g.tensor(f"of {code}", (300,), "bool")
                g.operator(code, [x, g.constant(f"{code} than", np.full(300, number, np.int32))], [y])
                g.output(y)

        less, greater, equal = generate_inputs(self.entry(build))[0]
        assert {100_002, 100_003, 100_004} < {*less.tolist()}
        assert {limits.max - 1, limits.max} < {*greater.tolist()}
        assert {limits.min, limits.min + 1} < {*equal.tolist()}
        assert limits.min not in greater
        assert 40 < np.count_nonzero(np.abs(less) < 100) < 260  # other values occur too

    def test_uncompared_integers_ignore_constants(self) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (300,), "int32"), g.tensor("y", (300,), "int32")
            g.operator("ADD", [x, g.constant("c", np.full(300, 100_003, np.int32))], [y])
            g.output(y)

        ((x,),) = generate_inputs(self.entry(build))
        assert np.abs(x).max() <= 10

    @pytest.mark.parametrize("dims", [(None,) * 4, ()])
    def test_random_permutation_operand_is_a_permutation(self, dims: tuple[None, ...]) -> None:
        def build(g: Any) -> None:
            x, perm = g.input("x", (2, 3, 5, 7)), g.input("perm", (4,), "int32")
            y = g.tensor("y", dims)
            g.operator("TRANSPOSE", [x, perm], [y])
            g.output(y)

        perms = {tuple(run[1].tolist()) for run in generate_inputs(self.entry(build), runs=20)}
        assert len(perms) > 5
        assert {tuple(sorted(perm)) for perm in perms} == {(0, 1, 2, 3)}

    def test_float_input_of_quantize_covers_its_range(self) -> None:
        def build(g: Any) -> None:
            x, q = g.input("x", (500,)), g.tensor("q", (500,), "uint8", quantization=quant(2.0, 10))
            g.operator("QUANTIZE", [x], [q])
            g.output(q)

        (values,) = generate_inputs(self.entry(build))[0]
        assert -20 <= values.min() < -10
        assert 480 < values.max() <= 490

    def test_rejected_random_integers_become_smaller(self) -> None:
        def build(g: Any) -> None:
            x, y, z = g.input("x", (100,), "int32"), g.input("y", (100,), "int32"), g.tensor("z", (100,), "int32")
            g.operator("DIV", [x, y], [z])
            g.output(z)

        model = onnx_model(
            [helper.make_node("Div", ["x", "y"], ["z"])],
            [helper.make_tensor_value_info(name, INT32, [100]) for name in "xy"],
            [helper.make_tensor_value_info("z", INT32, [100])],
        )
        assert verify(build_model(build), model).ok

    def test_rejects_arrays_that_do_not_fit(self, tmp_path: Path) -> None:
        entry = self.entry(build_chain)
        with pytest.raises(InvalidInputs, match="no input is called 'a', 'b'; the model's inputs are x"):
            generate_inputs(entry, user_inputs={"a": 1, "b": 2})
        with pytest.raises(InvalidInputs, match=r"is float32 \[1, 2, 3, 5\], but the given array has shape \[1\]"):
            generate_inputs(entry, user_inputs={"x": [1.0]})
        with pytest.raises(InvalidInputs, match="cannot be read"):
            generate_inputs(entry, user_inputs=tmp_path / "absent.npy")
        integers = self.entry(lambda g: g.input("x", (2,), "int32"))
        with pytest.raises(InvalidInputs, match=r"is int32 \[2\], not float64"):
            generate_inputs(integers, user_inputs={"x": [1.5, 2]})
        assert generate_inputs(integers, user_inputs={"x": [1, 2]})[0][0].dtype == np.int32


def test_tensor_value_restores_layout_and_shift() -> None:
    stored = np.arange(-3, 3, dtype=np.int8).reshape(1, 2, 3)
    value = TensorValue("v", 0, 0, order=(0, 2, 1), shift=128)
    converted = value.apply(stored)
    assert (converted.dtype.name, converted.shape) == ("uint8", (1, 3, 2))
    restored = value.restore(converted, np.dtype(np.int8))
    assert restored is not None
    np.testing.assert_array_equal(restored, stored)
    assert TensorValue("v", 0, 0, order=(0, 2, 1)).restore(np.zeros((2, 2)), np.dtype(np.float32)) is None


def test_litert_keeps_intermediate_tensors_only_without_xnnpack() -> None:
    session = LiteRT(build_model(build_chain), "reference", preserve=True)
    x = np.ones((1, 2, 3, 5), np.float32)
    (y,) = session.run({"x": x})
    tensors = session.tensors()
    np.testing.assert_array_equal(tensors[1], x + np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(-tensors[1], tensors[2])
    np.testing.assert_array_equal(y, tensors[3])
    with pytest.raises(ValueError, match="does not keep"):
        LiteRT(build_model(build_chain), preserve=True)


def test_resource_handles_are_not_read_as_arrays() -> None:
    """LiteRT's Python API reads their memory as an address of an object."""

    def build(g: Any) -> None:
        x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
        handles = [g.tensor(f"handle{k}", (), "resource") for k in range(20)]
        for k, handle in enumerate(handles):
            g.operator("VAR_HANDLE", [], [handle], {"shared_name": f"v{k}"})
            g.operator("ASSIGN_VARIABLE", [handle, x], [])
        g.operator("NEG", [x], [y])
        g.output(y)

    session = LiteRT(build_model(build), "builtin", preserve=True)
    session.run({"x": np.ones((2, 3), np.float32)})
    assert session.tensors().keys() == {0, 1}


def test_onnx_runtime_returns_requested_values() -> None:
    session = OnnxRuntime(channels_first(), keep=["sum", "y"])
    (y,) = session.run([np.ones((1, 2, 3, 5), np.float32)])
    assert session.values()["sum"].shape == (1, 5, 2, 3)
    np.testing.assert_array_equal(session.values()["y"], y)


def test_importing_verify_imports_no_runtime() -> None:
    code = "import sys, onnx_tflite_plugin.verify; assert not {'onnxruntime', 'ai_edge_litert'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dynamic_images_are_verified_at_a_realistic_size() -> None:
    """With a dynamic height and width stored as 1, a 3 x 3 window has no output."""
    model = Net()
    window = constant(random_array(4, 3, 3, 3))
    result = tensor(1, None, None, 4)
    operands = [tensor(1, None, None, 3), window, constant(random_array(4))]
    model.output(model.call("CONV_2D", operands, result, padding="VALID", stride_h=1, stride_w=1))
    data = model.build()
    verification = verify(data, convert(data).proto)
    assert verification.ok
    assert verification.runs == 4
    assert "kernels), 4 runs, the last one with other sizes\n" in verification.text
    assert "run 4 with other sizes of dynamic dimensions: x0 [1, 225, 226, 3]" in verification.text
    with pytest.raises(VerificationError, match="cannot run the model"):
        verify(data, convert(data).proto, shapes={"x0": (1, 2, 2, 3)})
    benchmark = bench(data, convert(data), rounds=3)
    assert benchmark.litert.median > 0 < benchmark.onnxruntime.median


def test_dynamic_dimensions_stored_as_0_run_as_1() -> None:
    """An empty image would test nothing, and some ONNX Runtime kernels reject it."""
    model = ModelBuilder()
    stored, shape_signature = (2, 1, 0, 3), (2, -1, -1, 3)
    parameters = quant(0.05, 122)
    x = model.main.input("x0", stored, "uint8", quantization=parameters, signature=shape_signature)
    y = model.main.tensor("y0", stored, "uint8", quantization=parameters, signature=shape_signature)
    pool = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "filter_height": 3, "filter_width": 2}
    model.main.operator("MAX_POOL_2D", [x], [y], pool)
    model.main.output(y)
    data = model.build()
    assert not LiteRT(data, "builtin").run([np.zeros(stored, np.uint8)])[0].size
    verification = verify(data, convert(data))
    assert verification.ok
    assert "run 4 with other sizes of dynamic dimensions: x0 [2, 225, 226, 3]" in verification.text


def test_skips_dynamic_sizes_that_neither_runtime_accepts() -> None:
    """The number of segment indices must be the number of rows, which is static."""
    model = Net()
    ids = tensor(None, dtype="int32", name="ids")
    model.output(model.call("UNSORTED_SEGMENT_SUM", [tensor(1, 5), ids, constant(np.int32(3))], tensor(None, 5)))
    data = model.build()
    verification = verify(data, convert(data))
    assert verification.ok
    assert verification.runs == 3
    assert "both runtimes reject these sizes of dynamic dimensions: ids [2]" in verification.text
