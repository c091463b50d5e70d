"""The page about a conversion: content, no network access, no error."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.errors import MismatchedModels
from onnx_tflite_plugin.page import measurements
from onnx_tflite_plugin.page.content import Page, collect_page_data
from onnx_tflite_plugin.page.html import html
from onnx_tflite_plugin.page.provenance import describe_provenance
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence
from onnx_tflite_plugin.verify.runtimes.processor import processor
from onnx_tflite_plugin.verify.submodels.comparer import SubmodelComparer
from onnx_tflite_plugin.verify.verification import Verification
from tests.helpers.command import Run
from tests.helpers.verify_graphs import operator, slot
from tests.helpers.wrong_models import without_digest

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def test_operators_have_their_nodes_and_times(digits: Page) -> None:
    assert [op["code"] for op in digits.operators][:2] == ["CONV_2D", "DEPTHWISE_CONV_2D"]
    assert any("Conv" in node for node in digits.operators[0]["nodes"])
    assert digits.operators[0]["layout"] == "Implicit"
    assert sum(op["microseconds"] is not None for op in digits.operators) > len(digits.operators) / 2
    assert {(edge["from"], edge["to"]) for edge in digits.edges} >= {(0, 1), (1, 2)}
    assert not any(op["float_island"] for op in digits.operators)


def test_every_tensor_is_compared_and_the_first_wrong_one_is_marked(digits: Page) -> None:
    assert not digits.wrong
    assert len(digits.errors) >= len(digits.operators) - 1
    assert not any(error["first_wrong"] for error in digits.errors)
    proto = otp.convert(DIGITS, weights_dtype="uint8").proto
    conv = [node for node in proto.graph.node if node.op_type == "Conv"][1]
    (pads,) = (attribute for attribute in conv.attribute if attribute.name == "pads")
    pads.ints[:] = [*pads.ints[2:], *pads.ints[:2]] if pads.ints[0] != pads.ints[2] else [0, 0, 2, 2]
    page = collect_page_data(DIGITS.read_bytes(), proto, "digits")
    assert page.wrong
    assert [error["operator"] for error in page.errors if error["first_wrong"]] == [1]
    assert [op["index"] for op in page.operators if op["wrong"]] == [1]


def test_shows_the_error_of_each_operator_on_operands_of_litert() -> None:
    proto = otp.convert(DIGITS, weights_dtype="uint8").proto
    conv = next(node for node in proto.graph.node if node.op_type == "Conv")
    (pads,) = (attribute for attribute in conv.attribute if attribute.name == "pads")
    pads.ints[:] = [*pads.ints[2:], *pads.ints[:2]] if pads.ints[0] != pads.ints[2] else [0, 0, 2, 2]
    page = collect_page_data(DIGITS.read_bytes(), proto, "digits")
    assert [error["operator"] for error in page.errors if not error["ok"]] == [0]


def test_outputs_with_equal_results_are_named_together() -> None:
    equal = Comparison("y0", "step", 0.0, 0.0, 1.0)
    verification = Verification(tuple(replace(equal, name=f"y{k}") for k in range(6)), ("builtin",), 1)
    assert measurements._output_rows(verification, ["y0", "y1"]) == [
        {"name": "y0, y1", "ok": True, "error": "equal", "tolerance": "1 quantization step", "end_to_end": "equal"},
        {"name": "y2, y3, y4, y5", "ok": True, "error": "equal", "tolerance": "1 quantization step", "end_to_end": ""},
    ]
    (row,) = measurements._output_rows(verification, [f"y{k}" for k in range(6)])
    assert row["name"] == "y0, y1, y2, y3 and 2 more"


def test_page_is_computed_from_the_given_inputs(run: Run, tmp_path: Path) -> None:
    """Stacked inputs are several runs; errors of tensors are from the first run."""
    np.savez(tmp_path / "d.npz", image=(np.arange(320).reshape(5, 8, 8, 1) % 100 - 50).astype(np.int8))
    onnx_path, page_path = tmp_path / "d.onnx", tmp_path / "d.html"
    data = ("--inputs", tmp_path / "d.npz")
    result = run("convert", DIGITS, onnx_path, "--report", page_path, *data)
    assert result.code == 0, result.err
    assert "5 runs" in page_path.read_text(encoding="utf-8")
    from_data, from_random = (
        json.loads(run("report", DIGITS, onnx_path, "--json", *options).out) for options in (data, ())
    )
    assert "5 runs" in from_data["verdict"]
    assert "3 runs" in from_random["verdict"]
    assert [error["name"] for error in from_data["errors"]] == [error["name"] for error in from_random["errors"]]


def test_report_rejects_inputs_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    otp.convert(DIGITS).save(tmp_path / "d.onnx")
    np.save(tmp_path / "d.npy", np.zeros((1, 7), np.int8))
    result = run("report", DIGITS, tmp_path / "d.onnx", "--inputs", tmp_path / "d.npy")
    assert (result.code, result.out) == (2, "")
    assert "image" in result.err
    assert not (tmp_path / "d.html").exists()
    assert run("report", DIGITS, tmp_path / "d.onnx", "--inputs", tmp_path / "none.npy").code == 2


@pytest.mark.parametrize("without", [None, "onnxruntime"])
def test_conversion_of_a_larger_model_is_refused(monkeypatch: pytest.MonkeyPatch, without: str | None) -> None:
    if without is not None:
        monkeypatch.setitem(sys.modules, without, None)
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3)), g.tensor("y", (2, 3))
    g.operator("ABS", [x], [y])
    g.output(y)
    with pytest.raises(
        MismatchedModels, match=r"refer to operator [1-9], but the TFLite model has 1 operator; the ONNX"
    ):
        collect_page_data(model.build(), without_digest(otp.convert(DIGITS).proto), "digits")


def test_report_refuses_what_verify_refuses(run: Run, tmp_path: Path) -> None:
    otp.convert(DIGITS).save(tmp_path / "d.onnx")
    model = DIGITS.with_name("digits_float.tflite")
    report, verify = (run(command, model, tmp_path / "d.onnx") for command in ("report", "verify"))
    assert report.code == verify.code == 2
    assert verify.err.strip() in report.err
    assert not (tmp_path / "d.html").exists()


def test_wrong_tensor_is_marked_only_if_outputs_are_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = {"tensor": 1, "name": "t", "value": "t", "text": "max 2 quantization steps", "ok": False, "worst": 2.0}
    monkeypatch.setattr(
        "onnx_tflite_plugin.page.measurements.measure_conversion",
        lambda *arguments: measurements.Measurements([error], "within", False),
    )
    page = collect_page_data(DIGITS.read_bytes(), otp.convert(DIGITS).proto, "digits")
    assert [error["first_wrong"] for error in page.errors] == [False]
    assert not any(op["wrong"] for op in page.operators)


def test_page_without_quantization_agrees_with_verify() -> None:
    """A float network's values differ from LiteRT's, but each operator agrees."""
    conversion = otp.convert(DIGITS, quantization="float", verify=True)
    page = collect_page_data(DIGITS.read_bytes(), conversion.proto, "digits")
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert not page.wrong
    assert len(page.errors) >= len(page.operators) - 2
    assert all(error["ok"] for error in page.errors)
    assert page.compared == f"All {len(page.operators)} results of operators were compared."
    (output,) = page.outputs
    assert page.verdict.startswith("all 7 compared operators agree")
    assert any("output 'probabilities' differs by" in note for note in page.verification_notes)
    assert output["end_to_end"] != output["error"]
    assert page.runtimes["litert"] > 0


def test_page_has_the_dtypes_and_hints_of_the_onnx_model() -> None:
    model = DIGITS.read_bytes()
    pages = {
        kind: collect_page_data(model, otp.convert(DIGITS, quantization=kind).proto, "digits") for kind in ("qdq", "float")
    }  # fmt: skip
    for kind, dtype in (("qdq", "uint8"), ("float", "float32")):
        page = pages[kind]
        assert dtype in {edge["dtype"] for edge in page.edges}
        assert ("int8" in {edge["dtype"] for edge in page.edges}) == (kind == "qdq")
        assert {(row["side"], row["dtype"]) for row in page.interface} == {
            (side, "int8" if kind == "qdq" else "float32") for side in ("input", "output")
        }
        assert not any(op["float_island"] for op in page.operators)
        assert {op["tflite_dtype"] for op in page.operators} == {"int8"}
        assert ["float32 instead of int8" in hint for hint in page.facts["hints"]] == [True] * (
            2 if kind == "float" else 0
        )
        tensors = [error["tensor"] for error in page.errors]
        assert len(tensors) == len({*tensors})


def test_tensors_without_a_value_are_float_in_a_requantized_model() -> None:
    """Values between QuantizeLinear and DequantizeLinear hold no tensor of the file."""
    proto = otp.convert(DIGITS, quantization="symmetric").proto
    page = collect_page_data(DIGITS.read_bytes(), proto, "digits")
    assert {edge["dtype"] for edge in page.edges} == {"float32"}
    assert not any(op["float_island"] for op in page.operators)


def test_first_difference_is_not_listed_with_the_outputs() -> None:
    wrong, output = Comparison("t", "step", 9.0, 1.0, 1.0), Comparison("y", "step", 2.0, 1.0, 1.0)
    op = operator([slot(0)], [slot(1)])
    verification = Verification((output, wrong), ("builtin",), 1, diverging=Divergence(slot(1), op, "v", wrong))
    assert [row["name"] for row in measurements._output_rows(verification, ["y"])] == ["y"]


def test_page_compares_every_operator_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare_runs = SubmodelComparer.compare_runs

    def count_runs(comparer: SubmodelComparer, runs: Any) -> Any:
        compared.append(len(runs))
        return compare_runs(comparer, runs)

    monkeypatch.setattr(SubmodelComparer, "compare_runs", count_runs)
    assert collect_page_data(DIGITS.read_bytes(), otp.convert(DIGITS).proto, "digits").errors
    assert compared == [3]


def test_float_islands_and_forced_transposes_are_named() -> None:
    model = ModelBuilder()
    g = model.main
    q = quant(0.1, 3)
    x = g.input("x", (1, 4, 6, 3), "int8", quantization=q)
    f, y = g.tensor("f", (1, 4, 6, 3)), g.tensor("y", (1, 4, 6, 3))
    z = g.tensor("z", (1, 4, 6, 3), "int8", quantization=q)
    g.operator("DEQUANTIZE", [x], [f])
    g.operator("SIN", [f], [y])
    g.operator("QUANTIZE", [y], [z])
    g.output(z)
    conversion = otp.convert(model.build(), layout={"x": "NHWC:NCHW"})
    page = collect_page_data(model.build(), conversion.proto, "m", report=conversion.report)
    assert [op["float_island"] for op in page.operators] == [True, True, False]
    assert len(page.transposes) == conversion.report.transposes == 1


def test_states_are_listed_separately_and_compared() -> None:
    model = ModelBuilder()
    g = model.main
    x, handle = g.input("x", (2, 3)), g.tensor("handle", (), "resource")
    before, y = g.tensor("before", (2, 3)), g.tensor("y", (2, 3))
    setup = model.subgraph("setup")
    setup_handle = setup.tensor("handle", (), "resource")
    setup.operator("VAR_HANDLE", [], [setup_handle], {"shared_name": "sum"})
    setup.operator("ASSIGN_VARIABLE", [setup_handle, setup.constant("zero", np.zeros((2, 3), np.float32))], [])
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": setup.index})
    g.operator("VAR_HANDLE", [], [handle], {"shared_name": "sum"})
    g.operator("READ_VARIABLE", [handle], [before])
    g.operator("ADD", [before, x], [y])
    g.operator("ASSIGN_VARIABLE", [handle, y], [])
    g.output(y)
    conversion = otp.convert(model.build())
    page = collect_page_data(model.build(), conversion.proto, "m", report=conversion.report)
    names = {side: [fact["name"] for fact in page.facts[side]] for side in ("inputs", "outputs", "states")}
    assert names == {"inputs": ["x"], "outputs": ["y"], "states": ["sum"]}
    assert page.facts["states"][0]["next"] == "sum:next"
    assert [op["code"] for op in page.operators if op["first"]] == ["ADD"]
    assert page.errors
    assert not page.wrong


def test_page_names_files_versions_and_processor() -> None:
    conversion = otp.convert(DIGITS, target="generic")
    page = collect_page_data(
        DIGITS.read_bytes(), conversion.proto, "digits", report=conversion.report, onnx_name="d.onnx"
    )
    facts = page.facts["provenance"]
    assert (facts["ONNX file"], facts["target"]) == ("d.onnx", "generic")
    assert facts["converted by"] == f"onnx-tflite-plugin {otp.__version__}"
    assert re.fullmatch(r"ONNX Runtime \d\S+, LiteRT \d\S+", facts["runtimes"])
    assert facts["processor"] == processor()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", facts["date"])
    assert {*describe_provenance(conversion.proto, "", None, uses_runtimes=False)} == {"converted by", "date"}


def test_page_names_missing_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    page = collect_page_data(DIGITS.read_bytes(), otp.convert(DIGITS).proto, "digits")
    assert page.errors == []
    (note,) = page.notes
    assert "onnxruntime is not installed" in note


def test_page_without_runtimes_warns_of_a_missing_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    proto = otp.convert(DIGITS).proto
    del proto.metadata_props[:]
    _, note = collect_page_data(DIGITS.read_bytes(), proto, "digits").notes
    assert note == "the ONNX model does not record its TFLite file, so it may not be the conversion of digits"


def test_names_are_escaped(digits: Page) -> None:
    hostile_name = "</script><script>alert(1)</script>{style}<img src=x>"
    page = Page(hostile_name, digits.facts, [{**digits.operators[0], "name": hostile_name}], [])
    text = html(page)
    assert "<script>alert" not in text
    assert "<img" not in text


def test_page_needs_no_network(digits: Page) -> None:
    text = html(digits)
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?!data:|[\"'])", text)
    assert "Permission is hereby granted" in text


def test_commands_write_the_page(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "d.onnx"
    run("convert", DIGITS, path, "--report", tmp_path / "a.html")
    run("report", DIGITS, path)
    assert (tmp_path / "a.html").stat().st_size > 400_000
    assert (tmp_path / "d.html").stat().st_size > 400_000
    assert json.loads(run("report", DIGITS, path, "--json").out)["operators"][0]["code"] == "CONV_2D"


def test_report_exits_with_3_for_a_difference(run: Run, tmp_path: Path) -> None:
    proto = otp.convert(DIGITS, weights_dtype="uint8").proto
    (bias,) = [
        initializer
        for initializer in proto.graph.initializer
        if initializer.data_type == onnx.TensorProto.INT32 and initializer.dims == [10]
    ][:1]
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias)[::-1] * 3, bias.name))
    path = tmp_path / "wrong.onnx"
    onnx.save(proto, path)
    assert run("report", DIGITS, path).code == 3
    assert run("report", DIGITS, path, "--json").code == 3
