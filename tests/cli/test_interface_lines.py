"""Lines about inputs and outputs: shape, quantization and metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.cli.interface_lines import interface_lines, quantization
from onnx_tflite_plugin.presentation.author_metadata import metadata_lines
from onnx_tflite_plugin.presentation.graph_io import GraphValue


def test_interface_lines_show_symbolic_dimensions() -> None:
    graph_values = [
        GraphValue("image", "int8", (None, "height", 3), scale=(0.5,), zero_point=(-3,)),
        GraphValue("", "float32", ()),
        GraphValue("w", "int8", (7,), scale=(0.5, 0.25), zero_point=(0, 0), axis=1, labels=("a", "b", "c", "d")),
    ]
    assert interface_lines(graph_values) == [
        "image  int8 [?, height, 3]  scale 0.5, zero point -3",
        "''     float32 []",
        "w      int8 [7]             2 scales along axis 1",
        "  4 labels: a; b; c; …",
    ]
    assert interface_lines([]) == []
    long = interface_lines(
        [GraphValue("a" * 40, "float32", (1,) * 20), GraphValue("b", "bool", (2,), scale=(2.0,), zero_point=(5,))]
    )
    assert long[1] == f"{'b':40}  {'bool [2]':30}  scale 2, zero point 5"


def test_interface_lines_are_truncated() -> None:
    lines = interface_lines([GraphValue(f"x{k}", "bool", (k,)) for k in range(20)])
    assert len(lines) == 17
    assert lines[-1] == "… and 4 more (--json shows all)"


@pytest.mark.parametrize(
    ("graph_value", "lines"),
    [
        ({}, []),
        ({"kind": "image"}, []),
        ({"mean": (3.0, 3.0), "std": (2.0, 5.0)}, ["normalized (x - 3) / [2, 5]"]),
        ({"mean": (3.0,)}, []),
        ({"std": (3.0,)}, []),
        ({"kind": "image", "range": ((-1.0,), (0.0, 1.0))}, ["image, values -1 to [0, 1]"]),
        ({"kind": "feature", "threshold": 0.0}, ["score threshold 0"]),
        ({"files": ("vocab.txt",)}, ["associated files: vocab.txt"]),
        ({"labels": ("a", "b", "c" * 30)}, [f"3 labels: a; b; {'c' * 11}…{'c' * 12}"]),
    ],
)
def test_metadata_has_one_line_and_labels_another(graph_value: dict[str, Any], lines: list[str]) -> None:
    assert list(metadata_lines(GraphValue("x", "float32", (), **graph_value))) == lines


def test_several_scales_are_counted() -> None:
    assert quantization((), (), 0) == ""
    assert quantization((0.123456789,), (7,), 3) == "scale 0.123457, zero point 7"
    assert quantization((1.0, 2.0, 3.0), (0, 0, 0), 3) == "3 scales along axis 3"
    assert format_shape((None, "n", 0)) == "[?, n, 0]"


def test_normalization_that_changes_nothing_is_not_printed() -> None:
    plain = GraphValue("x", "uint8", (1,), kind="image", mean=(0.0,), std=(1.0,), range=((0.0,), (255.0,)))
    assert [*metadata_lines(plain)] == ["image, values 0 to 255"]
    assert [*metadata_lines(replace(plain, std=(2.0,)))] == ["image, normalized (x - 0) / 2, values 0 to 255"]


@pytest.mark.parametrize(
    ("scale", "line"),
    [
        (1 / 128, "image, pass pixels 0 to 255: the scale already normalizes them, (x - 127.5) / 127.5"),
        (1 / 64, "image, normalized (x - 127.5) / 127.5, values 0 to 255"),
    ],
)
def test_quantized_image_whose_scale_normalizes_takes_pixels(scale: float, line: str) -> None:
    normalization: dict[str, Any] = {"mean": (127.5,), "std": (127.5,), "range": ((0.0,), (255.0,))}
    image = GraphValue("x", "uint8", (1,), scale=(scale,), zero_point=(128,), kind="image", **normalization)
    assert [*metadata_lines(image)] == [line]
