"""Checks of arrays that are passed to a session."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_tflite_plugin.graph.ort_ports import Port, check_array

LAST, FIRST = "to the end: array.transpose(0, 2, 3, 1)", "to axis 1: array.transpose(0, 3, 1, 2)"


@pytest.mark.parametrize(
    ("expected", "shape", "remedy"),
    [
        ((1, 5, 7, 3), (1, 3, 5, 7), LAST),
        (("n", None, None, 3), (2, 3, 5, 7), LAST),
        ((1, 3, 5, 7), (1, 5, 7, 3), FIRST),
        ((1, 5, 7, 3), (1, 3, 7, 5), ""),
        ((5, 7, 3), (3, 5, 7), ""),
        ((1, 5, 7, 3), (1, 5, 7), ""),
        ((1, 5, None, None), (1, 3, 5, 7), ""),
    ],
)
def test_image_in_another_layout_has_a_remedy(
    expected: tuple[int | str | None, ...], shape: tuple[int, ...], remedy: str
) -> None:
    with pytest.raises(ValueError, match="the array has shape") as caught:
        check_array(np.zeros(shape, np.float32), Port("x", "float", expected))
    assert str(caught.value).endswith(f"; move its channels {remedy}" if remedy else "]")
