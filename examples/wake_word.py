"""Wake word detection in ONNX Runtime: a stateful streaming network that processes 30 ms at a time.

pip download --no-deps pymicro-wakeword==2.5.0        # a wheel that ships the .tflite
python examples/wake_word.py pymicro_wakeword-2.5.0-*.whl
"""

# %% The model and its manifest, with the threshold for the wake word.
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


# %% The input: silence, then noise. The package's own front end computes such features from a microphone.
def features(seconds: float = 1.5, seed: int = 0) -> Iterator[Features]:
    random = np.random.default_rng(seed)
    for volume in (0.0, 13.0):
        for _ in range(round(seconds / 0.03)):
            yield (volume * random.random((1, 3, 40))).astype(np.float32)


# %% Inference. The states are inputs and outputs of the ONNX model; ``Session`` carries them from run to run.
def probabilities(session: Session, graph_value: otp.GraphValue, chunks: Iterable[Features]) -> Iterator[float]:
    """Yield the probability of the wake word after each chunk. ``graph_value`` is the input, with its scale and zero point."""
    (scale,), (zero_point,) = graph_value.scale, graph_value.zero_point
    for chunk in chunks:
        quantized = np.clip(np.round(chunk / scale) + zero_point, -128, 127).astype(np.int8)
        (output,) = session.run({graph_value.name: quantized}).values()
        yield float(output.item()) / 256


def detections(probabilities: Iterable[float], cutoff: float, window: int) -> int:
    """Return how often the mean of the last ``window`` probabilities rises above the cutoff."""
    last = deque([0.0] * window, window)
    count = 0
    for probability in probabilities:
        was_above = sum(last) / window > cutoff
        last.append(probability)
        count += not was_above and sum(last) / window > cutoff
    return count


def main(wheel: Path) -> None:
    content, manifest = model(wheel)
    conversion = otp.convert(content, verify=True)
    print(conversion)
    print("states:", ", ".join(conversion.report.states))
    with tempfile.TemporaryDirectory() as folder:
        (path,) = conversion.save(Path(folder) / "wake_word.onnx")
        session = Session(path)
        (graph_value,) = conversion.report.inputs
        scores = list(probabilities(session, graph_value, features()))
        session.reset()  # a new stream: the states are zero again
        assert list(probabilities(session, graph_value, features())) == scores
    print(f"{len(scores)} chunks, maximum probability {max(scores):.3f}")
    print("detections:", detections(scores, manifest["probability_cutoff"], manifest["sliding_window_size"]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} WHEEL; pip download gets the wheel, see the first lines of the file")
    main(Path(sys.argv[1]))
