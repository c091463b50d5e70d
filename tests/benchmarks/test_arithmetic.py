"""Lower limit of a network's time, and times of a runtime that reads TFLite."""

from __future__ import annotations

import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.arithmetic import minimum_seconds, multiplications, rate
from benchmarks.peers import OpenVINO
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.source import Options, read
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.verify.times.bench import Spread

REFERENCE = Spread(0.002, 0.001, 0.003)


def test_matrix_product_without_options_is_counted() -> None:
    (op,) = single_operator_model("BATCH_MATMUL", [(2, 5, 7), (2, 7, 3)], (2, 5, 3)).main.operators
    assert multiplications(replace(op, options=Options({}))) == 2 * 5 * 7 * 3


def single_operator_model(code: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], **options: Any) -> Model:
    """Return a model of one operator on a graph input and constants of zeros."""
    model = ModelBuilder()
    g = model.main
    operands = [
        g.input("x", shapes[0]),
        *(g.constant(f"c{k}", np.zeros(s, np.float32)) for k, s in enumerate(shapes[1:])),
    ]
    y = g.tensor("y", result)
    g.operator(code, operands, [y], options)
    g.output(y)
    return read(model.build())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            single_operator_model("CONV_2D", [(2, 5, 7, 3), (11, 2, 3, 3), (11,)], (2, 4, 5, 11)),
            2 * 4 * 5 * 11 * 2 * 3 * 3,
        ),
        (
            single_operator_model("DEPTHWISE_CONV_2D", [(2, 5, 7, 3), (1, 2, 3, 3), (3,)], (2, 4, 5, 3)),
            2 * 4 * 5 * 3 * 2 * 3,
        ),
        (single_operator_model("FULLY_CONNECTED", [(5, 7), (11, 7), (11,)], (5, 11)), 5 * 11 * 7),
        (single_operator_model("BATCH_MATMUL", [(2, 5, 7), (2, 7, 3)], (2, 5, 3)), 2 * 5 * 7 * 3),
        (single_operator_model("BATCH_MATMUL", [(2, 7, 5), (2, 7, 3)], (2, 5, 3), adj_x=True), 2 * 5 * 7 * 3),
        (single_operator_model("ADD", [(5, 7), (7,)], (5, 7)), 0),
    ],
    ids=["convolution", "depthwise", "dense", "matmul", "transposed matmul", "no product"],
)
def test_multiplications_are_those_of_the_products(model: Model, expected: int) -> None:
    (op,) = model.main.operators
    assert multiplications(op) == expected
    assert minimum_seconds(model) == (pytest.approx(expected / rate("float32")) if expected else None)


def test_a_processor_multiplies_millions_of_numbers_per_second() -> None:
    assert min(rate("float32"), rate("int8")) > 1e7


def python(tmp_path: Path, body: str) -> str:
    """Return a command that runs these statements whatever its arguments are."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_time_of_openvino_is_compared_with_the_median_of_litert(tmp_path: Path) -> None:
    command = python(tmp_path, """print('{"version": "1", "seconds": [0.004, 0.006, 0.005]}')""")
    outcome = OpenVINO(command).measure(tmp_path / "m.tflite", 3, REFERENCE)
    assert outcome.ratio is not None
    assert (outcome.ratio.median, outcome.best_ratio) == (pytest.approx(2.5), pytest.approx(4))


@pytest.mark.parametrize("body", ["raise SystemExit('no such operator')", "import no_such_package"])
def test_file_that_openvino_does_not_read_is_reported(tmp_path: Path, body: str) -> None:
    outcome = OpenVINO(python(tmp_path, body)).measure(tmp_path / "m.tflite", 3, REFERENCE)
    assert outcome.problem.startswith("fails: ")
    assert "no" in outcome.problem
