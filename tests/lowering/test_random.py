"""Random number operators: distributions and seeds equal LiteRT's."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime

COUNT = 20_000
MOMENTS = {"RANDOM_UNIFORM": (0.5, 1 / 12), "RANDOM_STANDARD_NORMAL": (0.0, 1.0)}
CONTINUOUS = tuple(MOMENTS)
LOGITS = np.array([[0.3, -1.0, 2.0, 0.0, -np.inf], [5.0, 5.0, 5.0, np.nan, 5.0]], np.float32)


def model(op: str, seed: int = 0, seed2: int = 0) -> bytes:
    net = Net()
    if op == "MULTINOMIAL":
        operands, y = [constant(LOGITS), constant(COUNT)], tensor(2, COUNT, dtype="int32")
    else:
        operands, y = [constant([COUNT])], tensor(COUNT)
    net.output(net.call(op, operands, y, seed=seed, seed2=seed2))
    return net.build()


def run_converted(data: bytes, runs: int = 1) -> list[Array]:
    session = OnnxRuntime(convert(data).proto)
    return [np.asarray(session.run({})[0]) for _ in range(runs)]


def class_shares(classes: Array) -> Array:
    return np.stack([np.bincount(row, minlength=LOGITS.shape[1]) / COUNT for row in classes])


@pytest.mark.parametrize("op", CONTINUOUS)
def test_mean_and_variance_match_the_kernel(op: str) -> None:
    data = model(op, 7, 3)
    mean, variance = MOMENTS[op]
    bound = 5 * sqrt(variance / COUNT)
    for numbers in (run_converted(data)[0], run_litert(data)):
        assert abs(numbers.mean() - mean) < bound
        assert abs(numbers.var() - variance) < 10 * bound


@pytest.mark.parametrize("op", CONTINUOUS)
def test_quantiles_match_the_kernel(op: str) -> None:
    data = model(op, 7, 3)
    points = np.linspace(0.02, 0.98, 25)
    converted, expected = (np.quantile(numbers, points) for numbers in (run_converted(data)[0], run_litert(data)))
    assert np.abs(converted - expected).max() < 0.08


def test_class_frequencies_match_the_kernel() -> None:
    """Classes with nonfinite logits are never sampled."""
    data = model("MULTINOMIAL", 7, 3)
    converted, expected = class_shares(run_converted(data)[0]), class_shares(run_litert(data))
    assert np.abs(converted - expected).max() < 5 * sqrt(0.25 * 2 / COUNT)
    assert converted[0, 4] == converted[1, 3] == 0


@pytest.mark.parametrize("op", [*CONTINUOUS, "MULTINOMIAL"])
def test_equal_seeds_give_equal_numbers_in_each_session(op: str) -> None:
    data = model(op, 7, 3)
    assert (run_converted(data)[0] == run_converted(data)[0]).all()


@pytest.mark.parametrize("op", [*CONTINUOUS, "MULTINOMIAL"])
@pytest.mark.parametrize("other_seeds", [(7, 4), (8, 3), (0, 0)])
def test_different_seeds_give_different_numbers(op: str, other_seeds: tuple[int, int]) -> None:
    assert (run_converted(model(op, 7, 3))[0] != run_converted(model(op, *other_seeds))[0]).any()


@pytest.mark.parametrize("op", [*CONTINUOUS, "MULTINOMIAL"])
def test_each_run_gives_different_numbers(op: str) -> None:
    first, second = run_converted(model(op, 7, 3), runs=2)
    assert (first != second).any()


def run_litert(data: bytes) -> Array:
    return LiteRT(data, "builtin").run([])[0]
