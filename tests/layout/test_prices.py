"""Operators between convolutions that are faster channels last."""

from __future__ import annotations

import pytest

from conformance.models import Net, Spec, between_convolutions, constant, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host


def transpose_count(target: str, op: str, x: Spec, y: Spec, *operands: Spec, **options: object) -> int:
    case = between_convolutions(op, "", [x, *operands], y, options=options)
    return convert(case.build(), host=Host(packs="builtin"), target=target).report.transposes


@pytest.mark.parametrize(
    ("dtype", "target", "count"), [("int8", "onnxruntime", 4), ("float32", "onnxruntime", 2), ("int8", "generic", 2)]
)
def test_integer_resize_is_channels_last_if_that_is_faster_on_the_target(dtype: str, target: str, count: int) -> None:
    x = tensor(1, 16, 16, 32, dtype=dtype)
    assert (
        transpose_count(target, "RESIZE_NEAREST_NEIGHBOR", x, x.with_shape(1, 32, 32, 32), constant([32, 32])) == count
    )


def test_small_integer_resize_stays_channels_first() -> None:
    x = tensor(1, 2, 2, 3, dtype="int8")
    assert transpose_count("onnxruntime", "RESIZE_NEAREST_NEIGHBOR", x, x.with_shape(1, 4, 4, 3), constant([4, 4])) == 2


@pytest.mark.parametrize(("axis", "count"), [(2, 4), (3, 2)])
def test_gather_keeps_its_axis_out_of_the_innermost_position(axis: int, count: int) -> None:
    """With channels first, the columns are innermost instead of the channels."""
    x = tensor(1, 16, 16, 32)
    indices = constant([0] * x.shape[axis])
    assert transpose_count("onnxruntime", "GATHER", x, x, indices, axis=axis) == count


def test_report_names_operators_transposed_for_speed() -> None:
    """ABS supports any layout too, but is not faster in another one."""
    x = tensor(1, 16, 16, 32, dtype="int8")
    model = Net()
    resized = model.call(
        "RESIZE_NEAREST_NEIGHBOR", [model.input_through_conv(x), constant([32, 32])], x.with_shape(1, 32, 32, 32)
    )
    model.output(model.output_through_conv(model.call("ABS", [resized], x.with_shape(1, 32, 32, 32))))
    ((label, saving),) = convert(model.build(), host=Host(packs="builtin")).report.transposed_for_speed
    assert "RESIZE_NEAREST_NEIGHBOR" in label
    assert saving > 0
