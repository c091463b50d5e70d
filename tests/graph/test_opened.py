"""Which models are opened in ONNX Runtime: what it does not open is refused where it is tried, so the refusal tells."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.errors import TargetRefusal
from onnx_tflite_plugin.graph.opening import CHEAP, check_opens


def opened(asked: str, dtype: str = "FLOAT", size: int = 1, domain: str = "") -> bool:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(()))
    node = ir.node("NoSuchOperator", [x], domain=domain)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    weights = ir.Value(name="w", const_value=ir.tensor(np.zeros(size, np.uint8)))
    graph = ir.Graph(node.inputs, node.outputs, nodes=[node], initializers=[weights], opset_imports={"": 21})
    model = ir.Model(graph, ir_version=10)
    try:
        check_opens(model, ir.to_proto(model), asked, (13, 21))
    except TargetRefusal:
        return True
    return False


def test_what_is_cheap_or_of_rare_dtypes_is_opened_unasked() -> None:
    assert opened("auto")
    assert not opened("auto", size=CHEAP)
    assert all(opened("auto", dtype, size=CHEAP) for dtype in ("FLOAT16", "INT16", "DOUBLE", "STRING"))


def test_what_is_asked_for_is_opened_whatever_it_is_and_nothing_is_where_that_is_forbidden() -> None:
    assert opened("full", size=CHEAP)
    assert opened("full", domain="a.library")
    assert not opened("standard")


def test_what_wants_a_library_of_kernels_is_not_opened_unasked() -> None:
    assert not opened("auto", domain="a.library")
    assert opened("auto", domain="com.microsoft")
