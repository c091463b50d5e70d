"""Between convolutions an operator may leave their order where another is so much faster that it pays for Transposes."""

from __future__ import annotations

import pytest

from conformance.models import Net, Spec, between_convolutions, constant, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host


def transposes(target: str, op: str, x: Spec, y: Spec, *operands: Spec, **options: object) -> int:
    case = between_convolutions(op, "", [x, *operands], y, options=options)
    return convert(case.build(), host=Host(packs="builtin"), target=target).report.transposes


@pytest.mark.parametrize(
    ("dtype", "target", "found"), [("int8", "onnxruntime", 4), ("float32", "onnxruntime", 2), ("int8", "generic", 2)]
)
def test_repeated_integers_go_channels_last_where_the_target_says_so(dtype: str, target: str, found: int) -> None:
    x = tensor(1, 16, 16, 32, dtype=dtype)
    assert transposes(target, "RESIZE_NEAREST_NEIGHBOR", x, x.shaped(1, 32, 32, 32), constant([32, 32])) == found


def test_few_integers_are_not_worth_a_transpose() -> None:
    x = tensor(1, 2, 2, 3, dtype="int8")
    assert transposes("onnxruntime", "RESIZE_NEAREST_NEIGHBOR", x, x.shaped(1, 4, 4, 3), constant([4, 4])) == 2


@pytest.mark.parametrize(("axis", "found"), [(2, 4), (3, 2)])
def test_what_gather_picks_is_not_the_innermost_axis(axis: int, found: int) -> None:
    """Columns are innermost channels first, channels are not."""
    x = tensor(1, 16, 16, 32)
    places = constant([0] * x.shape[axis])
    assert transposes("onnxruntime", "GATHER", x, x, places, axis=axis) == found


def test_operators_that_are_transposed_for_speed_are_named_with_what_they_gain_and_no_others() -> None:
    """ABS may have any order, too, and none is faster."""
    x = tensor(1, 16, 16, 32, dtype="int8")
    model = Net()
    resized = model.call("RESIZE_NEAREST_NEIGHBOR", [model.plumbed(x), constant([32, 32])], x.shaped(1, 32, 32, 32))
    model.output(model.drained(model.call("ABS", [resized], x.shaped(1, 32, 32, 32))))
    ((label, gain),) = convert(model.build(), host=Host(packs="builtin")).report.transposed_for_speed
    assert "RESIZE_NEAREST_NEIGHBOR" in label
    assert gain > 0
