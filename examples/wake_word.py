"""A wake word in ONNX Runtime: a streaming network that remembers, fed 30 ms at a time.

pip download --no-deps pymicro-wakeword==2.5.0        # a wheel that ships the .tflite
python examples/wake_word.py pymicro_wakeword-2.5.0-*.whl
"""

# %% The model and what its authors say of it: when a probability counts as the wake word.
from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.runtime import Session

Features = npt.NDArray[np.float32]  # 3 spectra of 40 bands each, 10 ms apart

NAME = "okay_nabu"


def model(wheel: Path) -> tuple[bytes, dict[str, Any]]:
    with zipfile.ZipFile(wheel) as archive:
        folder = "pymicro_wakeword/models"
        return archive.read(f"{folder}/{NAME}.tflite"), json.loads(archive.read(f"{folder}/{NAME}.json"))["micro"]


# %% What it hears here: silence, then noise. The package's own front end makes such features of a microphone.
def sounds(seconds: float = 1.5, seed: int = 0) -> Iterator[Features]:
    random = np.random.default_rng(seed)
    for volume in (0.0, 13.0):
        for _ in range(round(seconds / 0.03)):
            yield (volume * random.random((1, 3, 40))).astype(np.float32)


# %% Running it. The states are inputs and outputs of the ONNX model; ``Session`` carries them from run to run.
def probabilities(session: Session, edge: otp.Edge, chunks: Iterable[Features]) -> Iterator[float]:
    """Yield the probability of the wake word after each chunk. ``edge`` is the input, with its scale and zero point."""
    (scale,), (zero_point,) = edge.scale, edge.zero_point
    for chunk in chunks:
        stored = np.clip(np.round(chunk / scale) + zero_point, -128, 127).astype(np.int8)
        (heard,) = session.run({edge.name: stored}).values()
        yield float(heard.item()) / 256


def detections(heard: Iterable[float], cutoff: float, window: int) -> int:
    """Return how often the mean of the last ``window`` probabilities exceeds the cutoff."""
    last = deque([0.0] * window, window)
    count = 0
    for probability in heard:
        before = sum(last) / window > cutoff
        last.append(probability)
        count += not before and sum(last) / window > cutoff
    return count


def main(wheel: Path) -> None:
    content, manifest = model(wheel)
    conversion = otp.convert(content, verify=True)
    print(conversion)
    print("states:", ", ".join(conversion.report.states))
    with tempfile.TemporaryDirectory() as folder:
        (path,) = conversion.save(Path(folder) / "wake_word.onnx")
        session = Session(path)
        (edge,) = conversion.report.inputs
        heard = list(probabilities(session, edge, sounds()))
        session.reset()  # a new stream: nothing of the last one is left
        assert list(probabilities(session, edge, sounds())) == heard
    print(f"{len(heard)} chunks, at most {max(heard):.3f}")
    print("heard:", detections(heard, manifest["probability_cutoff"], manifest["sliding_window_size"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
