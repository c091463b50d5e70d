"""Sizes in constants that become dynamic by name, such as sequence lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from conformance.builder import GraphBuilder
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.normalize.stored_sizes import entry_of_axis
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT

SLOTS, WIDTH, HEADS = 11, 6, 2
STORED = 5


def decoder(length: int) -> bytes:
    """Return a model that caches normalized keys at ``start`` and scores them.

    All sizes that depend on ``length`` are constants.
    """
    model = Net()
    x, start = model.input(tensor(1, length, WIDTH)), model.input(tensor(4, dtype="int32"))
    cache = model.input(tensor(1, SLOTS, HEADS, WIDTH // HEADS))
    inner = model.model.subgraph("decomposition")
    _normalize(inner, length)
    options = {"decomposition_subgraph_index": inner.index, "composite_attributes": {"epsilon": 1e-6}}
    model.graph.operator("COMPOSITE.odml.rms_norm", [x], [y := model.result(tensor(1, length, WIDTH))], options)
    keys = model.call("RESHAPE", [y, constant([1, length, HEADS, 3])], tensor(1, length, HEADS, 3))
    full = model.call("DYNAMIC_UPDATE_SLICE", [cache, keys, start], tensor(1, SLOTS, HEADS, 3))
    half = model.call("SLICE", [keys, constant([0, 0, 1, 0]), constant([1, length, 1, 3])], tensor(1, length, 1, 3))
    rows = model.call("RESHAPE", [half, constant([length, 3])], tensor(length, 3))
    columns = model.call("RESHAPE", [full, constant([SLOTS * HEADS, 3])], tensor(SLOTS * HEADS, 3))
    scores = model.call("BATCH_MATMUL", [rows, columns], tensor(length, SLOTS * HEADS), adj_y=True)
    model.output(scores, full)
    return model.build()


def _normalize(g: GraphBuilder, length: int) -> None:
    x = g.input("x", (1, length, WIDTH))
    square, mean = g.tensor("square", (1, length, WIDTH)), g.tensor("mean", (1, length))
    column, y = g.tensor("column", (1, length, 1)), g.tensor("y", (1, length, WIDTH))
    g.operator("MUL", [x, x], [square])
    g.operator("MEAN", [square, g.constant("axes", np.array([2], np.int32))], [mean], {"keep_dims": False})
    g.operator("RESHAPE", [mean, g.constant("column", np.array([1, length, 1], np.int32))], [column])
    g.operator("MUL", [x, column], [y])
    g.output(y)


def feeds(length: int) -> dict[str, Array]:
    start = np.array([0, 3, 0, 0], np.int32)
    return {"x0": random_array(1, length, WIDTH), "x1": start, "x2": random_array(1, SLOTS, HEADS, 3, seed="cache")}


@pytest.fixture(scope="module")
def dynamic() -> Conversion:
    """Convert a decoder with a dynamic sequence length T."""
    return convert(decoder(STORED), input_shape={"x0": [1, "T", WIDTH]})


@pytest.mark.parametrize("length", [1, 2, STORED, 7])
def test_each_length_equals_the_model_of_that_static_length(dynamic: Conversion, length: int) -> None:
    expected = LiteRT(decoder(length)).run(feeds(length))
    results = OnnxRuntime(dynamic.proto).run(feeds(length))
    for expected_value, value in zip(expected, results, strict=True):
        np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-5)


def test_the_cache_keeps_its_static_shape(dynamic: Conversion) -> None:
    scores, cache = dynamic.model.graph.outputs
    assert [str(size) for size in scores.shape or ()] == ["T", "22"]
    assert list(cache.shape or ()) == [1, SLOTS, HEADS, 3]


@pytest.mark.parametrize(
    ("sizes", "dims", "axis", "entry"),
    [
        ([1, 128, 6, 32], [1, 128, 192], 1, 1),
        ([128, 192], [1, 128, 192], 1, 0),
        ([1, 1, 128, 32], [1, 128, 1, 32], 1, 2),
        ([768, 32], [6, 128, 32], 1, 0),
        ([128, 1, 128], [1, 128, 128], 1, 0),
        ([1, 6, 128, 32], [1, 2, 384, 32], 2, 2),
        ([1, 2, 3, 128, 32], [1, 2, 1, 128, 32], 3, 3),
        ([4, 32, 192], [1, 128, 192], 1, None),
        ([7, 2, 32], [1, 7, 128, 32], 2, None),
        ([128, 128], [2, 128, 64], 1, None),
    ],
)
def test_entry_of_axis_finds_the_size_that_holds_the_whole_axis(
    sizes: Sequence[int], dims: Sequence[int], axis: int, entry: int | None
) -> None:
    assert entry_of_axis(sizes, dims, axis, {128}) == entry
