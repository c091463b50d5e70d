"""Names of dynamic dimensions: sizes share a name only if they are always equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.normalize import dimensions
from onnx_tflite_plugin.normalize.dimensions import name_dimensions

Shapes = dict[str, list[int | str | None]]


def dims_after_naming(text: str, requested: Mapping[tuple[str, int], str] | None = None) -> Shapes:
    """Return the dims of inputs and outputs of a graph in ONNX's text format."""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> graph {text}'))
    name_dimensions(model, requested or {})
    return {
        str(value.name): [size if isinstance(size, int) else size.value for size in value.shape or ()]
        for value in (*model.graph.inputs, *model.graph.outputs)
    }


def test_size_plus_constant_is_not_named_after_another_input() -> None:
    """This must hold for all sample sizes."""
    for rows in range(1, 40):
        shapes = dims_after_naming(
            f"(float[?, 3] x, float[?, 3] y) => (float[?, 3] longer, float[?, 3] same)"
            f"<float[{rows}, 3] more = {{{', '.join('0' * 3 * rows)}}}>"
            "{ longer = Concat<axis = 0>(x, more)\n same = Neg(y) }"
        )
        assert shapes == {"x": ["x_dim0", 3], "y": ["y_dim0", 3], "longer": [None, 3], "same": ["y_dim0", 3]}


def test_outputs_inherit_dimension_names_from_inputs() -> None:
    text = (
        "(float[?, ?] x, float[?] y) => (float[?, ?] transposed, float[?] negated, float[?] flat) <int64[1] all = {-1}>"
        "{ transposed = Transpose<perm = [1, 0]>(x)\n negated = Neg(y)\n flat = Reshape(x, all) }"
    )
    assert dims_after_naming(text, {("x", 1): "columns"}) == {
        "x": ["x_dim0", "columns"],
        "y": ["y_dim0"],
        "transposed": ["columns", "x_dim0"],
        "negated": ["y_dim0"],
        "flat": [None],
    }


def test_dimension_is_named_through_a_split_of_the_shape() -> None:
    """ONNX's inference does not track values through Split.

    Audio models compute their number of frames this way.
    """
    text = (
        "(float[?, 6] x) => (float[?, ?] y) <int64[2] each = {1, 1}>"
        "{ shape = Shape(x)\n batch, columns = Split(shape, each)\n back = Concat<axis = 0>(columns, batch)"
        "\n y = Reshape(x, back) }"
    )
    assert dims_after_naming(text) == {"x": ["x_dim0", 6], "y": [None, "x_dim0"]}


def test_named_dimension_keeps_its_name() -> None:
    assert dims_after_naming("(float[N, ?] x) => (float[N, ?] y) { y = Neg(x) }") == {
        "x": ["N", "x_dim1"],
        "y": ["N", "x_dim1"],
    }


def test_dimensions_that_must_be_equal_share_a_name() -> None:
    assert dims_after_naming("(float[?, 2] x, float[?, 3] y, float[?, 5] z) => (float[?, 10] w) { w = Concat<axis = 1>(x, y, z) }") == {
        "x": ["x_dim0", 2], "y": ["x_dim0", 3], "z": ["x_dim0", 5], "w": ["x_dim0", 10],
    }  # fmt: skip


def test_broadcastable_sizes_have_separate_names() -> None:
    shapes = dims_after_naming(
        "(float[?, 2] x, float[?, 3] y, float[?, 3] p, float[?, 3] q) => (float[?, 5] z, float[?, 3] w)"
        "{ z = Concat<axis = 1>(x, y)\n w = Add(p, q) }"
    )
    assert [shapes[name][0] for name in "xypq"] == ["x_dim0", "x_dim0", "p_dim0", "q_dim0"]


def test_values_without_a_reliable_rank_get_no_names() -> None:
    shapes = dims_after_naming("(float[?] x, float[] y) => (float[?, ?] z, float[] w) { z = Neg(x)\n w = Neg(y) }")
    assert shapes == {"x": ["x_dim0"], "y": [], "z": ["x_dim0", None], "w": []}


def test_size_equal_to_another_axis_is_not_merged() -> None:
    """Rows of the second input are columns of the first."""
    shapes = dims_after_naming("(float[?, ?] x, float[?, ?] y) => (float[?, ?] z) { z = MatMul(x, y) }")
    assert shapes["x"] == ["x_dim0", "x_dim1"]
    assert shapes["y"] == ["y_dim0", "y_dim1"]


def test_sizes_that_cannot_be_equal_have_separate_names() -> None:
    """One input has one more row than the other."""
    shapes = dims_after_naming(
        "(float[?, 2] x, float[?, 2] y) => (float[?, 4] z) <float[1, 2] row = {0, 0}>"
        "{ longer = Concat<axis = 0>(x, row)\n z = Concat<axis = 1>(longer, y) }"
    )
    assert shapes == {"x": ["x_dim0", 2], "y": ["y_dim0", 2], "z": [None, 4]}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_sample_sizes_are_distinct_and_take_little_memory(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inferred_sizes: list[Mapping[tuple[str, int], int]] = []
    infer = dimensions.infer

    def spy(proto: onnx.ModelProto, sizes: Mapping[tuple[str, int], int]) -> Any:
        inferred_sizes.append(sizes)
        return infer(proto, sizes)

    monkeypatch.setattr(dimensions, "infer", spy)
    axes = ", ".join("?" * count)
    dims_after_naming(f"(float[{axes}] x) => (float[{axes}] y) {{ y = Neg(x) }}")
    assert len(inferred_sizes) == 2
    for sizes in inferred_sizes:
        assert len({*sizes.values()}) == count
        assert math.prod(sizes.values()) < 2e6
        assert min(sizes.values()) > (30 if count < 4 else 10)
    assert not {*inferred_sizes[0].values()} & {*inferred_sizes[1].values()}


def test_static_model_is_not_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimensions, "infer", lambda proto, sizes: pytest.fail("inferred"))
    assert dims_after_naming("(float[2, 3] x) => (float[?, 3] y) { y = Neg(x) }") == {"x": [2, 3], "y": [None, 3]}
