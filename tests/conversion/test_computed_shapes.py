"""Shapes computed by operators of several results, under other input shapes. LiteRT, resized, says what is right."""

from __future__ import annotations

import pytest

from conformance.models import Net, Spec, constant, tensor
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.verify import verify


def swapped(code: str, sizes: Spec | None) -> bytes:
    """Return a RESHAPE to two sizes in reverse, split by ``code``; they are constants or, without, the input's."""
    model = Net()
    x = model.input(tensor(None, 5, name="x"))
    both = sizes or model.call("SHAPE", [x], tensor(2, dtype="int32"), out_type="INT32")
    one = tensor(dtype="int32") if code == "UNPACK" else tensor(1, dtype="int32")
    operands, options = {
        "UNPACK": ([both], {"num": 2, "axis": 0}),
        "SPLIT": ([constant(0), both], {"num_splits": 2}),
        "SPLIT_V": ([both, constant([1, 1]), constant(0)], {"num_splits": 2}),
    }[code]
    first, second = model.calls(code, operands, one, one, **options)
    join, given = ("PACK", {"values_count": 2}) if code == "UNPACK" else ("CONCATENATION", {})
    shape = model.call(join, [second, first], tensor(2, dtype="int32"), axis=0, **given)
    model.output(model.call("RESHAPE", [x, shape], tensor(5, None)))
    return model.build()


def agrees(data: bytes, conversion: Conversion, *shape: int) -> bool:
    return verify(data, conversion.proto, shapes={"x": shape}, runs=1).ok


@pytest.mark.parametrize("code", ["UNPACK", "SPLIT", "SPLIT_V"])
def test_sizes_split_from_a_shape_follow_the_input(code: str) -> None:
    data = swapped(code, None)
    assert agrees(data, convert(data, input_shape={"x": (3, 5)}), 3, 5)
    free = convert(data, dynamic_batch=True)
    assert all(agrees(data, free, batch, 5) for batch in (1, 7))


@pytest.mark.parametrize("code", ["UNPACK", "SPLIT", "SPLIT_V"])
def test_sizes_split_from_a_constant_are_known(code: str) -> None:
    data = swapped(code, constant([7, 5]))
    assert agrees(data, convert(data, input_shape={"x": (7, 5)}), 7, 5)
