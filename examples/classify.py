"""Convert a digits model and classify the images in digits.npz with ONNX Runtime.

python examples/classify.py [MODEL.tflite | MODEL.onnx]        default: digits_int8.tflite
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

import onnx_tflite_plugin as otp

HERE = Path(__file__).parent


def encode(images: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[Any]:
    """Return pixels (0 to 16) as model input: floats from 0 to 1, or int8 in steps of 1/255 from -128."""
    shade = images[..., None] / np.float32(16)
    return np.round(shade * 255 - 128).astype(np.int8) if dtype == "int8" else shade


def classify(model: bytes, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return the probability of each digit, one row per image; the model processes one image at a time."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (model_input,) = session.get_inputs()
    dtype = "int8" if model_input.type == "tensor(int8)" else "float32"
    rows = [session.run(None, {model_input.name: image[None]})[0][0] for image in encode(images, dtype)]
    return (np.array(rows, np.float64) + 128) / 256 if dtype == "int8" else np.array(rows, np.float64)


def main(path: Path = HERE / "digits_int8.tflite") -> None:
    model = path.read_bytes() if path.suffix == ".onnx" else otp.convert(path).proto.SerializeToString()
    with np.load(HERE / "digits.npz") as data:
        images, labels = data["images"], data["labels"]
    probabilities = classify(model, images)
    for label, row in zip(labels, probabilities, strict=True):
        print(
            f"a {label} is classified as {row.argmax()} ({row.max():.0%}){'' if label == row.argmax() else '   <- wrong'}"
        )
    print(f"{(probabilities.argmax(axis=1) == labels).sum()} of {len(labels)} correct")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
