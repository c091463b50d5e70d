"""Small tensors are stacked by one Reshape behind their Concat."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, parsed

from conformance.builder import TensorRef
from conformance.models import constant, drawn, tensor
from onnx_tflite_plugin.rewrite.recurrent import stacked_once
from onnx_tflite_plugin.verify import verify


def stacked(axis: int, count: int = 3, rows: int | None = 2, *, read: bool = False) -> Draw:
    """Several products of an input, one behind the other along a new axis. ``read``: one is read with its axis, too."""

    def draw(net: Network) -> tuple[TensorRef, ...]:
        x, part = net.input(tensor(rows, 5)), tensor(rows, 5)
        parts = [net.call("MUL", [x, constant(drawn(5, seed=str(k)))], part) for k in range(count)]
        shape = [rows, 5]
        y = net.call("PACK", parts, tensor(*shape[:axis], count, *shape[axis:]), axis=axis, values_count=count)
        return (
            (y, net.call("EXPAND_DIMS", [parts[0], constant(axis)], tensor(*shape[:axis], 1, *shape[axis:])))
            if read
            else (y,)
        )

    return draw


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("read", [False, True])
def test_parts_are_joined_along_an_axis_that_they_have(axis: int, read: bool) -> None:
    applied = Applied("stacked_once", stacked(axis, read=read))
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Unsqueeze")) == read
    assert verify(applied.data, applied.after).ok


@pytest.mark.parametrize(
    "draw",
    [stacked(2), stacked(0, count=2), stacked(0, rows=None)],
    ids=["behind the last axis", "two parts", "an open size"],
)
def test_else_each_has_an_axis_of_its_own(draw: Draw) -> None:
    assert Applied("stacked_once", draw).count == 0


def test_a_part_that_others_read_with_its_axis_has_it_already() -> None:
    rows = "a = Unsqueeze (x, k) b = Unsqueeze (z, k) c = Unsqueeze (w, k)"
    graph = "(float[5] x, float[5] z, float[5] w) => (float[3,5] y, float[1,5] also)"
    nodes = f"{rows} y = Concat <axis = 0> (a, b, c)"
    assert stacked_once.run(parsed(f"{graph} {{ {nodes} also = Abs (x) }}", k=np.array([0]))) == 1
    assert stacked_once.run(parsed(f"{graph} {{ {nodes} also = Abs (a) }}", k=np.array([0]))) == 0
