"""Whole verifications of hand-made pairs of models, and the parts that run and feed them."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.builder import ModelBuilder, quant
from conformance.models import Net, constant, drawn, tensor
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.errors import (
    InvalidInputs,
    InvalidModel,
    InvalidOnnx,
    MissingExtra,
    UnsupportedOption,
    VerificationError,
)
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import (
    LiteRT,
    OnnxRuntime,
    OrtError,
    Tolerance,
    draw,
    structure,
    verify,
)
from onnx_tflite_plugin.verify.bench import bench

FLOAT, INT8, UINT8, INT32 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32


def built(build: Callable[[Any], None], name: str = "") -> bytes:
    model = ModelBuilder(name)
    build(model.main)
    return model.build()


def chained(g: Any) -> None:
    """x + c, negated, absolute."""
    x = g.input("x", (1, 2, 3, 5))
    tensors = [g.tensor(name, (1, 2, 3, 5)) for name in ("sum", "negated", "y")]
    g.operator("ADD", [x, g.constant("c", np.arange(5, dtype=np.float32))], [tensors[0]])
    g.operator("NEG", [tensors[0]], [tensors[1]])
    g.operator("ABS", [tensors[1]], [tensors[2]])
    g.output(tensors[2])


def annotated(name: str, kind: int, shape: Sequence[int | str], **notes: Any) -> onnx.ValueInfoProto:
    info = helper.make_tensor_value_info(name, kind, shape)
    for key, value in notes.items():
        info.metadata_props.add(key=f"onnx_tflite_plugin.{key}", value=str(value))
    return info


def onnx_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Array] | None = None,
    values: Sequence[onnx.ValueInfoProto] = (),
    state: object = None,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored, value_info=values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if state is not None:
        helper.set_model_props(model, {"onnx_tflite_plugin.state": json.dumps(state)})
    return model


def channels_first(offset: float = 0.0, middle: str = "Neg", scale: float = 1.0) -> onnx.ModelProto:
    """``chained`` as a converter might write it: transposed, with its values annotated."""
    constant = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    constant[3] += offset
    nodes = [
        helper.make_node("Transpose", ["x"], ["xt"], perm=[0, 3, 1, 2]),
        helper.make_node("Add", ["xt", "c"], ["sum"]),
        helper.make_node(middle, ["sum"], ["negated"]),
        helper.make_node("Abs", ["negated"], ["yt"]),
        helper.make_node("Transpose", ["yt"], ["y0"], perm=[0, 2, 3, 1]),
        helper.make_node("Mul", ["y0", "k"], ["y"]),
    ]
    turned = [
        annotated(name, FLOAT, [1, 5, 2, 3], tensor=f"0:{tensor}", order="0,3,1,2", form="float")
        for name, tensor in (("sum", 1), ("negated", 2), ("yt", 3))
    ]
    ends = [annotated(name, FLOAT, [1, 2, 3, 5], tensor=tensor) for name, tensor in (("x", "0:0"), ("y", "0:3"))]
    return onnx_model(nodes, ends[:1], ends[1:], {"c": constant, "k": np.array(scale, np.float32)}, turned)


class TestVerify:
    def test_equal_models_pass(self) -> None:
        found = verify(built(chained), channels_first())
        assert found.ok
        assert found.kernels == ("xnnpack", "builtin")
        assert found.diverging is None
        assert (
            found.text == "within tolerance of LiteRT's xnnpack and builtin kernels, 3 runs\n"
            "  ok     y: equal (tolerance 0.001 of the output's range)"
        )

    def test_a_failure_names_the_processor_it_was_seen_on(self) -> None:
        found = verify(built(chained), channels_first(scale=1.5))
        assert replace(found, processor="a processor").text.splitlines()[0].endswith("3 runs, on a processor")

    def test_files_bytes_and_protos_are_taken(self, tmp_path: Path) -> None:
        tflite, model = tmp_path / "m.tflite", tmp_path / "m.onnx"
        tflite.write_bytes(built(chained))
        onnx.save_model(channels_first(), model, save_as_external_data=True, size_threshold=0, location="m.data")
        assert verify(tflite, model).ok
        assert verify(built(chained), channels_first().SerializeToString(), runs=1).runs == 1

    @pytest.mark.parametrize(
        ("model", "tensor", "code"),
        [
            (channels_first(offset=0.5), "sum", "ADD"),
            (channels_first(middle="Abs"), "negated", "NEG"),
            (channels_first(scale=1.5), "y", "ABS"),
        ],
        ids=["first", "middle", "last"],
    )
    def test_the_first_tensor_outside_its_tolerance_is_named(
        self, model: onnx.ModelProto, tensor: str, code: str
    ) -> None:
        if code == "NEG":
            model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array(1.1, np.float32), "k"))
        found = verify(built(chained), model)
        assert not found.ok
        assert found.diverging is not None
        assert (found.diverging.tensor.name, found.diverging.operator.code) == (tensor, code)
        assert f"first outside its tolerance: {found.diverging.text}" in found.text
        assert "NOT within" in found.text

    def test_without_annotations_no_tensor_is_pointed_at(self) -> None:
        model = channels_first(scale=1.5)
        for info in (*model.graph.value_info, *model.graph.input, *model.graph.output):
            del info.metadata_props[:]
        found = verify(built(chained), model)
        assert found.diverging is None
        assert "does not say which tensors" in found.text

    def test_a_tolerance_can_be_given(self) -> None:
        assert verify(built(chained), channels_first(scale=1.001), tolerance=1e-2).ok
        assert verify(built(chained), channels_first(scale=1.0005)).ok
        assert not verify(built(chained), channels_first(scale=1.0005), tolerance=Tolerance(of_range=1e-6)).ok

    def test_renamed_inputs_are_matched_by_position(self) -> None:
        def build(g: Any) -> None:
            x, y, z = g.input("a", (3,)), g.input("b", (3,)), g.tensor("c", (3,))
            g.operator("SUB", [x, y], [z])
            g.output(z)

        def model(*names: str) -> onnx.ModelProto:
            ends = [helper.make_tensor_value_info(name, FLOAT, [3]) for name in (*names, "z")]
            return onnx_model([helper.make_node("Sub", ["p", "q"], ["z"])], ends[:2], ends[2:])

        assert verify(built(build), model("p", "q")).ok
        assert not verify(built(build), model("q", "p")).ok

    def test_another_count_of_inputs_is_an_error(self) -> None:
        model = onnx_model(
            [helper.make_node("Add", ["x", "z"], ["y"])],
            [helper.make_tensor_value_info(name, FLOAT, [1, 2, 3, 5]) for name in "xz"],
            [helper.make_tensor_value_info("y", FLOAT, [1, 2, 3, 5])],
        )
        with pytest.raises(VerificationError, match=r"has 1 inputs \(x\), the ONNX model 2 \(x, z\)"):
            verify(built(chained), model)

    def test_given_inputs_are_used(self, tmp_path: Path) -> None:
        model = onnx_model(
            [helper.make_node("Sqrt", ["x"], ["r"]), helper.make_node("Mul", ["r", "r"], ["y"])],
            [helper.make_tensor_value_info("x", FLOAT, [2])],
            [helper.make_tensor_value_info("y", FLOAT, [2])],
        )

        def build(g: Any) -> None:
            x, y, shape = g.input("x", (2,)), g.tensor("y", (2,)), g.constant("shape", [2])
            g.operator("RESHAPE", [x, shape], [y])
            g.output(y)

        positive = np.array([1, 4], np.float32)
        np.savez(tmp_path / "in.npz", x=positive)
        np.save(tmp_path / "in.npy", positive)
        assert not verify(built(build), model).ok
        given: Any
        for given in ({"x": positive}, tmp_path / "in.npz", tmp_path / "in.npy"):
            found = verify(built(build), model, inputs=given)
            assert (found.ok, found.runs) == (True, 1)
        assert verify(built(build), model, inputs=[{"x": positive}] * 2).runs == 1
        assert verify(built(build), model, inputs=[{"x": positive}, {"x": 2 * positive}]).runs == 2

    def test_the_onnx_models_fixed_shape_decides(self) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (None, 3)), g.tensor("y", (None, 3))
            g.operator("NEG", [x], [y])
            g.output(y)

        def model(rows: int | str) -> onnx.ModelProto:
            ends = [helper.make_tensor_value_info(name, FLOAT, [rows, 3]) for name in "xy"]
            return onnx_model([helper.make_node("Neg", ["x"], ["y"])], ends[:1], ends[1:])

        assert verify(built(build), model(7)).ok
        assert verify(built(build), model("n")).ok
        assert verify(built(build), model("n"), shapes={"x": (4, 3)}).ok

    def test_inputs_and_outputs_in_another_order_are_turned(self) -> None:
        ends = [annotated(n, FLOAT, [1, 5, 2, 3], tensor=t, order="0,3,1,2") for n, t in (("x", "0:0"), ("y", "0:3"))]
        nodes = [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Abs", ["s"], ["y"])]
        constant = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
        assert verify(built(chained), onnx_model(nodes, ends[:1], ends[1:], {"c": constant})).ok

    def test_states_are_carried_as_litert_carries_them(self) -> None:
        model = ModelBuilder()
        init, g = model.subgraph("init"), model.main
        handle, start = init.tensor("h", (), "resource"), init.constant("start", [1.0, 2.0])
        init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        init.operator("ASSIGN_VARIABLE", [handle, start], [])
        x, handle, held, y = g.input("x", (2,)), g.tensor("h", (), "resource"), g.tensor("r", (2,)), g.tensor("y", (2,))
        g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
        g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        g.operator("READ_VARIABLE", [handle], [held])
        g.operator("ADD", [held, x], [y])
        g.operator("ASSIGN_VARIABLE", [handle, y], [])
        g.output(y)

        def converted(default: bool, initial: object, forget: bool = False) -> onnx.ModelProto:
            ends = {name: helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "v", "y", "v:next")}
            nodes = [
                helper.make_node("Add", ["v", "x"], ["y"]),
                helper.make_node("Identity", ["v" if forget else "y"], ["v:next"]),
            ]
            state = {"input": "v", "output": "v:next", "dtype": "float32", "shape": [2]}
            constants: dict[str, Array] = {"v": np.array([1, 2], np.float32)} if default else {}
            return onnx_model(
                nodes,
                [ends["x"], ends["v"]],
                [ends["y"], ends["v:next"]],
                constants,
                state=[state if initial is None else {**state, "initial": initial}],
            )

        assert verify(model.build(), converted(default=True, initial=None)).ok
        assert verify(model.build(), converted(default=False, initial=[1, 2])).ok
        assert not verify(model.build(), converted(default=False, initial=1)).ok
        assert not verify(model.build(), converted(default=False, initial=None)).ok
        assert not verify(model.build(), converted(default=True, initial=None, forget=True)).ok
        assert verify(model.build(), converted(default=True, initial=None, forget=True), runs=1).ok

    def test_shifted_storage_is_compared_as_it_was(self) -> None:
        def build(g: Any) -> None:
            same = quant(0.5, -3)
            x = g.input("x", (2, 3), "int8", quantization=same)
            pooled, y = (g.tensor(n, s, "int8", quantization=same) for n, s in (("t", (3, 2)), ("y", (3, 2))))
            g.operator("TRANSPOSE", [x, g.constant("perm", [1, 0])], [pooled])
            g.operator("RELU", [pooled], [y])
            g.output(y)

        def model(low: int) -> onnx.ModelProto:
            nodes = [
                helper.make_node("Cast", ["x"], ["wide"], to=INT32),
                helper.make_node("Add", ["wide", "k"], ["shifted"]),
                helper.make_node("Cast", ["shifted"], ["u"], to=UINT8),
                helper.make_node("Max", ["u", "zero"], ["clipped"]),
                helper.make_node("Cast", ["clipped"], ["back"], to=INT32),
                helper.make_node("Sub", ["back", "k"], ["small"]),
                helper.make_node("Cast", ["small"], ["s"], to=INT8),
                helper.make_node("Transpose", ["s"], ["y"], perm=[1, 0]),
            ]
            constants: dict[str, Array] = {"k": np.array(128, np.int32), "zero": np.array(low, np.uint8)}
            ends = [annotated("x", INT8, [2, 3], tensor="0:0"), annotated("y", INT8, [3, 2], tensor="0:2")]
            values = [
                annotated("u", UINT8, [2, 3], tensor="0:1", order="1,0", shift=128, form="stored"),
                annotated("clipped", UINT8, [2, 3], tensor="0:2", order="1,0", shift=128),
                annotated("wide", INT32, [2, 3], tensor="0:2", form="float"),
            ]
            return onnx_model(nodes, ends[:1], ends[1:], constants, values)

        assert verify(built(build), model(125)).ok
        found = verify(built(build), model(200))
        assert found.diverging is not None
        assert (found.diverging.tensor.name, found.diverging.value) == ("y", "clipped")

    def test_a_signature_has_its_own_subgraph_and_names(self) -> None:
        model = ModelBuilder()
        second = model.subgraph("second")
        for graph, code in ((model.main, "NEG"), (second, "SQUARE")):
            x, y = graph.input("x", (3,)), graph.tensor("y", (3,))
            graph.operator(code, [x], [y])
            graph.output(y)
        model.signature("go", {"left": 0}, {"right": 1}, subgraph=second.index)

        def converted(factor: float) -> onnx.ModelProto:
            ends = [annotated(n, FLOAT, [3], tensor=t) for n, t in (("left", "1:0"), ("right", "1:1"))]
            nodes = [helper.make_node("Mul", ["left", "left"], ["q"]), helper.make_node("Mul", ["q", "k"], ["right"])]
            return onnx_model(nodes, ends[:1], ends[1:], {"k": np.array(factor, np.float32)})

        assert verify(model.build(), converted(1), signature="go").ok
        found = verify(model.build(), converted(2), signature="go")
        assert found.diverging is not None
        assert found.diverging.operator.code == "SQUARE"
        with pytest.raises(UnsupportedOption, match="no signature 'went'; it has 'go'"):
            verify(model.build(), converted(1), signature="went")

    def test_a_signature_that_names_a_tensor_inside_has_the_answers_of_every_kernel_set(self) -> None:
        model = ModelBuilder()
        x = model.main.input("x", (2, 3))
        y, z = (model.main.tensor(name, (2, 3)) for name in "yz")
        model.main.operator("ABS", [x], [y])
        model.main.operator("NEG", [y], [z])
        model.main.output(z)
        model.signature("go", {"x": x}, {"y": y, "z": z})
        data, given = model.build(), np.array([[1, -2, 3], [-5, 7, -11]], np.float32)
        for kernels in ("xnnpack", "builtin", "reference"):
            inside, end = LiteRT(data, kernels, signature="go").run([given])
            assert np.array_equal(inside, np.abs(given))
            assert np.array_equal(end, -np.abs(given))
        found = verify(data, convert(data), signature="go")
        assert found.ok
        assert found.kernels == ("xnnpack", "builtin")

    def test_what_litert_refuses_is_one_clear_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
            g.operator("CUSTOM.Nobody", [x], [y])
            g.output(y)

        with pytest.raises(
            VerificationError,
            match=r"LiteRT has no kernel of CUSTOM.Nobody \(1\), and nobody converts it: no installed",
        ):
            verify(built(build), channels_first())
        with pytest.raises(InvalidModel):
            verify(b"not a model at all", channels_first())
        verify(built(chained), channels_first())
        assert capfd.readouterr() == ("", "")

    def test_what_onnx_runtime_refuses_is_one_clear_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InvalidOnnx, match="cannot be read"):
            verify(built(chained), b"not a model")
        broken = channels_first()
        broken.graph.node[2].op_type = "NoSuchOperator"
        with pytest.raises(OrtError, match="NoSuchOperator"):
            verify(built(chained), broken)
        late = channels_first()
        late.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 1, 1), np.float32), "c"))
        del late.graph.value_info[:]
        with pytest.raises(OrtError):
            verify(built(chained), late)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("missing", ["onnxruntime", "ai_edge_litert"])
    def test_a_missing_package_is_named_with_the_pip_line(self, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(name: str) -> Any:
            if name.startswith(missing):
                raise ModuleNotFoundError(name=missing)
            return builtins.__import__(name, fromlist=["*"])

        monkeypatch.setattr("importlib.import_module", absent)
        with pytest.raises(MissingExtra, match=r'pip install "onnx-tflite-plugin\[verify\]"') as raised:
            verify(built(chained), channels_first())
        assert raised.value.exit_code == 2


class TestInputs:
    def entry(self, build: Callable[[Any], None]) -> structure.Entry:
        return structure.entry(structure.read(built(build)))

    def test_seeds_decide(self) -> None:
        entry = self.entry(chained)
        first, again, other = (draw(entry, seed=seed, runs=2) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        assert not np.array_equal(first[0], first[1])

    def test_each_dtype_is_drawn_where_it_makes_sense(self) -> None:
        def build(g: Any) -> None:
            for dtype in ("float32", "int8", "uint8", "int16", "int32", "bool", "string", "complex64", "int4"):
                g.input(dtype, (4, 500), dtype)

        entry = self.entry(build)
        drawn = dict(zip(entry.input_names, draw(entry)[0], strict=True))
        assert abs(drawn["float32"].mean()) < 0.1
        assert [drawn[dtype].dtype.name for dtype in ("int8", "uint8", "int16", "int32")] == [
            "int8", "uint8", "int16", "int32",
        ]  # fmt: skip
        assert (drawn["int8"].min(), drawn["int8"].max(), drawn["uint8"].max()) == (-128, 127, 255)
        assert np.abs(drawn["int16"].astype(int)).max() > 32000
        assert (drawn["int4"].dtype.name, drawn["int4"].min(), drawn["int4"].max()) == ("int8", -8, 7)
        assert set(drawn["bool"].reshape(-1).tolist()) == {True, False}
        assert all(isinstance(item, str) for item in drawn["string"].flat)
        assert drawn["complex64"].dtype == np.complex64

    def test_indices_stay_inside_what_they_index(self) -> None:
        def build(g: Any) -> None:
            ids, rows = g.input("ids", (7,), "int32"), g.tensor("rows", (7, 4))
            g.operator("GATHER", [g.constant("table", np.ones((5, 4), np.float32)), ids], [rows], {"axis": 0})
            left, right, total = (make("n", (50,), "int32") for make in (g.input, g.input, g.tensor))
            g.operator("ADD", [left, right], [total])
            g.output(rows)

        entry = self.entry(build)
        for seed in range(5):
            ids, left, _ = draw(entry, seed=seed)[0]
            assert ids.min() >= 0
            assert ids.max() < 5
            assert left.min() < 0

    def test_a_float_quantized_right_away_is_drawn_over_that_range(self) -> None:
        def build(g: Any) -> None:
            x, q = g.input("x", (500,)), g.tensor("q", (500,), "uint8", quantization=quant(2.0, 10))
            g.operator("QUANTIZE", [x], [q])
            g.output(q)

        (values,) = draw(self.entry(build))[0]
        assert -20 <= values.min() < -10
        assert 480 < values.max() <= 490

    def test_drawn_integers_grow_careful_when_refused(self) -> None:
        def build(g: Any) -> None:
            x, y, z = g.input("x", (100,), "int32"), g.input("y", (100,), "int32"), g.tensor("z", (100,), "int32")
            g.operator("FLOOR_DIV", [x, y], [z])
            g.output(z)

        model = onnx_model(
            [helper.make_node("Div", ["x", "y"], ["z"])],
            [helper.make_tensor_value_info(name, INT32, [100]) for name in "xy"],
            [helper.make_tensor_value_info("z", INT32, [100])],
        )
        assert verify(built(build), model).ok

    def test_wrong_arrays_are_refused(self, tmp_path: Path) -> None:
        entry = self.entry(chained)
        with pytest.raises(InvalidInputs, match="no input is called 'a', 'b'; the model's inputs are x"):
            draw(entry, given={"a": 1, "b": 2})
        with pytest.raises(InvalidInputs, match=r"is float32 \[1, 2, 3, 5\], the given array \[1\]"):
            draw(entry, given={"x": [1.0]})
        with pytest.raises(InvalidInputs, match="cannot be read"):
            draw(entry, given=tmp_path / "absent.npy")
        whole = self.entry(lambda g: g.input("x", (2,), "int32"))
        with pytest.raises(InvalidInputs, match="is int32; the given array is float64"):
            draw(whole, given={"x": [1.5, 2]})
        assert draw(whole, given={"x": [1.0, 2.0]})[0][0].dtype == np.int32


def test_places_turn_and_shift_back() -> None:
    stored = np.arange(-3, 3, dtype=np.int8).reshape(1, 2, 3)
    place = TensorValue("v", 0, 0, order=(0, 2, 1), shift=128)
    kept = place.apply(stored)
    assert (kept.dtype.name, kept.shape) == ("uint8", (1, 3, 2))
    restored = place.restore(kept, np.dtype(np.int8))
    assert restored is not None
    np.testing.assert_array_equal(restored, stored)
    assert TensorValue("v", 0, 0, order=(0, 2, 1)).restore(np.zeros((2, 2)), np.dtype(np.float32)) is None


def test_litert_keeps_intermediate_tensors_only_without_xnnpack() -> None:
    session = LiteRT(built(chained), "reference", preserve=True)
    x = np.ones((1, 2, 3, 5), np.float32)
    (y,) = session.run({"x": x})
    kept = session.tensors()
    np.testing.assert_array_equal(kept[1], x + np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(-kept[1], kept[2])
    np.testing.assert_array_equal(y, kept[3])
    with pytest.raises(ValueError, match="does not keep"):
        LiteRT(built(chained), preserve=True)


def test_handles_of_states_are_no_arrays() -> None:
    """LiteRT's Python API reads their memory as an address of an object."""

    def build(g: Any) -> None:
        x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
        handles = [g.tensor(f"handle{k}", (), "resource") for k in range(20)]
        for k, handle in enumerate(handles):
            g.operator("VAR_HANDLE", [], [handle], {"shared_name": f"v{k}"})
            g.operator("ASSIGN_VARIABLE", [handle, x], [])
        g.operator("NEG", [x], [y])
        g.output(y)

    session = LiteRT(built(build), "builtin", preserve=True)
    session.run({"x": np.ones((2, 3), np.float32)})
    assert session.tensors().keys() == {0, 1}


def test_onnx_runtime_returns_the_values_asked_for() -> None:
    session = OnnxRuntime(channels_first(), keep=["sum", "y"])
    (y,) = session.run([np.ones((1, 2, 3, 5), np.float32)])
    assert session.values()["sum"].shape == (1, 5, 2, 3)
    np.testing.assert_array_equal(session.values()["y"], y)


def test_importing_verify_imports_no_runtime() -> None:
    code = "import sys, onnx_tflite_plugin.verify; assert not {'onnxruntime', 'ai_edge_litert'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_open_sizes_that_are_stored_too_small_to_run_are_tried_larger() -> None:
    """A file that stores an open height and width as 1 has no pixel left behind a window of 3 x 3."""
    model = Net()
    window = constant(drawn(4, 3, 3, 3))
    made = tensor(1, None, None, 4)
    operands = [tensor(1, None, None, 3), window, constant(drawn(4))]
    model.output(model.call("CONV_2D", operands, made, padding="VALID", stride_h=1, stride_w=1))
    data = model.build()
    checked = verify(data, convert(data).proto)
    assert checked.ok
    assert checked.runs == 4  # three of that size, one of another
    with pytest.raises(VerificationError, match="cannot run the model"):
        verify(data, convert(data).proto, shapes={"x0": (1, 2, 2, 3)})
    timed = bench(data, convert(data), rounds=3)
    assert timed.litert.median > 0 < timed.onnxruntime.median
