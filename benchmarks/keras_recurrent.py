"""Convert recurrent Keras layers: ``python keras_recurrent.py FOLDER``.

Requires TensorFlow and tf_keras. Sequences have 24 time steps of 40 features, and layers have 64 units. Each layer is
converted in a separate process, because the converter aborts the process for loops that it cannot quantize.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TIME, FEATURES, UNITS = 24, 40, 64
IMAGE = (7, 9, 11, 3)  # time, height, width and channels of the convolutional layer
KINDS = ("float", "float16", "dynamic", "int8", "int16x8")
LAYERS = {
    "keras3": ("lstm", "gru", "rnn", "bilstm", "bigru", "lstm_masked", "convlstm", "lstm_unrolled", "gru_unrolled"),
    "keras2": ("lstm", "bilstm", "gru"),
}
_CALIBRATION_SEQUENCES = 8
_OUTCOME = "outcome of"  # start of the lines that report results to the parent process


def write(folder: Path) -> None:
    """Write ``VERSION_LAYER_KIND.tflite`` for all layers that the converter supports.

    Existing files are kept. If the process aborts, the remaining kinds are converted in a new process.
    """
    for version, layers in LAYERS.items():
        environment = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(version == "keras2")), "TF_CPP_MIN_LOG_LEVEL": "3"}
        for layer in layers:
            missing = [kind for kind in KINDS if not (folder / f"{version}_{layer}_{kind}.tflite").exists()]
            while missing:
                command = [sys.executable, __file__, str(folder / f"{version}_{layer}"), layer, *missing]
                completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                outcomes = [line for line in completed.stdout.splitlines() if line.startswith(_OUTCOME)]
                if len(outcomes) < len(missing):
                    outcomes.append(f"{_OUTCOME} {missing[len(outcomes)]}: the converter aborted the process")
                print(*(line.replace(_OUTCOME, f"{version}_{layer}") for line in outcomes), sep="\n", flush=True)
                missing = missing[len(outcomes) :]


def network(layer: str, tf: Any) -> Any:
    """Return a model of one recurrent layer, for "lstm_masked" with a Masking layer."""
    layers, shape = tf.keras.layers, IMAGE if layer == "convlstm" else (TIME, FEATURES)
    keras_layers = {
        "lstm": lambda: [layers.LSTM(UNITS, return_sequences=True)],
        "gru": lambda: [layers.GRU(UNITS, return_sequences=True)],
        "rnn": lambda: [layers.SimpleRNN(UNITS, return_sequences=True)],
        "bilstm": lambda: [layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True))],
        "bigru": lambda: [layers.Bidirectional(layers.GRU(UNITS, return_sequences=True))],
        "lstm_masked": lambda: [layers.Masking(), layers.LSTM(UNITS)],
        "convlstm": lambda: [layers.ConvLSTM2D(5, 3, padding="same")],
        "lstm_unrolled": lambda: [layers.LSTM(UNITS, return_sequences=True, unroll=True)],
        "gru_unrolled": lambda: [layers.GRU(UNITS, return_sequences=True, unroll=True)],
    }[layer]()
    x = inputs = layers.Input(batch_shape=(1, *shape))
    for keras_layer in keras_layers:
        x = keras_layer(x)
    return tf.keras.Model(inputs, x)


def convert_model(model: Any, kind: str, tf: Any) -> bytes:
    """Return the network as TFLite; ``int8`` and ``int16x8`` are calibrated on noise.

    ``int8`` models have int8 inputs and outputs.
    """
    shape, sets = (1, *model.inputs[0].shape[1:]), tf.lite.OpsSet
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind in ("int8", "int16x8"):

        def sequences() -> Iterator[list[np.ndarray[Any, Any]]]:
            rng = np.random.default_rng(0)
            for _ in range(_CALIBRATION_SEQUENCES):
                yield [rng.normal(size=shape).astype(np.float32)]

        converter.representative_dataset = sequences
        int16x8_operators = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if kind == "int8" else int16x8_operators]
        if kind == "int8":
            converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def main(target: str, layer: str, *kinds: str) -> None:
    """Write the files of one layer; print one line per file.

    ``target``: start of the file names. Biases are random too; otherwise the converter would omit them.
    """
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    model, rng = network(layer, tf), np.random.default_rng(0)
    for keras_layer in model.layers:
        keras_layer.set_weights(
            [w + rng.uniform(-0.1, 0.1, w.shape).astype(np.float32) for w in keras_layer.get_weights()]
        )
    for kind in kinds:
        try:
            Path(f"{target}_{kind}.tflite").write_bytes(convert_model(model, kind, tf))
            outcome = "written"
        except Exception as error:
            outcome = f"not written, {' '.join(str(error).split())[:200]}"
        print(_OUTCOME, f"{kind}: {outcome}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(*sys.argv[1:])
    else:
        write(Path(sys.argv[1]))
