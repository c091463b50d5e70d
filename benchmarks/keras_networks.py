"""Convert networks of keras.applications: ``python keras_networks.py FOLDER``.

Requires TensorFlow. Arguments after the folder select kinds: ``float``, ``int8``, ``dynamic``, ``int16x8``. The default
is ``float`` and ``int8``.

Images are 96 x 96, so that each network takes some milliseconds. Weights are random, which does not change the time.
The batch normalization statistics are random too; otherwise the converter would have nothing to fold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ARCHITECTURES = {
    "densenet121": "DenseNet121",
    "efficientnet_b0": "EfficientNetB0",
    "efficientnet_v2_b0": "EfficientNetV2B0",
    "inception_v3": "InceptionV3",
    "mobilenet_v1": "MobileNet",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_small": "MobileNetV3Small",
    "nasnet_mobile": "NASNetMobile",
    "resnet50_v2": "ResNet50V2",
    "xception": "Xception",
}
KINDS = ("float", "int8")
_SHAPE = (96, 96, 3)
_CALIBRATION_IMAGES = 4


def write(folder: Path, kinds: Sequence[str] = KINDS) -> None:
    """Write ``NAME_KIND.tflite`` for every architecture and kind; keep existing files."""
    import tensorflow as tf

    for name, architecture in ARCHITECTURES.items():
        missing = [kind for kind in kinds if not (folder / f"{name}_{kind}.tflite").exists()]
        if not missing:
            continue
        tf.keras.utils.set_random_seed(0)
        network = getattr(tf.keras.applications, architecture)(input_shape=_SHAPE, weights=None)
        randomize_batch_norm(network, tf, np.random.default_rng(0))
        for kind in missing:
            (folder / f"{name}_{kind}.tflite").write_bytes(convert_model(network, kind, tf))


def randomize_batch_norm(network: Any, tf: Any, rng: np.random.Generator) -> None:
    """Randomize the weights of batch normalization.

    Scales and variances are around 1, offsets and means around 0.
    """
    for layer in network.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            weights = {
                weight.name: rng.uniform(-0.05, 0.05, weight.shape) + (weight.name in ("gamma", "moving_variance"))
                for weight in layer.weights
            }
            layer.set_weights([weights[weight.name] for weight in layer.weights])


def convert_model(network: Any, kind: str, tf: Any) -> bytes:
    """Return the network as TFLite; ``int8`` and ``int16x8`` are calibrated on noise.

    ``int8`` models have int8 inputs and outputs.
    """
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    integer_operators = {
        "int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
        "int16x8": tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
    }

    def images() -> Iterator[list[np.ndarray[Any, Any]]]:
        rng = np.random.default_rng(0)
        for _ in range(_CALIBRATION_IMAGES):
            yield [rng.normal(size=(1, *_SHAPE)).astype(np.float32)]

    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind in integer_operators:
        converter.representative_dataset = images
        converter.target_spec.supported_ops = [integer_operators[kind]]
    if kind == "int8":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2:] or KINDS)
