"""Padding and dilation are fused into the convolution; similar patterns are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from conformance.cases.fusions import convolution as patterns
from conformance.cases.fusions.convolution import Conv
from conformance.models import Net
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host

PADDED = [
    *patterns.PADDED.items(),
    *((f"{name}, depthwise", patterns.depthwise(c)) for name, c in patterns.PADDED.items()),
]
DILATED = [
    *patterns.DILATED.items(),
    *((f"{name}, depthwise", patterns.depthwise(c)) for name, c in patterns.DILATED.items()),
]
AROUND = {"Pad", "Reshape", "Slice"}


def convert_model(setting: Conv) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return fusions and nodes by name."""
    model = Net()
    setting(model)
    report = convert(model.build(), host=Host(packs="builtin"), optimize="none").report
    return report.fused, report.nodes


@pytest.mark.parametrize(("kind", "setting"), [("PADDED", c) for _, c in PADDED] + [("DILATED", c) for _, c in DILATED],
                         ids=[name for name, _ in PADDED + DILATED])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_decomposed_padding_or_dilation_becomes_one_convolution(kind: str, setting: Conv, dtype: str) -> None:
    pad_value = None if dtype == "int8" else setting.pad_value
    fused, nodes = convert_model(replace(setting, dtype=dtype, pad_value=pad_value))
    assert fused == {f"{setting.op}_{kind}": 1}
    assert nodes["Conv"] == 1
    assert not AROUND & nodes.keys()


@pytest.mark.parametrize("setting", patterns.SHARED.values(), ids=patterns.SHARED)
def test_shared_padding_is_fused_into_each_convolution(setting: Conv) -> None:
    fused, nodes = convert_model(setting)
    is_conv_twice = setting.second_consumer == "CONV_2D"
    assert fused == {f"CONV_2D_{'DILATED' if setting.block else 'PADDED'}": 1 + is_conv_twice}
    assert nodes["Conv"] == 1 + is_conv_twice
    assert bool(AROUND & nodes.keys()) == (not is_conv_twice)


@pytest.mark.parametrize("setting", patterns.NOT_FUSED.values(), ids=patterns.NOT_FUSED)
def test_similar_pattern_is_not_fused(setting: Conv) -> None:
    fused, nodes = convert_model(setting)
    assert fused == {}
    assert AROUND & nodes.keys()
