"""Whose fault a failure is: what a file says, held against what LiteRT computes."""

from __future__ import annotations

import pytest
from verify_graphs import model as made_of
from verify_graphs import slot, subgraph

from onnx_tflite_plugin.verify.diagnosis import contradicted


@pytest.mark.parametrize(("batch", "blamed"), [(None, False), (1, True)])
def test_a_shape_contradicts_what_litert_computes_but_where_it_is_open(batch: int | None, blamed: bool) -> None:
    graph = subgraph(inputs=[slot(0)], outputs=[slot(1, shape=(batch, 4))])
    assert (contradicted(made_of(graph), {"shapes": {"1": [3, 4]}}) is not None) is blamed
