"""ONNX shape inference at given sizes: tracked values, and memory limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.normalize import inference
from onnx_tflite_plugin.normalize.inference import LARGE_CONSTANT, MAX_TRACKED, infer, skeleton
from onnx_tflite_plugin.source.model import Dims


def parse_graph(text: str) -> onnx.ModelProto:
    """Return a graph from ONNX's text; the domain ``other`` has no schema."""
    imports = 'opset_import: ["": 18, "other": 1]'
    return onnx.parser.parse_model(f"<ir_version: 9, {imports}> graph {text}")


def infer_dims(text: str, sizes: Mapping[tuple[str, int], int] | None = None) -> list[Dims | None]:
    return infer(skeleton(ir.serde.deserialize_model(parse_graph(text))), sizes)


def test_shapes_are_inferred_from_inputs_not_stored_outputs() -> None:
    text = "(float[?, 3, 4] x, float[5, ?] y) => (float[7] u, float[7, 7] v) { u = Transpose<perm = [2, 1, 0]>(x)\n v = Neg(y) }"
    assert infer_dims(text) == [(4, 3, None), (5, None)]
    assert infer_dims(text, {("x", 0): 2, ("y", 1): 11}) == [(4, 3, 2), (5, 11)]


def test_shapes_of_rankless_and_input_free_values() -> None:
    assert infer_dims("(float[2, 3] x, int64[?] s) => (float[] y) { y = Reshape(x, s) }") == [None]
    assert infer_dims("(float[] x) => (float[] y, float[2] z) <float[2] a = {3, 5}> { y = Neg(x)\n z = Neg(a) }") == [
        None,
        (2,),
    ]
    assert infer_dims("() => (float[?] z) <float[2] a = {3, 5}> { z = Neg(a) }") == [(2,)]


def test_empty_shapes_are_allowed_and_negative_ones_refused() -> None:
    window = "(float[1, 1, ?] x) => (float[1, 1, ?] y) { y = MaxPool<kernel_shape = [5]>(x) }"
    assert infer_dims(window, {("x", 2): 4}) == [(1, 1, 0)]
    with pytest.raises(Refusal, match=r"the result would have the negative shape \[1, 1, -1\]"):
        infer_dims(window, {("x", 2): 3})


@pytest.mark.parametrize("rows", [5, MAX_TRACKED])
def test_contradiction_is_reported_without_its_source_path(rows: int) -> None:
    text = f"(float[{rows}, 3] x, float[{rows}, 2] y) => (float[?, ?] z) {{ z = Concat<axis = 0>(x, y) }}"
    with pytest.raises(Refusal, match=r"^sizes 2 and 3 along axis 1 must be equal$"):
        infer_dims(text)


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (MAX_TRACKED, 7)])
def test_computed_shapes_are_inferred_through_short_vectors(rows: int, columns: int) -> None:
    text = (
        f"(float[{rows}, {columns}] x) => (float[?, ?] y) <int64[2] permutation = {{1, 0}}>"
        "{ shape = Shape(x)\n back = Gather(shape, permutation)\n y = Reshape(x, back) }"
    )
    assert infer_dims(text) == [(columns, rows)]


@pytest.mark.parametrize(
    ("text", "is_tracked"),
    [
        ("(float[{n}] x) => (float[?] y) {{ y = Neg(x) }}", False),
        ("(float[{n}, 2] x) => (float[?, ?] y) {{ y = Neg(x) }}", False),
        ("(float[{n}, 2] x) => (float[?] y) <int64[1] s = {{-1}}> {{ y = Reshape(x, s) }}", False),
        ("(float[{n}, 2] x, int64[1] s) => (float[?] y) {{ y = Reshape(x, s) }}", True),
        ("(float[{n}, 2] x, int64[3] s) => (float[?, ?, ?] y) {{ y = Reshape(x, s) }}", True),
        ("(float[{n}] x, int64[2] s) => (float[?, ?] y) {{ y = Reshape(x, s) }}", False),
        ("(float[{n}, 2] x, int64[?] s) => (float[] y) {{ y = Reshape(x, s) }}", True),
        ("(float[?, {n}, 2] x) => (float[?, ?, ?] y) {{ y = Neg(x) }}", True),
        ("(float[3, 2] x) => (float[?, ?] y) {{ y = Neg(x) }}", True),
    ],
)
def test_vector_values_are_tracked_only_if_needed_and_short(
    text: str, is_tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    infer_shapes = onnx.shape_inference.infer_shapes

    def spy(*arguments: onnx.ModelProto, data_prop: bool = False, strict_mode: bool = False) -> onnx.ModelProto:
        calls.append(data_prop)
        assert strict_mode
        return infer_shapes(*arguments, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(inference.onnx.shape_inference, "infer_shapes", spy)
    infer_dims(text.format(n=MAX_TRACKED + 1))
    assert calls[-1] == is_tracked


def test_float_arithmetic_is_not_tracked() -> None:
    text = (
        "(float[2] x, int64[2] n, bool c) => (float[2] y) <float[2] d> {"
        " a = Add(x, x)\n b = Mul(n, n)\n d = other.Sub(x, x)\n m = Neg(x)\n"
        " y = If(c) <then_branch = t () => (float[2] p) { p = Div(x, a) }, else_branch = e () => (float[2] q) { q = Mul(x, m) }>\n"
        "}"
    )
    proto = skeleton(ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(parse_graph(text))))
    assert [node.op_type for node in proto.graph.node] == ["Max", "Mul", "Sub", "Neg", "If"]
    branches = [attribute.g for attribute in proto.graph.node[-1].attribute]
    assert [[node.op_type for node in branch.node] for branch in branches] == [["Max"], ["Max"]]
    assert proto.graph.node[2].domain == "other"


def test_skeleton_has_large_constants_as_inputs() -> None:
    model = ir.serde.deserialize_model(parse_graph("(float[3] x) => (float[3] y) { y = Clip(x, , x) }"))
    for name, count in (("small", LARGE_CONSTANT), ("large", LARGE_CONSTANT + 1)):
        tensor = ir.tensor(np.zeros(count, np.float32), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        model.graph.initializers[name] = value
    model.graph.inputs[0].const_value = model.graph.initializers["large"].const_value  # an input with a default value
    model.graph.initializers["x"] = model.graph.inputs[0]
    proto = skeleton(model)
    assert [info.name for info in proto.graph.input] == ["x", "large"]
    assert [tensor.name for tensor in proto.graph.initializer] == ["small"]
    assert list(proto.graph.node[0].input) == ["x", "", "x"]
    assert not proto.graph.value_info
