"""Tests of released networks from PyPI wheels against LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime, verify
from tools.wheels import FACES, PITCH, WAKE_WORDS, tflite_files

# maximum number of Transpose nodes by wheel and network; the plan is optimal except for HEURISTIC networks
WHEELS: dict[str, dict[str, int]] = {
    FACES: {
        "face_detection_back": 5,
        "face_detection_front": 5,
        "face_detection_full_range": 2,
        "face_detection_full_range_sparse": 3,
        "face_detection_short_range": 5,
        "face_landmark": 1,
        "iris_landmark": 1,
    },
    PITCH: {"nmp": 2},
    # ONNX Runtime removes all but 2 at load time
    WAKE_WORDS: {"alexa": 5, "hey_jarvis": 5, "hey_mycroft": 5, "okay_nabu": 6},
}
STREAMING = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")
HEURISTIC = {"nmp"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the wheels' .tflite files, without installing the packages."""
    return tflite_files(tmp_path_factory.mktemp("wheels"), [*WHEELS])


@pytest.mark.parametrize(
    ("name", "max_transposes"),
    [(name, max_transposes) for networks in WHEELS.values() for name, max_transposes in networks.items()],
)
def test_released_network_agrees_with_litert(name: str, max_transposes: int, wheels: Path, thorough: bool) -> None:
    (path,) = wheels.glob(f"*/{name}.tflite")
    conversion = otp.convert(path)
    verification = verify(path, conversion.proto.SerializeToString(), runs=3 if thorough else 1)
    assert verification.ok, verification.text
    assert conversion.report.layout == ("heuristic" if name in HEURISTIC else "least")
    assert conversion.report.transposes <= max_transposes


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_network_agrees_over_200_runs(name: str, wheels: Path, thorough: bool) -> None:
    """The last sigmoid's input is compared; its output is nearly always 0.

    The variant with reset states has 40 runs, with ``--thorough`` all 200.
    """
    (path,) = wheels.glob(f"*/{name}.tflite")
    rng = np.random.default_rng(5)
    chunks = [rng.integers(-128, 128, (1, 3, 40)).astype(np.int8) for _ in range(200)]
    reset_runs = len(chunks) if thorough else 40
    with_states, with_reset = run_both(path, chunks, "io"), run_both(path, chunks[:reset_runs], "reset")
    assert len(np.unique(with_states[1])) > 20
    for actual, expected in (with_states, with_reset):
        errors = np.abs(actual - expected)  # each of fifteen layers may add an error of one step
        half = len(errors) // 2
        assert errors.max() <= 5
        assert errors.mean() < 1
        assert errors[half:].mean() < errors[:half].mean() + 0.3, "errors accumulate"
    assert np.abs(with_states[1][:reset_runs] - with_reset[1]).max() > 5, "the states make no difference"


def run_both(path: Path, chunks: list[Array], state: str) -> tuple[Array, Array]:
    """Return the last sigmoid's inputs in each run of ONNX Runtime and of LiteRT."""
    (sigmoid,) = (op for op in read(path.read_bytes()).main.operators if op.code == "LOGISTIC")
    tensor, proto = sigmoid[0], otp.convert(path, state=state).proto
    values = OnnxRuntime(proto).tensor_values
    value = next(value for value in values if value.tensor == tensor.index and value.encoding == "stored")
    session, litert = OnnxRuntime(proto, keep=[value.name]), LiteRT(path, "builtin", preserve=True)
    assert bool(session.states) == (state == "io")
    actual, expected = [], []
    for chunk in chunks:
        if state == "reset":
            litert = LiteRT(path, "builtin", preserve=True)
        litert.run([chunk])
        session.run([chunk])
        restored = value.restore(session.values()[value.name], np.dtype(tensor.dtype))
        assert restored is not None
        actual.append(restored.reshape(-1))
        expected.append(litert.tensors()[tensor.index].reshape(-1))
    return np.array(actual, int), np.array(expected, int)
