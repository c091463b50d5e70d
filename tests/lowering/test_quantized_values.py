"""Real values of quantized tensors in any storage, layout and arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.graph.constants import evaluate_constant
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    layout_axes,
    layout_of_permutation,
    physical_shape,
    source_layout,
)
from onnx_tflite_plugin.lowering.arrays import arrange_constant, physical_dims
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.values import FILE, FLOAT, STORED, Values
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.quantization.storage import Storage, WeightConversion
from onnx_tflite_plugin.source.model import Array, Data, Quantization, Tensor
from onnx_tflite_plugin.targets import TARGETS

DIMS = (2, 3, 5)
LAYOUTS = [source_layout(DIMS), layout_of_permutation(DIMS, (2, 0, 1))]
PER_CHANNEL = Quantization((0.5, 0.25, 2.0), (3, -5, 0), 1)
PER_TENSOR = Quantization((0.25,), (-7,), 0)
SYMMETRIC = Quantization((0.25,), (0,), 0)
INTEGERS = np.random.default_rng(3).integers(-128, 128, DIMS).astype(np.int8)


class ConstantData(Data):
    def __init__(self, array: Array) -> None:
        self.array = array


def values_of(**traits: object) -> Values:
    target = replace(TARGETS["generic"], **traits)  # type: ignore[arg-type]
    return Values(Emitter(21, UniqueNames(), target.wider_dtypes), StoragePlan(target, {}, {}))


def real_values(quantization: Quantization) -> Array:
    broadcast_shape = (
        [-1 if axis == quantization.axis else 1 for axis in range(3)] if quantization.per_axis else [1] * 3
    )
    scale, zero = (
        np.asarray(parameters).reshape(broadcast_shape) for parameters in (quantization.scale, quantization.zero_point)
    )
    return np.asarray((INTEGERS.astype(np.float32) - zero) * scale, np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("quantization", [PER_CHANNEL, PER_TENSOR, SYMMETRIC])
@pytest.mark.parametrize(
    ("traits", "multiply", "node"),
    [
        ({}, False, "DequantizeLinear"),
        ({}, True, "Mul"),
        ({"cast_mul_dtypes": frozenset({"int8"})}, False, "Mul"),
        ({"quantizes": frozenset({"uint8"})}, False, "Mul"),
    ],
)
def test_dequantize_subtracts_zero_point_and_multiplies_by_scale(
    layout: TensorLayout, quantization: Quantization, traits: dict[str, object], multiply: bool, node: str
) -> None:
    values = values_of(**traits)
    stored = values.emitter.constant(arrange_constant(INTEGERS, layout))
    floats = values.conversions.dequantize(stored, Storage("int8", 0, quantization), layout, multiply=multiply)
    assert values.emitter.nodes[-1].op_type == node
    np.testing.assert_array_equal(
        evaluate_constant(floats, values.emitter.domains, "a test"),
        real_values(quantization).transpose(layout_axes(layout)),
    )


WITH_OPERATOR = [
    (dtype, parameters, True)
    for dtype in ("int8", "uint8", "int16")
    for parameters in (PER_CHANNEL, PER_TENSOR, SYMMETRIC)
]
WITHOUT_OPERATOR = [
    (dtype, parameters, False) for dtype in ("int8", "uint8", "int16") for parameters in (PER_TENSOR, SYMMETRIC)
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "quantization", "has_operator"), [*WITH_OPERATOR, *WITHOUT_OPERATOR])
def test_quantize_rounds_and_saturates(
    layout: TensorLayout, quantization: Quantization, dtype: str, has_operator: bool
) -> None:
    values = values_of(quantizes=frozenset({dtype} if has_operator else ()))
    if dtype == "uint8":
        quantization = replace(quantization, zero_point=(131,) * len(quantization.scale))
    x = np.random.default_rng(5).uniform(-90, 90, DIMS).astype(np.float32)
    broadcast_shape = (
        [-1 if axis == quantization.axis else 1 for axis in range(3)] if quantization.per_axis else [1] * 3
    )
    scale, zero = (
        np.asarray(parameters).reshape(broadcast_shape) for parameters in (quantization.scale, quantization.zero_point)
    )
    info = np.iinfo(dtype)
    expected = np.clip(np.rint(x / scale.astype(np.float32)) + zero, info.min, info.max).astype(dtype)
    quantized = values.conversions.quantize(
        values.emitter.constant(arrange_constant(x, layout)), Storage(dtype, 0, quantization), layout
    )
    result = evaluate_constant(quantized, values.emitter.domains, "a test")
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected.transpose(layout_axes(layout)))


@pytest.mark.parametrize("conversion", list(WeightConversion))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_constant_has_the_same_real_values_in_each_storage(layout: TensorLayout, conversion: WeightConversion) -> None:
    tensor = Tensor(0, 0, "w", "int8", DIMS, DIMS, ConstantData(INTEGERS), PER_TENSOR)
    values, shifted = values_of(), Quantization((0.25,), (121,), 0)
    values.plan = values.plan._replace(shifted={tensor: Storage("uint8", 128, shifted)})
    arrays = {
        encoding: evaluate_constant(values.get(tensor, layout, encoding, conversion=conversion), {"": 21}, "a test")
        for encoding in (STORED, FILE, FLOAT)
    }
    perm = layout_axes(layout)
    np.testing.assert_array_equal(arrays[FILE], INTEGERS.transpose(perm), strict=True)
    np.testing.assert_array_equal(
        arrays[STORED], (INTEGERS.transpose(perm).astype(int) + 128).astype(np.uint8), strict=True
    )
    np.testing.assert_array_equal(arrays[FLOAT], real_values(PER_TENSOR).transpose(perm), strict=True)
    op_types = [node.op_type for node in values.emitter.nodes]
    assert (
        op_types
        == {"folded": [], "multiplied": ["Cast", "Sub", "Mul"], "dequantized": ["DequantizeLinear"]}[conversion.value]
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_complex_numbers_are_pairs_on_the_last_axis_in_every_layout(layout: TensorLayout) -> None:
    z = (INTEGERS + 1j * INTEGERS[::-1]).astype(np.complex64)
    expected = np.stack([z.real, z.imag], -1).transpose(*layout_axes(layout), 3)
    np.testing.assert_array_equal(arrange_constant(z, layout), expected, strict=True)
    tensor = Tensor(0, 0, "z", "complex64", DIMS, DIMS)
    assert physical_dims(tensor, layout) == expected.shape == (*physical_shape(layout), 2)
    values = values_of()
    value = values.emitter.register(set_type(ir.Value(name="z"), "complex64", (*DIMS, 2)))
    values.put(tensor, value, source_layout(DIMS), STORED)
    assert values.get(tensor, layout).shape == ir.Shape(expected.shape)


RESCALING = {
    "another scale": (True, 0.5, -7, "int8"),
    "another zero point": (True, 0.25, 7, "int8"),
    "the same": (False, 0.25, -7, "int8"),
    "another dtype": (False, 0.5, 7, "uint8"),
}


@pytest.mark.parametrize("case", RESCALING)
@pytest.mark.parametrize("x_is_computed", [True, False])
def test_rescaling_inserts_a_clip_between_two_qdq_pairs(case: str, x_is_computed: bool) -> None:
    """ONNX Runtime merges two Q/DQ pairs and loses the first rounding.

    Graph inputs have no pair before them.
    """
    is_clipped, scale, zero_point, dtype = RESCALING[case]
    values = values_of()
    x = values.emitter.register(set_type(ir.Value(name="x"), "int8" if not x_is_computed else "float32", DIMS))
    layout, storage = source_layout(DIMS), Storage("int8", 0, PER_TENSOR)
    integers = values.conversions.quantize(x, storage, layout) if x_is_computed else x
    values.conversions.quantize(
        values.conversions.dequantize(integers, storage, layout),
        Storage(dtype, 0, Quantization((scale,), (zero_point,), 0)),
        layout,
    )
    bounds = [node for node in values.emitter.nodes if node.op_type == "Max"]
    assert len(bounds) == (is_clipped and x_is_computed)
    for node in bounds:
        (_, lowest) = node.inputs
        assert lowest is not None
        assert lowest.const_value is not None
        assert lowest.const_value.numpy() == (-128 - zero_point) * scale
