"""Test released networks from PyPI wheels against LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime, verify
from tools.wheels import FACES, PITCH, WAKE_WORDS, tflite_files

# wheel → network → most Transpose nodes the plan may leave; where it is not proven least, it is a heuristic's
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
    WAKE_WORDS: {"alexa": 5, "hey_jarvis": 5, "hey_mycroft": 5, "okay_nabu": 6},  # all but 2 undone as they load
}
STREAMING = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")
HEURISTIC = {"nmp"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .tflite files of the wheels; nothing of the packages is installed."""
    return tflite_files(tmp_path_factory.mktemp("wheels"), [*WHEELS])


@pytest.mark.parametrize(
    ("name", "most"), [(name, most) for networks in WHEELS.values() for name, most in networks.items()]
)
def test_released_network_agrees_with_litert(name: str, most: int, wheels: Path, thorough: bool) -> None:
    (path,) = wheels.glob(f"*/{name}.tflite")
    conversion = otp.convert(path)
    found = verify(path, conversion.proto.SerializeToString(), runs=3 if thorough else 1)
    assert found.ok, found.text
    assert conversion.report.layout == ("heuristic" if name in HEURISTIC else "least")
    assert conversion.report.transposes <= most


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_network_agrees_over_200_runs(name: str, wheels: Path, thorough: bool) -> None:
    """The last sigmoid's input is compared, because its output is 0 for nearly every sound.

    The variant without states takes 40 runs; ``--thorough`` takes all.
    """
    (path,) = wheels.glob(f"*/{name}.tflite")
    rng = np.random.default_rng(5)
    chunks = [rng.integers(-128, 128, (1, 3, 40)).astype(np.int8) for _ in range(200)]
    few = len(chunks) if thorough else 40
    carried, begun = run_both(path, chunks, "io"), run_both(path, chunks[:few], "reset")
    assert len(np.unique(carried[1])) > 20
    for seen, wanted in (carried, begun):
        apart = np.abs(seen - wanted)  # a step here and there, of each of fifteen layers
        half = len(apart) // 2
        assert apart.max() <= 5
        assert apart.mean() < 1
        assert apart[half:].mean() < apart[:half].mean() + 0.3, "they drift apart"
    assert np.abs(carried[1][:few] - begun[1]).max() > 5, "the states make no difference"


def run_both(path: Path, chunks: list[Array], state: str) -> tuple[Array, Array]:
    """Return the last sigmoid's inputs per run, of ONNX Runtime and of LiteRT."""
    (sigmoid,) = (op for op in read(path.read_bytes()).main.operators if op.code == "LOGISTIC")
    tensor, proto = sigmoid[0], otp.convert(path, state=state).proto
    values = OnnxRuntime(proto).tensor_values
    value = next(one for one in values if one.tensor == tensor.index and one.form == "stored")
    session, original = OnnxRuntime(proto, keep=[value.name]), LiteRT(path, "builtin", preserve=True)
    assert bool(session.states) == (state == "io")
    seen, wanted = [], []
    for chunk in chunks:
        if state == "reset":
            original = LiteRT(path, "builtin", preserve=True)
        original.run([chunk])
        session.run([chunk])
        restored = value.restore(session.values()[value.name], np.dtype(tensor.dtype))
        assert restored is not None
        seen.append(restored.reshape(-1))
        wanted.append(original.tensors()[tensor.index].reshape(-1))
    return np.array(seen, int), np.array(wanted, int)
