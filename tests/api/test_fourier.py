"""Fourier transforms as matrix products equal NumPy's, for all kinds of lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import Context, Terminate, Value, can_emit_rfft, emit_irfft, emit_rfft, handler
from onnx_tflite_plugin.api.fourier import Part
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source import read

LENGTHS = [(1, 1), (2, 2), (15, 15), (16, 11), (400, 400), (750, 700), (997, 997), (1001, 900), (2048, 2048)]
"""Points and samples: odd, even, prime and composite; one product and two; with zero padding and without."""


def run(x: np.ndarray[Any, Any], y_shape: tuple[int, ...], emit: Any) -> np.ndarray[Any, Any]:
    """Return the result of an operator that lowers to ``emit(ctx, x)``."""

    @handler("CUSTOM.Transform", max_version=1, layout=Terminate())
    def transform(ctx: Context, x: Value) -> Value:
        return emit(ctx, x)

    builder = ModelBuilder()
    g = builder.main
    model_input = g.input("x", x.shape)
    g.output(result := g.tensor("y", y_shape))
    g.operator("CUSTOM.Transform", [model_input], [result])
    host = Host(packs="builtin", handlers={"CUSTOM.Transform": transform})
    proto = convert_model(read(builder.build()), host, ConvertOptions()).proto
    (result_array,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    return result_array


def representations(spectrum: np.ndarray[Any, Any]) -> dict[Part, np.ndarray[Any, Any]]:
    """Return the representations of a spectrum."""
    return {
        "pairs": np.stack([spectrum.real, spectrum.imag], axis=-1),
        "real": spectrum.real,
        "imaginary": spectrum.imag,
        "power": np.abs(spectrum) ** 2,
    }


@pytest.mark.parametrize(("points", "width"), LENGTHS)
@pytest.mark.parametrize("part", ["pairs", "real", "imaginary", "power"])
def test_transform_equals_numpy(points: int, width: int, part: Part) -> None:
    x = np.random.default_rng(7).standard_normal((3, 5, width)).astype(np.float32)
    expected = representations(np.fft.rfft(x.astype(np.float64), points))[part]
    result = run(x, expected.shape, lambda ctx, x: emit_rfft(ctx, x, (3, 5, width), points, part))
    assert np.abs(result - expected).max() <= 3e-6 * np.abs(expected).max() + 1e-12


@pytest.mark.parametrize("points", [points for points, _ in LENGTHS])
def test_inverse_equals_numpy_and_ignores_imaginary_ends(points: int) -> None:
    spectrum = np.random.default_rng(7).standard_normal((3, 5, points // 2 + 1, 2)).astype(np.float32)
    expected = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], points)
    result = run(
        spectrum, expected.shape, lambda ctx, spectrum: emit_irfft(ctx, spectrum, (3, 5, points // 2 + 1, 2), points)
    )
    assert np.abs(result - expected).max() <= 3e-6 * np.abs(expected).max() + 1e-12


def test_only_transforms_of_limited_size_are_products() -> None:
    assert [can_emit_rfft(points, points) for points in (0, 1, 8192, 16384, 65536)] == [False, True, True, False, False]
