"""When a model is opened in ONNX Runtime, and the refusal if that fails."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.errors import MissingExtra, TargetRefusal
from onnx_tflite_plugin.graph.kernels import suggest_options
from onnx_tflite_plugin.graph.load_check import CHEAP_BYTES, COMMON_DTYPES, check_opens, foreign_domains, should_open


def open_model(check: str, dtype: str = "FLOAT", size: int = 1, domain: str = "") -> bool:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(()))
    node = ir.node("NoSuchOperator", [x], domain=domain)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    weights = ir.Value(name="w", const_value=ir.tensor(np.zeros(size, np.uint8)))
    graph = ir.Graph(node.inputs, node.outputs, nodes=[node], initializers=[weights], opset_imports={"": 21})
    model = ir.Model(graph, ir_version=10)
    if not should_open(model, check):
        return False
    try:
        check_opens(model, ir.to_proto(model).SerializeToString(), (13, 21))
    except TargetRefusal:
        return True
    return False


def test_auto_check_opens_small_models_and_rare_dtypes() -> None:
    assert open_model("auto")
    assert not any(open_model("auto", dtype, size=CHEAP_BYTES + 1) for dtype in COMMON_DTYPES)
    assert all(open_model("auto", dtype, size=CHEAP_BYTES + 1) for dtype in ("FLOAT16", "INT16", "DOUBLE", "STRING"))


def test_full_check_always_opens_and_standard_never() -> None:
    assert open_model("full", size=CHEAP_BYTES)
    assert open_model("full", domain="a.library")
    assert not open_model("standard")


def test_auto_check_does_not_open_models_with_custom_kernels() -> None:
    assert not open_model("auto", domain="a.library")
    assert open_model("auto", domain="com.microsoft")


FUNCTIONS = """<ir_version: 8, opset_import: ["": 18, "own": 1, "foreign": 1]> g (float[2, 3] x) => (float[2, 3] y) {
    a = own.half (x)
    b = com.microsoft.Gelu (a)
    y = foreign.relu9 (b)
}
<domain: "own", opset_import: ["": 18]> half (x) => (y) { two = Constant <value_float = 2.0> () y = Div (x, two) }"""


def test_foreign_domains_exclude_onnx_runtime_and_functions() -> None:
    assert foreign_domains(ir.from_proto(onnx.parser.parse_model(FUNCTIONS))) == ("foreign",)


# --- suggested options -----------------------------------------------------------------------

SMALLEST = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] a, {0}[2, 3] b, int64[1] k) => (float[2, 1] y, {0}[2, 1] z) {{
    y = ReduceMin(a, k)
    z = ReduceMin(b, k)
}}"""


@pytest.mark.parametrize(("dtype", "is_suggested"), [("int32", True), ("uint64", False)])
def test_opset_is_suggested_if_every_node_has_a_kernel(dtype: str, is_suggested: bool) -> None:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(SMALLEST.format(dtype))))
    hints = suggest_options(model, "Could not find an implementation for ReduceMin(18) node with name ''", (18, 20))
    assert ("--opset 20 may help" in hints) is is_suggested


def test_full_check_without_onnx_runtime_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_tflite_plugin.graph.load_check.find_spec", lambda name: None)
    assert not open_model("auto")
    with pytest.raises(MissingExtra, match="onnxruntime is not installed"):
        open_model("full")
