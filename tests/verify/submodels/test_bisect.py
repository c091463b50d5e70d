"""Test ``bisect``: the smallest differing submodel is written and differs again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.submodels import saving
from tests.helpers.chains import chain
from tests.helpers.command import Run

DIGITS = Path(__file__).parents[3] / "examples" / "digits_int8.tflite"


def plant(data: bytes, op_type: str, wrong_op_type: str) -> onnx.ModelProto:
    """Return the conversion with the operator of one node replaced."""
    proto = otp.convert(data).proto
    next(node for node in proto.graph.node if node.op_type == op_type).op_type = wrong_op_type
    return proto


@pytest.mark.parametrize(("op_type", "wrong_op_type", "code"), [("Exp", "Neg", "EXP"), ("Add", "Sub", "ADD")])
def test_bisect_writes_only_the_wrong_operator(tmp_path: Path, op_type: str, wrong_op_type: str, code: str) -> None:
    verification = verify(chain(), plant(chain(), op_type, wrong_op_type), bisect=tmp_path / "new")
    assert not verification.ok
    assert re.search(rf"part +op \d {code}: max ", verification.text)
    submodel = tmp_path / "new" / "part.tflite"
    assert [op.code for op in read(submodel).main.operators] == [code]
    assert len(onnx.load(submodel.with_suffix(".onnx")).graph.node) == 1
    assert not verify(submodel, submodel.with_suffix(".onnx"), inputs=submodel.with_suffix(".npz")).ok


def test_bisect_extracts_a_wrong_layer_with_its_weights(tmp_path: Path) -> None:
    proto = otp.convert(DIGITS, weights_dtype="uint8").proto
    pool = [node for node in proto.graph.node if node.op_type == "Conv"][1]
    (pads,) = (attribute for attribute in pool.attribute if attribute.name == "pads")
    pads.ints[:] = [*pads.ints[2:], *pads.ints[:2]] if pads.ints[0] != pads.ints[2] else [0, 0, 2, 2]
    verification = verify(DIGITS, proto, bisect=tmp_path)
    assert not verification.ok
    submodel = tmp_path / "part.tflite"
    assert [op.code for op in read(submodel).main.operators] == ["DEPTHWISE_CONV_2D"]
    assert submodel.stat().st_size < DIGITS.stat().st_size
    assert not verify(submodel, tmp_path / "part.onnx", inputs=tmp_path / "part.npz").ok
    feeds = dict(np.load(tmp_path / "part.onnx.npz"))
    (litert_array,) = dict(np.load(tmp_path / "part.npz")).values()
    (onnx_array,) = feeds.values()
    assert (litert_array.shape, onnx_array.shape, onnx_array.dtype) == ((1, 8, 8, 24), (1, 24, 8, 8), np.uint8)
    import onnxruntime

    assert onnxruntime.InferenceSession(tmp_path / "part.onnx").run(None, feeds)


def test_submodel_includes_values_captured_by_inner_graphs() -> None:
    proto = otp.convert(DIGITS, weights_dtype="auto").proto
    assert any(node.op_type == "If" for node in proto.graph.node)
    names = [value.name for value in proto.graph.output]
    submodel = extract_submodel(proto, [value.name for value in proto.graph.input], names)
    assert submodel is not None
    onnx.checker.check_model(submodel, full_check=True)
    feeds = {"image": np.ones((1, 8, 8, 1), np.int8)}
    import onnxruntime

    expected, actual = (
        onnxruntime.InferenceSession(p.SerializeToString()).run(None, feeds)[0] for p in (proto, submodel)
    )
    np.testing.assert_array_equal(expected, actual)


def test_submodel_with_missing_inputs_is_none() -> None:
    proto = otp.convert(chain()).proto
    assert extract_submodel(proto, ["x"], ["y"]) is None
    assert extract_submodel(proto, ["x"], ["nowhere"]) is None


def test_command_prints_the_submodel_path(tmp_path: Path, run: Run) -> None:
    tflite, path = tmp_path / "m.tflite", tmp_path / "m.onnx"
    tflite.write_bytes(chain())
    onnx.save(plant(chain(), "Abs", "Neg"), path)
    code, out, _ = run("verify", tflite, path, "--bisect", tmp_path / "bug")
    assert code == 3
    part = tmp_path / "bug" / "part"
    command = f"onnx-tflite verify {part}.tflite {part}.onnx --inputs {part}.npz compares one submodel again"
    assert command in " ".join(out.split())


def test_submodel_includes_external_data_of_both_models(tmp_path: Path) -> None:
    """Constants follow the FlatBuffer and are external, as in models over 2 GB."""
    model = ModelBuilder()
    g, weights = model.main, np.arange(35, dtype=np.float32).reshape(5, 7)
    x, y, z = g.input("x", (2, 7)), g.tensor("y", (2, 5)), g.tensor("z", (2, 5))
    g.operator("FULLY_CONNECTED", [x, g.constant("w", weights, external=True), None], [y])
    g.operator("NEG", [y], [z])
    g.output(z)
    data = model.build()
    proto = otp.convert(data).proto
    wrong_weights = next(tensor for tensor in proto.graph.initializer if len(tensor.dims) == 2)
    wrong_weights.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(wrong_weights) * 1.5, wrong_weights.name)
    )
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    verification = verify(data, tmp_path / "m.onnx", bisect=tmp_path / "new")
    assert "part   op 0 FULLY_CONNECTED: max " in verification.text
    submodel = tmp_path / "new" / "part.tflite"
    assert not verify(submodel, submodel.with_suffix(".onnx"), inputs=submodel.with_suffix(".npz")).ok


def test_bisect_lists_files_and_removes_those_of_an_earlier_run(tmp_path: Path) -> None:
    for name in ("part3.onnx", "mine.onnx"):
        (tmp_path / name).write_bytes(b"earlier")
    notice, line, *_ = verify(chain(), plant(chain(), "Exp", "Neg"), bisect=tmp_path).notes
    assert notice.startswith(f"1 submodel in {tmp_path}, each as .tflite, .onnx, .npz")
    assert re.match(r"  part   op \d EXP: max ", line)
    assert not (tmp_path / "part3.onnx").exists()
    assert (tmp_path / "mine.onnx").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_full_disk_does_not_hide_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.suffix == ".onnx":
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(content)

    folder = tmp_path / "new"
    if exists:
        folder.mkdir()
    monkeypatch.setattr(saving.files, "write", write)
    verification = verify(chain(), plant(chain(), "Exp", "Neg"), bisect=folder)
    assert verification.verdict == "differs"
    notice = f"the submodels were not written: {folder / 'part.onnx'}: No space left on device"
    assert verification.notes[0] == notice
    assert [*tmp_path.rglob("*")] == [folder] * exists


def test_bisect_refuses_an_option_as_folder(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(plant(chain(), "Abs", "Neg"), path)
    (tmp_path / "m.tflite").write_bytes(chain())
    code, _, err = run("verify", tmp_path / "m.tflite", path, "--bisect", "--runs", "1")
    assert code == 2
    assert "--bisect: a path is missing before '--runs', which looks like an option" in err


def test_bisect_creates_folders_and_names_three_operators(tmp_path: Path) -> None:
    verification = verify(chain(), plant(chain(), "Exp", "Neg"), bisect=tmp_path / "a" / "new")
    assert sorted(file.name for file in (tmp_path / "a" / "new").iterdir()) == [
        "part.npz", "part.onnx", "part.onnx.npz", "part.tflite",
    ]  # fmt: skip
    assert "and 0 more" not in verification.text


def test_submodel_records_its_source_and_is_not_bisected_again(run: Run, tmp_path: Path) -> None:
    verification = verify(chain(), plant(chain(), "Exp", "Neg"), bisect=tmp_path)
    assert "attach the folder to a bug report" in verification.text
    code, out, _ = run("verify", tmp_path / "part.tflite", tmp_path / "part.onnx", "--inputs", tmp_path / "part.npz")
    assert code == 3
    assert "does not record its TFLite file" not in out
    assert "--bisect" not in out


def test_submodel_with_a_known_cause_is_not_a_bug_report(tmp_path: Path) -> None:
    proto = otp.convert(DIGITS, quantization="symmetric").proto
    bias = next(x for x in proto.graph.initializer if list(x.dims) == [10])
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias)[::-1] * 3, bias.name))
    verification = verify(DIGITS, proto, bisect=tmp_path)
    assert "likely cause: " in verification.text
    assert "1 submodel in " in verification.text
    assert "bug report" not in verification.text


def test_first_difference_is_the_first_operator_in_any_run(tmp_path: Path) -> None:
    """The wrong ABS differs only in the second run, the wrong NEG in both."""
    model = ModelBuilder()
    g = model.main
    x, y, z = g.input("x", (1, 3)), g.tensor("y", (1, 3)), g.tensor("z", (1, 3))
    g.operator("ABS", [x], [y])
    g.operator("NEG", [y], [z])
    g.output(z)
    proto = plant(model.build(), "Abs", "Relu")
    next(node for node in proto.graph.node if node.op_type == "Neg").op_type = "Exp"
    inputs = np.array([[1, 2, 3], [-1, -2, -3]], np.float32)
    verification = verify(model.build(), proto, inputs={"x": inputs}, bisect=tmp_path)
    assert verification.diverging is not None
    assert verification.diverging.operator.code == "ABS"
    assert re.search(r"part +op 0 ABS: max ", verification.text)
    assert re.search(r"part2 +op 1 NEG: max ", verification.text)


def test_submodel_begins_where_the_onnx_model_reads_its_operands(tmp_path: Path) -> None:
    """The wrong node reads a copy of ABS, so no submodel begins at its result."""
    model = ModelBuilder()
    g = model.main
    x, y, z = g.input("x", (1, 3)), g.tensor("y", (1, 3)), g.tensor("z", (1, 3))
    g.operator("ABS", [x], [y])
    g.operator("NEG", [y], [z])
    w = g.tensor("w", (1, 3))
    g.operator("FLOOR", [y], [w])
    g.output(z)
    g.output(w)
    proto = plant(model.build(), "Neg", "Exp")
    absolute, wrong, _ = proto.graph.node
    copy = onnx.helper.make_node("Abs", absolute.input, ["copy"])
    copy.metadata_props.extend(absolute.metadata_props)
    wrong.input[0] = "copy"
    proto.graph.node.insert(1, copy)
    verification = verify(model.build(), proto, bisect=tmp_path)
    assert re.search(r"part +op 0 ABS, op 1 NEG: max ", verification.text)
    assert "the first difference is missing" not in verification.text
    part = tmp_path / "part.tflite"
    assert not verify(part, part.with_suffix(".onnx"), inputs=part.with_suffix(".npz")).ok


def test_cause_is_known_if_no_value_holds_a_quantized_tensor() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    q = g.tensor("q", (2, 3), "int8", quantization=quant(0.1, 3))
    t = g.tensor("t", (2, 3), "int8", quantization=quant(0.05, -7))
    y = g.tensor("y", (2, 3))
    g.operator("QUANTIZE", [x], [q])
    w = g.constant("w", np.array([[90, -3, 7], [5, 60, 1], [2, 2, 80]], np.int8), quantization=quant(0.01, 0))
    g.operator("FULLY_CONNECTED", [q, w], [t])
    g.operator("DEQUANTIZE", [t], [y])
    g.output(y)
    proto = otp.convert(model.build(), quantization="symmetric").proto
    next(node for node in proto.graph.node if node.op_type in ("Gemm", "MatMul")).input[1] = "wrong"
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "wrong"))
    assert "likely cause: the model was converted with quantization='symmetric'" in verify(model.build(), proto).text
