"""Declines of custom operators that an op pack of this repository converts.

Each Decline names the pack to install.
"""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "CUSTOM."
ORIGIN = {"mediapipe": "MediaPipe", "audio": "TensorFlow Lite for Microcontrollers"}
"""Origin of the operators by the pack's folder under ``packs/``."""

PACKS = {
    "Convolution2DTransposeBias": "mediapipe",
    "Landmarks2TransformMatrix": "mediapipe",
    "MaxPoolingWithArgmax2D": "mediapipe",
    "MaxUnpooling2D": "mediapipe",
    "SignalEnergy": "audio",
    "SignalFilterBank": "audio",
    "SignalFilterBankLog": "audio",
    "SignalFilterBankSquareRoot": "audio",
    "SignalIrfft": "audio",
    "SignalPCAN": "audio",
    "SignalRfft": "audio",
    "SignalWindow": "audio",
    "TransformLandmarks": "mediapipe",
    "TransformTensorBilinear": "mediapipe",
}
"""Pack folder by operator, as registered in setup.cfg of each pack. Operators that a pack refuses are omitted."""


@hookimpl
def claim(op: Operator) -> Decline | None:
    """Return a Decline that names the pack to install.

    An installed pack claims the operator itself.
    """
    name = op.code.removeprefix(PREFIX)
    pack = PACKS.get(name) if op.code.startswith(PREFIX) else None
    if pack is None:
        return None
    return Decline(
        f"an operator of {ORIGIN[pack]}, for which no handler is installed; the op pack packs/{pack} of this project has one",
        f"install it from the project's repository: pip install ./packs/{pack}",
    )
