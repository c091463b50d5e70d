"""The examples convert, agree with LiteRT, and produce the documented results.

Training is not repeated; its functions are tested, and the structure of the files is compared with the script.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.source import Quantization, read
from onnx_tflite_plugin.verify import verify
from tools.wheels import FACES, WAKE_WORDS, wheel

EXAMPLES = Path(__file__).parents[2] / "examples"
INT8, FLOAT = (EXAMPLES / f"digits_{kind}.tflite" for kind in ("int8", "float"))
each_digits_model = pytest.mark.parametrize("path", [FLOAT, INT8], ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts import each other, as when one of them runs."""
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture
def classify(_importable: None) -> ModuleType:
    return import_module("classify")


@pytest.fixture
def digits() -> tuple[Any, Any]:
    with np.load(EXAMPLES / "digits.npz") as data:
        return data["images"], data["labels"]


@each_digits_model
def test_converted_file_classifies_every_image(
    path: Path, tmp_path: Path, classify: ModuleType, digits: tuple[Any, Any]
) -> None:
    (saved,) = otp.convert(path).save(tmp_path / "digits.onnx")
    images, labels = digits
    np.testing.assert_array_equal(classify.classify(saved.read_bytes(), images).argmax(axis=1), labels)


@each_digits_model
def test_conversion_agrees_with_litert_on_noise_and_on_images(
    path: Path, classify: ModuleType, digits: tuple[Any, Any]
) -> None:
    model = otp.convert(path).proto.SerializeToString()
    noise = verify(path, model)
    assert noise.ok, noise.text
    (model_input,) = read(path).main.inputs
    verification = verify(
        path, model, inputs=[{"image": image[None]} for image in classify.encode(digits[0], model_input.dtype)]
    )
    assert verification.ok, verification.text


@each_digits_model
def test_conversion_needs_no_transpose(path: Path) -> None:
    assert otp.convert(path).report.transposes == 0


def test_int8_file_is_integer_end_to_end() -> None:
    tensors = read(INT8).main.tensors
    quantizations = {
        tensor.name: tensor.quantization for tensor in tensors if isinstance(tensor.quantization, Quantization)
    }
    assert {tensor.dtype for tensor in tensors} == {"int8", "int32"}
    assert {name for name, quantization in quantizations.items() if len(quantization.scale) == 24} == {
        f"{layer}/{kind}" for layer in ("edges", "strokes", "mixed") for kind in ("weights", "bias")
    }
    non_negative_tensors = ("image", "edges", "strokes", "mixed", "parts", "features", "probabilities")
    assert {quantizations[name].zero_point for name in non_negative_tensors} == {(-128,)}


def test_script_matches_checked_in_files() -> None:
    import_module("make_digits").check()


def test_classify_converts_and_prints_its_accuracy(classify: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    classify.main()
    assert capsys.readouterr().out.splitlines()[-1] == "20 of 20 correct"


# --- networks from wheels ---------------------------------------------------------------------


def test_face_landmarks_are_at_the_parts_of_the_drawn_face() -> None:
    module = import_module("face_landmarks")
    onnx = otp.convert(module.model(wheel(FACES))).proto.SerializeToString()
    points, score = module.landmarks(onnx, module.drawing())
    assert score > 0.99
    for name, position in {
        "right eye": (0.38, 0.44),
        "left eye": (0.62, 0.44),
        "mouth": (0.5, 0.73),
        "chin": (0.5, 0.88),
    }.items():
        np.testing.assert_allclose(
            points[list(module.POINTS[name]), :2].mean(axis=0), position, atol=0.03, err_msg=name
        )
    noise = np.random.default_rng(0).random((192, 192, 3), np.float32)
    assert module.landmarks(onnx, noise)[1] < 0.01


def test_wake_word_keeps_its_state_until_reset(capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module("wake_word")
    module.main(wheel(WAKE_WORDS))  # runs a stream twice, and compares
    assert "100 chunks" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["face_landmarks", "wake_word"])
def test_example_without_its_wheel_prints_a_usage_line(name: str) -> None:
    completed = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True)
    assert completed.returncode == 1
    assert re.fullmatch(rf"usage: python .*{name}\.py WHEEL.*\n", completed.stderr)


def test_wake_word_counts_each_rise_of_the_mean_once() -> None:
    detections = import_module("wake_word").detections
    assert detections([0.9] * 10, cutoff=0.85, window=5) == 1
    assert detections([0.9] * 4 + [0.0] * 6, cutoff=0.85, window=5) == 0
    assert detections([*[1.0] * 5, *[0.0] * 5, *[1.0] * 5], cutoff=0.85, window=5) == 2


def test_backward_pass_is_the_gradient_of_the_loss() -> None:
    network = import_module("network")
    generator = np.random.default_rng(0)
    images, labels = generator.uniform(0, 1, (5, 8, 8, 1)), generator.integers(0, 10, 5)
    parameters = {name: generator.normal(0, 0.3, value.shape) for name, value in network.initial_parameters().items()}

    def loss() -> float:
        probabilities = network.forward(parameters, images)["probabilities"][np.arange(5), labels]
        return float(-np.log(probabilities).mean())

    gradients = network.backward(parameters, network.forward(parameters, images), labels)
    for name, value in parameters.items():
        direction = generator.normal(0, 1e-6, value.shape)
        value += direction
        loss_above = loss()
        value -= 2 * direction
        loss_below = loss()
        value += direction
        assert (loss_above - loss_below) / 2 == pytest.approx((gradients[name] * direction).sum(), rel=1e-4), name
