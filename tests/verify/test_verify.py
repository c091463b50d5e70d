"""Test ``verify`` end to end on hand-made pairs of models."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.errors import (
    InvalidInputs,
    InvalidModel,
    InvalidOnnx,
    MissingExtra,
    UnsupportedOption,
    VerificationError,
)
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, OrtError, Tolerance, verify
from onnx_tflite_plugin.verify.comparison import trial
from onnx_tflite_plugin.verify.times.bench import bench
from tests.helpers.control_flow import count_to_three_million
from tests.helpers.verify_pairs import (
    FLOAT,
    INT8,
    INT32,
    UINT8,
    build_chain,
    build_model,
    channels_first,
    onnx_model,
    value_info_with_tensor,
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


UNKNOWN_ORIGIN = (
    "the ONNX model does not record its TFLite file, so it may not be the conversion of the given TFLite model"
)


class TestVerify:
    def test_equal_models_pass(self) -> None:
        verification = verify(build_model(build_chain), channels_first())
        assert verification.ok
        assert verification.kernels == ("xnnpack", "builtin")
        assert verification.diverging is None
        assert (
            verification.text
            == "outputs equal; all 3 compared operators agree with LiteRT (XNNPACK and builtin kernels), 3 runs\n"
            f"  ok     'y': equal (tolerance 0.001 of the output's range)\n  {UNKNOWN_ORIGIN}"
        )

    def test_a_failure_names_the_processor_it_was_seen_on(self) -> None:
        verification = verify(build_model(build_chain), channels_first(scale=1.5))
        assert replace(verification, processor="a processor").text.splitlines()[0].endswith("3 runs, on a processor")

    def test_accepts_files_bytes_and_protos(self, tmp_path: Path) -> None:
        tflite, model = tmp_path / "m.tflite", tmp_path / "m.onnx"
        tflite.write_bytes(build_model(build_chain))
        onnx.save_model(channels_first(), model, save_as_external_data=True, size_threshold=0, location="m.data")
        assert verify(tflite, model).ok
        assert verify(build_model(build_chain), channels_first().SerializeToString(), runs=1).runs == 1

    @pytest.mark.parametrize(
        ("model", "tensor", "code"),
        [
            (channels_first(offset=0.5), "sum", "ADD"),
            (channels_first(middle="Abs"), "negated", "NEG"),
            (channels_first(scale=1.5), "y", "ABS"),
        ],
        ids=["first", "middle", "last"],
    )
    def test_names_the_first_tensor_outside_its_tolerance(self, model: onnx.ModelProto, tensor: str, code: str) -> None:
        if code == "NEG":
            model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array(1.1, np.float32), "k"))
        verification = verify(build_model(build_chain), model)
        assert not verification.ok
        assert verification.diverging is not None
        assert (verification.diverging.tensor.name, verification.diverging.operator.code) == (tensor, code)
        assert (
            f"first tensor that differs when each operator gets LiteRT's values: {verification.diverging.text}"
            in verification.text
        )
        assert "NOT within" in verification.text

    def test_names_no_tensor_without_metadata(self) -> None:
        model = channels_first(scale=1.5)
        for info in (*model.graph.value_info, *model.graph.input, *model.graph.output):
            del info.metadata_props[:]
        verification = verify(build_model(build_chain), model)
        assert verification.diverging is None
        assert "does not record which tensors" in verification.text

    def test_a_tolerance_can_be_given(self) -> None:
        assert verify(build_model(build_chain), channels_first(scale=1.001), tolerance=1e-2).ok
        assert not verify(build_model(build_chain), channels_first(scale=1.0005)).ok
        assert not verify(build_model(build_chain), channels_first(scale=1.0005), tolerance=Tolerance(of_range=1e-6)).ok

    def test_renamed_inputs_are_matched_by_position(self) -> None:
        def build(g: Any) -> None:
            x, y, z = g.input("a", (3,)), g.input("b", (3,)), g.tensor("c", (3,))
            g.operator("SUB", [x, y], [z])
            g.output(z)

        def model(*names: str) -> onnx.ModelProto:
            interface = [helper.make_tensor_value_info(name, FLOAT, [3]) for name in (*names, "z")]
            return onnx_model([helper.make_node("Sub", ["p", "q"], ["z"])], interface[:2], interface[2:])

        assert verify(build_model(build), model("p", "q")).ok
        assert not verify(build_model(build), model("q", "p")).ok

    def test_rejects_a_different_number_of_inputs(self) -> None:
        model = onnx_model(
            [helper.make_node("Add", ["x", "z"], ["y"])],
            [helper.make_tensor_value_info(name, FLOAT, [1, 2, 3, 5]) for name in "xz"],
            [helper.make_tensor_value_info("y", FLOAT, [1, 2, 3, 5])],
        )
        with pytest.raises(
            VerificationError,
            match=r"has 1 input \(x\), but the ONNX model has 2 \(x, z\); the ONNX model was probably",
        ):
            verify(build_model(build_chain), model)

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
        assert not verify(build_model(build), model).ok
        inputs: Any
        for inputs in ({"x": positive}, tmp_path / "in.npz", tmp_path / "in.npy"):
            verification = verify(build_model(build), model, inputs=inputs)
            assert (verification.ok, verification.runs) == (True, 1)
        assert verify(build_model(build), model, inputs=[{"x": positive}] * 2).runs == 1
        assert verify(build_model(build), model, inputs=[{"x": positive}, {"x": 2 * positive}]).runs == 2

    def test_uses_fixed_dimensions_of_the_onnx_model(self) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (None, 3)), g.tensor("y", (None, 3))
            g.operator("NEG", [x], [y])
            g.output(y)

        def model(rows: int | str) -> onnx.ModelProto:
            interface = [helper.make_tensor_value_info(name, FLOAT, [rows, 3]) for name in "xy"]
            return onnx_model([helper.make_node("Neg", ["x"], ["y"])], interface[:1], interface[1:])

        assert verify(build_model(build), model(7)).ok
        assert verify(build_model(build), model("n")).ok
        assert verify(build_model(build), model("n"), shapes={"x": (4, 3)}).ok

    def test_transposes_inputs_and_outputs_of_another_layout(self) -> None:
        interface = [
            value_info_with_tensor(n, FLOAT, [1, 5, 2, 3], tensor=t, order="0,3,1,2")
            for n, t in (("x", "0:0"), ("y", "0:3"))
        ]
        nodes = [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Abs", ["s"], ["y"])]
        constant = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
        assert verify(build_model(build_chain), onnx_model(nodes, interface[:1], interface[1:], {"c": constant})).ok

    def test_stateful_model_runs_only_at_stored_sizes(self) -> None:
        """Resizing resets LiteRT's states only, where v is 1, 2, 3 and so on."""
        model = ModelBuilder()
        init, g = model.subgraph("init"), model.main
        handle, start = init.tensor("h", (), "resource"), init.constant("start", np.ones(3, np.float32))
        init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        init.operator("ASSIGN_VARIABLE", [handle, start], [])
        x, handle, y = g.input("x", (None, 3)), g.tensor("h", (), "resource"), g.tensor("y", (None, 3))
        value, sum_result = g.tensor("r", (3,)), g.tensor("m", (3,))
        g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
        g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        g.operator("READ_VARIABLE", [handle], [value])
        g.operator("ADD", [x, value], [y])
        g.operator("ADD", [value, g.constant("one", np.ones(3, np.float32))], [sum_result])
        g.operator("ASSIGN_VARIABLE", [handle, sum_result], [])
        g.output(y)
        verification = verify(model.build(), convert(model.build()))
        assert verification.ok
        assert verification.runs == 3

    def test_states_are_carried_as_litert_carries_them(self) -> None:
        model = ModelBuilder()
        init, g = model.subgraph("init"), model.main
        handle, start = init.tensor("h", (), "resource"), init.constant("start", [1.0, 2.0])
        init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        init.operator("ASSIGN_VARIABLE", [handle, start], [])
        x, handle, variable_value, y = (
            g.input("x", (2,)),
            g.tensor("h", (), "resource"),
            g.tensor("r", (2,)),
            g.tensor("y", (2,)),
        )
        g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
        g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        g.operator("READ_VARIABLE", [handle], [variable_value])
        g.operator("ADD", [variable_value, x], [y])
        g.operator("ASSIGN_VARIABLE", [handle, y], [])
        g.output(y)

        def convert_model(default: bool, initial: object, loses_state: bool = False) -> onnx.ModelProto:
            interface = {name: helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "v", "y", "v:next")}
            nodes = [
                helper.make_node("Add", ["v", "x"], ["y"]),
                helper.make_node("Identity", ["v" if loses_state else "y"], ["v:next"]),
            ]
            state = {"input": "v", "output": "v:next", "dtype": "float32", "shape": [2]}
            constants: dict[str, Array] = {"v": np.array([1, 2], np.float32)} if default else {}
            return onnx_model(
                nodes,
                [interface["x"], interface["v"]],
                [interface["y"], interface["v:next"]],
                constants,
                state=[state if initial is None else {**state, "initial": initial}],
            )

        assert verify(model.build(), convert_model(default=True, initial=None)).ok
        assert verify(model.build(), convert_model(default=False, initial=[1, 2])).ok
        assert not verify(model.build(), convert_model(default=False, initial=1)).ok
        assert not verify(model.build(), convert_model(default=False, initial=None)).ok
        assert not verify(model.build(), convert_model(default=True, initial=None, loses_state=True)).ok
        assert verify(model.build(), convert_model(default=True, initial=None, loses_state=True), runs=1).ok

    def test_compares_shifted_integers_as_stored_in_the_file(self) -> None:
        def build(g: Any) -> None:
            parameters = quant(0.5, -3)
            x = g.input("x", (2, 3), "int8", quantization=parameters)
            pooled, y = (g.tensor(n, s, "int8", quantization=parameters) for n, s in (("t", (3, 2)), ("y", (3, 2))))
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
            interface = [
                value_info_with_tensor("x", INT8, [2, 3], tensor="0:0"),
                value_info_with_tensor("y", INT8, [3, 2], tensor="0:2"),
            ]
            values = [
                value_info_with_tensor("u", UINT8, [2, 3], tensor="0:1", order="1,0", shift=128, form="stored"),
                value_info_with_tensor("clipped", UINT8, [2, 3], tensor="0:2", order="1,0", shift=128),
                value_info_with_tensor("wide", INT32, [2, 3], tensor="0:2", form="float"),
            ]
            return onnx_model(nodes, interface[:1], interface[1:], constants, values)

        assert verify(build_model(build), model(125)).ok
        verification = verify(build_model(build), model(200))
        assert verification.diverging is not None
        assert (verification.diverging.tensor.name, verification.diverging.value) == ("y", "clipped")

    def test_signature_selects_its_subgraph_and_names(self) -> None:
        model = ModelBuilder()
        second = model.subgraph("second")
        for graph, code in ((model.main, "NEG"), (second, "SQUARE")):
            x, y = graph.input("x", (3,)), graph.tensor("y", (3,))
            graph.operator(code, [x], [y])
            graph.output(y)
        model.signature("go", {"left": 0}, {"right": 1}, subgraph=second.index)

        def convert_model(factor: float) -> onnx.ModelProto:
            interface = [
                value_info_with_tensor(n, FLOAT, [3], tensor=t) for n, t in (("left", "1:0"), ("right", "1:1"))
            ]
            nodes = [helper.make_node("Mul", ["left", "left"], ["q"]), helper.make_node("Mul", ["q", "k"], ["right"])]
            return onnx_model(nodes, interface[:1], interface[1:], {"k": np.array(factor, np.float32)})

        assert verify(model.build(), convert_model(1), signature="go").ok
        verification = verify(model.build(), convert_model(2), signature="go")
        assert verification.diverging is not None
        assert verification.diverging.operator.code == "SQUARE"
        with pytest.raises(UnsupportedOption, match="no signature 'went'; it has 'go'"):
            verify(model.build(), convert_model(1), signature="went")

    def test_inner_signature_output_is_read_from_every_kernel_set(self) -> None:
        model = ModelBuilder()
        x = model.main.input("x", (2, 3))
        y, z = (model.main.tensor(name, (2, 3)) for name in "yz")
        model.main.operator("ABS", [x], [y])
        model.main.operator("NEG", [y], [z])
        model.main.output(z)
        model.signature("go", {"x": x}, {"y": y, "z": z})
        data, array = model.build(), np.array([[1, -2, 3], [-5, 7, -11]], np.float32)
        for kernels in ("xnnpack", "builtin", "reference"):
            end, inside = LiteRT(data, kernels, signature="go").run([array])
            assert np.array_equal(inside, np.abs(array))
            assert np.array_equal(end, -np.abs(array))
        verification = verify(data, convert(data), signature="go")
        assert verification.ok
        assert verification.kernels == ("xnnpack", "builtin")

    def test_model_rejected_by_litert_is_one_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        def build(g: Any) -> None:
            x, y = g.input("x", (1, 2, 3, 5)), g.tensor("y", (1, 2, 3, 5))
            g.operator("CUSTOM.Nobody", [x], [y])
            g.output(y)

        verification = verify(build_model(build), channels_first())
        assert verification.text == (
            "inconclusive: LiteRT has no kernel for CUSTOM.Nobody (1), and no op pack declares one, and no operator remains to compare"
            f"\n  {UNKNOWN_ORIGIN}"
        )
        with pytest.raises(InvalidModel):
            verify(b"not a model at all", channels_first())
        verify(build_model(build_chain), channels_first())
        assert capfd.readouterr() == ("", "")

    def test_model_rejected_by_onnx_runtime_is_one_error(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InvalidOnnx, match="is not an ONNX model: it is text"):
            verify(build_model(build_chain), b"not a model")
        unknown_operator = channels_first()
        unknown_operator.graph.node[2].op_type = "NoSuchOperator"
        with pytest.raises(OrtError, match="NoSuchOperator"):
            verify(build_model(build_chain), unknown_operator)
        wrong_sizes = channels_first()
        wrong_sizes.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 1, 1), np.float32), "c"))
        del wrong_sizes.graph.value_info[:]
        with pytest.raises(OrtError):
            verify(build_model(build_chain), wrong_sizes)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("missing", ["onnxruntime", "ai_edge_litert"])
    def test_missing_package_error_has_the_pip_command(self, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def import_present(name: str) -> Any:
            if name.startswith(missing):
                raise ModuleNotFoundError(name=missing)
            return builtins.__import__(name, fromlist=["*"])

        monkeypatch.setattr("importlib.import_module", import_present)
        with pytest.raises(MissingExtra, match=r'pip install "onnx-tflite-plugin\[verify\]"') as raised:
            verify(build_model(build_chain), channels_first())
        assert raised.value.exit_code == 2


def test_reports_a_loop_that_may_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TIME_LIMIT", 0.1)
    data = count_to_three_million()
    proto = convert(data).proto
    assert verify(data, proto, inputs={"x": np.float32(3e6 - 3)}).ok
    with pytest.raises(VerificationError, match="the run may never end"):
        verify(data, proto, inputs={"x": np.float32(0)})


def test_shapes_and_ranges_are_by_name_or_position() -> None:
    conversion = convert(DIGITS)
    for position in (0, np.int64(0), "0", "image"):
        assert verify(DIGITS, conversion, shapes={position: (1, 8, 8, 1)}, ranges={position: (0, 1)}).ok


@pytest.mark.parametrize(
    ("shapes", "error", "text"),
    [
        ({"imag": (1, 8, 8, 1)}, InvalidInputs, "'imag'; the model's inputs are image; did you mean 'image'?"),
        ({5: (1, 8, 8, 1)}, InvalidInputs, "no input has the position 5, only 0"),
        ({0: (1, "n", 8, 1)}, TypeError, "shapes['0'][1] is the str 'n'; give a shape for each input"),
        ([1, 8, 8, 1], TypeError, "shapes is a list; give a shape for each input"),
    ],
)
def test_shapes_of_no_input_are_refused(shapes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        verify(DIGITS, convert(DIGITS), shapes=shapes)


def test_models_in_the_wrong_order_are_named() -> None:
    with pytest.raises(TypeError, match="not Conversion; it is an ONNX model, give the TFLite model"):
        verify(convert(DIGITS), DIGITS)  # type: ignore[arg-type]


def test_swapped_files_are_named(tmp_path: Path) -> None:
    onnx = tmp_path / "d.onnx"
    convert(DIGITS).save(onnx)
    for function in (verify, bench):
        with pytest.raises(
            InvalidOnnx, match="tflite is a TFLite model; give the TFLite model first and the ONNX model second"
        ):
            function(onnx, DIGITS)
