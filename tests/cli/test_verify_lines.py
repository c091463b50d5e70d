"""Lines of ``verify`` on names, causes and next steps, and repeated options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import VerificationError
from tests.helpers.command import Run

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
LONG = "/".join(f"layer{k}" for k in range(30))


def write_wrong_model(path: Path, quantization: str = "qdq") -> None:
    """Write the digits network with a wrong bias of the last layer."""
    proto = otp.convert(DIGITS, quantization=quantization, weights_dtype="uint8").proto
    bias = next(x for x in proto.graph.initializer if list(x.dims) == [10])
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias)[::-1] * 3, bias.name))
    onnx.save(proto, path)


def write_negation(tflite: Path, onnx_path: Path, op_type: str = "Neg") -> None:
    """Write a NEG with a long output name, and its conversion to ``op_type``."""
    model = ModelBuilder()
    g = model.main
    g.operator("NEG", [g.input("x", (2, 3))], [y := g.tensor(LONG, (2, 3))])
    g.output(y)
    tflite.write_bytes(model.build())
    proto = otp.convert(model.build()).proto
    proto.graph.node[0].op_type = op_type
    onnx.save(proto, onnx_path)


def test_bisect_without_a_difference_writes_nothing_and_says_so(run: Run, tmp_path: Path) -> None:
    otp.convert(DIGITS).save(tmp_path / "d.onnx")
    result = run("verify", DIGITS, tmp_path / "d.onnx", "--bisect", tmp_path / "bug")
    assert result.code == 0
    assert result.out.splitlines()[-1].split(maxsplit=1) == ["bisect", "nothing to write: no submodel differs"]
    assert not (tmp_path / "bug").exists()


def test_difference_has_next_steps_with_the_given_options(run: Run, tmp_path: Path) -> None:
    write_wrong_model(tmp_path / "wrong.onnx")
    result = run("verify", DIGITS, tmp_path / "wrong.onnx", "--range", "0=-9:9", "--seed=4")
    assert result.code == 3
    bisect, plain = result.out.splitlines()[-2:]
    assert f"verify {DIGITS} {tmp_path / 'wrong.onnx'} --range 0=-9:9 --seed=4 --bisect DIR" in bisect
    assert (
        f"convert {DIGITS} plain.onnx --optimize none --verify --range 0=-9:9 --seed=4: if plain.onnx agrees" in plain
    )
    assert "--optimize none" not in run("verify", DIGITS, tmp_path / "wrong.onnx", "--bisect", tmp_path / "bug").out


def test_requantization_is_named_as_the_cause(run: Run, tmp_path: Path) -> None:
    write_wrong_model(tmp_path / "wrong.onnx", "symmetric")
    result = run("verify", DIGITS, tmp_path / "wrong.onnx")
    assert result.code == 3
    assert "likely cause: the model was converted with --quantization symmetric" in result.out
    assert "--optimize none" not in result.out
    write_wrong_model(tmp_path / "wrong.onnx")
    assert "likely cause" not in run("verify", DIGITS, tmp_path / "wrong.onnx").out


@pytest.mark.parametrize("op_type", ["Neg", "Exp"])
def test_long_names_are_shortened_unless_verbose(run: Run, tmp_path: Path, op_type: str) -> None:
    paths = tmp_path / "m.tflite", tmp_path / "m.onnx"
    write_negation(*paths, op_type)
    short, full = run("verify", *paths).out, run("verify", *paths, "-v").out
    assert LONG not in short
    assert LONG in full
    assert "layer29" in short


def test_difference_of_one_operator_is_reported_once(run: Run, tmp_path: Path) -> None:
    paths = tmp_path / "m.tflite", tmp_path / "m.onnx"
    write_negation(*paths, "Exp")
    lines = run("verify", *paths).out.splitlines()
    assert sum("NEG" in line for line in lines) == 1
    assert "first tensor that differs when each operator gets LiteRT's values: tensor 1 'layer0" in next(
        line for line in lines if "NEG" in line
    )


def test_failed_conversion_has_next_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    verification = otp.verify(DIGITS, otp.convert(DIGITS), runs=1)
    wrong_output = verification.comparisons[0]
    differs = replace(verification, comparisons=(replace(wrong_output, max_error=9.0),))
    monkeypatch.setattr("onnx_tflite_plugin.verify.verify", lambda *arguments, **options: differs)
    with pytest.raises(VerificationError, match=r"convert with optimize='none': .*\n.* verify with bisect DIR"):
        otp.convert(DIGITS, verify=True)


@pytest.mark.int8_products
def test_next_command_repeats_options_about_data(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "my data.npz"
    np.savez(data, image=np.zeros((1, 8, 8, 1), np.int8))
    result = run("convert", DIGITS, tmp_path / "d.onnx", "--inputs", data, "--runs", 1, "--optimize", "none")
    (line,) = [line for line in result.out.splitlines() if line.startswith("next")]
    assert f"report {DIGITS} {tmp_path / 'd.onnx'} --inputs '{data}' writes" in line
