"""Operators on quantized values, and targets without kernels for some dtypes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.api import Arithmetic, Integer, builtin
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.quantization.plan import plan_storage
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


@pytest.mark.parametrize(
    ("storage", "missing_kernels", "is_supported"),
    [
        ({}, set(), True),
        ({}, {"int8"}, False),
        ({}, {"int16"}, False),
        ({"int8": ("uint8", 128)}, {"int8"}, True),
        ({"int8": ("uint8", 128)}, {"uint8"}, False),
    ],
)
def test_integer_arithmetic_needs_kernels_for_the_storage_dtype(
    storage: dict[str, tuple[str, int]], missing_kernels: set[str], is_supported: bool
) -> None:
    target = replace(TARGETS["generic"], storage=storage, no_integer_kernel={"*": frozenset(missing_kernels)})
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3), "int8", quantization=quant(0.05, 3))
    g.operator("QUANTIZE", [x], [y := g.tensor("y", (2, 3), "int16", quantization=quant(0.05))])
    g.output(y)
    host = Host(packs="builtin", handlers={"QUANTIZE": replace(builtin("QUANTIZE"), quantization=Integer())})
    bound = resolve(host.bind(read(model.build()), target, 21), target, 21)
    if is_supported:
        assert set(plan_storage(bound, target).arithmetic.values()) == {Arithmetic.QUANTIZED}
        return
    with pytest.raises(
        HandlerError, match="the operator computes on int8 values, which target generic does not support"
    ):
        plan_storage(bound, target)
