"""Custom operators that the op packs of this repository convert: where none is installed, named with their pack."""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "CUSTOM."
ORIGIN = {"mediapipe": "MediaPipe", "audio": "TensorFlow Lite for Microcontrollers"}
"""Whose operators they are, by the pack's folder under ``packs/``."""

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
"""The pack of each operator, as its setup.cfg has them, without those that it refuses."""


@hookimpl
def claim(op: Operator) -> Decline | None:
    """Return a Decline that names the pack to install; an installed pack claims the operator itself."""
    name = op.code.removeprefix(PREFIX)
    pack = PACKS.get(name) if op.code.startswith(PREFIX) else None
    if pack is None:
        return None
    return Decline(
        f"the operator is {name} of {ORIGIN[pack]}; an op pack of this project converts it",
        f"in the project's repository: pip install ./packs/{pack}",
    )
