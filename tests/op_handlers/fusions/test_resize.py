"""Decomposed nearest-neighbor upsampling becomes one Resize."""

from __future__ import annotations

import pytest

from conformance.cases.fusions import resize as patterns
from conformance.models import Net
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.report import Report


def convert_model(build: patterns.BuildFunction) -> Report:
    model = Net()
    build(model)
    return convert(model.build(), host=Host(packs="builtin"), optimize="none").report


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("times", [(2, 2), (3, 1), (1, 2)])
def test_repeated_rows_and_columns_become_one_resize(dtype: str, times: tuple[int, int]) -> None:
    report = convert_model(patterns.upsampling_by_tile(dtype, *times))
    assert report.fused == {"UPSAMPLING_2D": 1}
    assert report.nodes["Resize"] == 1
    assert not {"Tile", "Reshape"} & report.nodes.keys()


@pytest.mark.parametrize("build", patterns.SIMILAR.values(), ids=patterns.SIMILAR)
def test_similar_pattern_is_not_fused(build: patterns.BuildFunction) -> None:
    report = convert_model(build)
    assert report.fused == {}
    assert report.nodes["Tile"] == 2
