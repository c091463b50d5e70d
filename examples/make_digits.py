"""Train, quantize and write digits_float.tflite, digits_int8.tflite and digits.npz, without TensorFlow.

python examples/make_digits.py             needs scikit-learn (for its images), onnxruntime and ai-edge-litert
python examples/make_digits.py --check     compares the structure of the checked-in files, without training
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import network
import numpy as np
from classify import classify, encode
from network import Array, Arrays
from quantizer import Stored, as_float, as_int8

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from onnx_tflite_plugin.source import Quantization, read
from onnx_tflite_plugin.verify import LiteRT

HERE = Path(__file__).parent
KINDS = ("float", "int8")
MIN_ACCURACY, MAX_LOSS = 0.95, 0.01  # minimum of the float model, and maximum loss by quantization


@dataclass(frozen=True)
class Layer:
    """One operator, named after its output; ``int8_version`` is the operator version of its int8 kernel."""

    name: str
    code: str
    inputs: tuple[str, ...]
    int8_version: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weighted(self) -> bool:
        return f"{self.name}/weights" in network.SHAPES


_RELU = {"padding": "SAME", "fused_activation_function": "RELU"}
LAYERS = (
    Layer("edges", "CONV_2D", ("image",), 3, {"stride_h": 1, "stride_w": 1, **_RELU}),
    Layer(
        "strokes", "DEPTHWISE_CONV_2D", ("edges",), 3, {"stride_h": 2, "stride_w": 2, "depth_multiplier": 1, **_RELU}
    ),
    Layer("mixed", "CONV_2D", ("strokes",), 3, {"stride_h": 1, "stride_w": 1, **_RELU}),
    Layer("parts", "ADD", ("strokes", "mixed"), 2),
    Layer("features", "MEAN", ("parts", "features/axes"), 2),
    Layer("logits", "FULLY_CONNECTED", ("features",), 4),
    Layer("probabilities", "SOFTMAX", ("logits",), 2, {"beta": 1.0}),
)


def models(parameters: Arrays, images: Array) -> dict[str, bytes]:
    """Return both files; ``images`` calibrate the ranges of activations."""
    activations = network.forward(parameters, images)
    shapes = {name: (1, *values.shape[1:]) for name, values in activations.items()}
    feeds = {layer.name: layer.inputs[0] for layer in LAYERS if layer.weighted}
    return {
        "float": write(as_float(parameters, activations), shapes),
        "int8": write(as_int8(parameters, activations, feeds), shapes),
    }


def write(stored: Mapping[str, Stored], shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return the .tflite file of the layers with these tensors."""
    dtype = stored["image"].dtype
    model = ModelBuilder(f"handwritten digits, {dtype}")
    graph = model.main
    tensors = {"features/axes": graph.constant("features/axes", [1, 2])}
    for name, shape in shapes.items():
        tensors[name] = graph.tensor(name, shape, dtype, quantization=_quantization(stored[name]))
    for layer in LAYERS:
        inputs = [tensors[name] for name in layer.inputs]
        if layer.weighted:
            inputs += [_constant(graph, f"{layer.name}/{kind}", stored) for kind in ("weights", "bias")]
        version = layer.int8_version if dtype == "int8" else 1
        graph.operator(layer.code, inputs, [tensors[layer.name]], layer.options, version=version)
    graph.inputs.append(tensors["image"])
    graph.output(tensors["probabilities"])
    model.signature("serving_default", {"image": tensors["image"]}, {"probabilities": tensors["probabilities"]})
    return model.build()


def _constant(graph: GraphBuilder, name: str, stored: Mapping[str, Stored]) -> TensorRef:
    return graph.constant(name, stored[name].value, quantization=_quantization(stored[name]))


def _quantization(tensor: Stored) -> Any:
    return quant(tensor.scale, tensor.zero_point, tensor.axis) if tensor.scale.size else None


def digits() -> tuple[Array, Array, Array, Array]:
    """Return scikit-learn's digits: training images and labels, then those of the test set, a fifth of each class."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = data.images.astype(np.uint8)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    return train_images, train_labels, test_images, test_labels


def measure(model: bytes, images: Array, labels: Array) -> tuple[float, float]:
    """Return the accuracy in LiteRT, and that of the converted model in ONNX Runtime."""
    original = LiteRT(model)
    (model_input,) = original.entry.inputs
    scores = np.concatenate([original.run([image[None]])[0] for image in encode(images, model_input.dtype)])
    converted = classify(otp.convert(model).proto.SerializeToString(), images)
    litert, ort = (float((results.argmax(axis=1) == labels).mean()) for results in (scores, converted))
    return litert, ort


def make() -> None:
    """Train, quantize and measure; write files only if both models are accurate enough."""
    images, labels, test_images, test_labels = digits()
    inputs = encode(images, "float32")
    files = models(network.train(inputs, labels), inputs)
    accuracy = {kind: measure(model, test_images, test_labels) for kind, model in files.items()}
    for kind, (litert, ort) in accuracy.items():
        print(
            f"{kind:5} {len(files[kind]):6} bytes, {len(test_labels)} images: LiteRT {litert:.2%}, ONNX Runtime {ort:.2%}"
        )
    loss = accuracy["float"][0] - accuracy["int8"][0]
    if accuracy["float"][0] < MIN_ACCURACY or loss > MAX_LOSS:
        raise SystemExit("the accuracy is too low; nothing was written")
    for kind, model in files.items():
        (HERE / f"digits_{kind}.tflite").write_bytes(model)
    selected = np.sort(np.concatenate([np.flatnonzero(test_labels == digit)[:2] for digit in range(10)]))
    np.savez_compressed(
        HERE / "digits.npz", images=test_images[selected], labels=test_labels[selected].astype(np.uint8)
    )


def check() -> None:
    """Compare the files with models built from untrained weights, except for the values."""
    with np.load(HERE / "digits.npz") as data:
        inputs = encode(data["images"], "float32")
    for kind, model in models(network.initial_parameters(), inputs).items():
        structure_in_file = structure((HERE / f"digits_{kind}.tflite").read_bytes())
        if structure_in_file != structure(model):
            raise SystemExit(
                f"digits_{kind}.tflite differs from the model that this script writes; run it without --check"
            )
        print(f"digits_{kind}.tflite: {len(structure_in_file)} operators, as written by this script")


def structure(model: bytes) -> list[Any]:
    """Return the operators with versions, options and operands, and the quantization axes, without any values."""

    def describe(tensor: Any) -> Any:
        parameters = tensor.quantization
        axis = (len(parameters.scale), parameters.axis) if isinstance(parameters, Quantization) else None
        return tensor.name, tensor.dtype, tensor.shape, tensor.is_constant, axis

    return [
        (op.code, op.version, dict(op.options), [describe(tensor) for tensor in (*op.inputs, *op.outputs)])
        for op in read(model).main.operators
    ]


if __name__ == "__main__":
    check() if sys.argv[1:] == ["--check"] else make()
