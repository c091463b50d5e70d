"""The network of the digits example in plain numpy: forward, backward, and the training loop.

Weights have TFLite's layouts from the start (``o h w i``, depthwise ``1 h w c``, dense ``o i``), images are
``n h w c``. Activations have the names of their tensors in the .tflite file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

CHANNELS = 24
SHAPES = {
    "edges/weights": (CHANNELS, 3, 3, 1),
    "strokes/weights": (1, 3, 3, CHANNELS),
    "mixed/weights": (CHANNELS, 1, 1, CHANNELS),
    "logits/weights": (10, CHANNELS),
}
EPOCHS, BATCH, RATE = 60, 32, 0.01


def initial_parameters(seed: int = 0) -> Arrays:
    """Return He's initial weights, and biases of 0."""
    generator = np.random.default_rng(seed)
    parameters = {}
    for name, shape in SHAPES.items():
        depthwise = shape[0] == 1
        fan_in = np.prod(shape[1:3] if depthwise else shape[1:])
        parameters[name] = generator.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)
        parameters[name.replace("weights", "bias")] = np.zeros(shape[-1 if depthwise else 0], np.float32)
    return parameters


def forward(p: Arrays, image: Array) -> Arrays:
    """Return every activation by name."""
    edges = relu(np.einsum("nyxti,oti->nyxo", taps(image), flat(p["edges/weights"]), optimize=True) + p["edges/bias"])
    strokes = relu(np.einsum("nyxtc,tc->nyxc", taps(edges, 2), flat(p["strokes/weights"])[0]) + p["strokes/bias"])
    mixed = relu(strokes @ p["mixed/weights"][:, 0, 0].T + p["mixed/bias"])
    parts = strokes + mixed
    features = parts.mean(axis=(1, 2))
    logits = features @ p["logits/weights"].T + p["logits/bias"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return {
        "image": image,
        "edges": edges,
        "strokes": strokes,
        "mixed": mixed,
        "parts": parts,
        "features": features,
        "logits": logits,
        "probabilities": powers / powers.sum(axis=1, keepdims=True),
    }


def backward(p: Arrays, a: Arrays, labels: Array) -> Arrays:
    """Return the gradient of the mean cross entropy per parameter; ``d_`` variables are gradients of activations."""
    d_logits = (a["probabilities"] - np.eye(10, dtype=np.float32)[labels]) / len(labels)
    height, width = a["parts"].shape[1:3]
    d_features = d_logits @ p["logits/weights"]
    d_parts = np.broadcast_to(d_features[:, None, None] / (height * width), a["parts"].shape)
    d_mixed = d_parts * (a["mixed"] > 0)
    d_strokes = (d_parts + d_mixed @ p["mixed/weights"][:, 0, 0]) * (a["strokes"] > 0)
    d_edges = scatter(d_strokes[..., None, :] * flat(p["strokes/weights"])[0], a["edges"].shape, 2) * (a["edges"] > 0)
    gradients = {
        "edges/weights": np.einsum("nyxo,nyxti->oti", d_edges, taps(a["image"]), optimize=True),
        "strokes/weights": np.einsum("nyxc,nyxtc->tc", d_strokes, taps(a["edges"], 2)),
        "mixed/weights": np.einsum("nyxo,nyxi->oi", d_mixed, a["strokes"], optimize=True),
        "logits/weights": d_logits.T @ a["features"],
        "edges/bias": d_edges.sum(axis=(0, 1, 2)),
        "strokes/bias": d_strokes.sum(axis=(0, 1, 2)),
        "mixed/bias": d_mixed.sum(axis=(0, 1, 2)),
        "logits/bias": d_logits.sum(axis=0),
    }
    return {name: gradient.reshape(p[name].shape) for name, gradient in gradients.items()}


def train(images: Array, labels: Array, epochs: int = EPOCHS, seed: int = 0) -> Arrays:
    """Train with Adam and a learning rate that decreases to 0 along a cosine."""
    generator = np.random.default_rng(seed)
    p = initial_parameters(seed)
    mean, square = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    batch_count = len(images) // BATCH
    batches = (
        batch
        for _ in range(epochs)
        for batch in generator.permutation(len(images))[: batch_count * BATCH].reshape(batch_count, BATCH)
    )
    for step, batch in enumerate(batches):
        rate = RATE * (1 + np.cos(np.pi * step / (epochs * batch_count))) / 2
        for name, gradient in backward(p, forward(p, images[batch]), labels[batch]).items():
            mean[name] += 0.1 * (gradient - mean[name])
            square[name] += 0.001 * (gradient**2 - square[name])
            direction = mean[name] / (1 - 0.9 ** (step + 1))
            p[name] -= rate * direction / (np.sqrt(square[name] / (1 - 0.999 ** (step + 1))) + 1e-8)
    return p


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def flat(weights: Array) -> Array:
    """Return weights with kernel height and width as one axis of taps."""
    return weights.reshape(weights.shape[0], -1, weights.shape[-1])


def taps(x: Array, stride: int = 1) -> Array:
    """Return the 3×3 neighborhood of every output position, ``n y x tap c``, with zeros outside, as in TFLite's SAME."""
    before, after = same_padding(x.shape[1], stride)
    padded = np.pad(x, ((0, 0), (before, after), (before, after), (0, 0)))
    return np.stack([padded[window] for window in windows(x.shape[1], stride)], axis=3)


def scatter(d_taps: Array, shape: tuple[int, ...], stride: int = 1) -> Array:
    """Return the gradient of ``taps``: add every tap's gradient where the tap was read."""
    size = shape[1]
    before, after = same_padding(size, stride)
    padded = np.zeros((shape[0], before + size + after, before + size + after, shape[3]), d_taps.dtype)
    for tap, window in enumerate(windows(size, stride)):
        padded[window] += d_taps[..., tap, :]
    return padded[:, before : before + size, before : before + size]


def same_padding(size: int, stride: int) -> tuple[int, int]:
    """Return TFLite's SAME padding before and after an axis, for a kernel of 3; the odd element is after it."""
    total = (-(-size // stride) - 1) * stride + 3 - size
    return total // 2, total - total // 2


def windows(size: int, stride: int) -> list[tuple[slice, slice, slice]]:
    """Return the slices of the padded images that each of the nine taps reads."""
    end = (-(-size // stride) - 1) * stride + 1
    axis = [slice(k, k + end, stride) for k in range(3)]
    return [(slice(None), rows, columns) for rows in axis for columns in axis]
