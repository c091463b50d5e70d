"""The check that no integer product of a finished model overflows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnx_tflite_plugin.errors import TargetRefusal
from onnx_tflite_plugin.rewrite.weights.assign_dtypes import check_overflow
from onnx_tflite_plugin.rewrite.weights.int8_operands import int8_operands
from onnx_tflite_plugin.source.model import Array
from tests.rewrite.product_models import (
    F32,
    I32,
    assign_weight_dtypes,
    build_float_product,
    build_model,
    dequantize,
    tensor_proto,
)

OVERFLOWING = np.full((3, 2), 127, np.int8)


def loop_model(weights: Array) -> ir.Model:
    """Return a model with the product in the body of a Loop."""
    body = helper.make_graph(
        [dequantize("x", "a"), dequantize("w", "b"), helper.make_node("MatMul", ["a", "b"], ["ab"]),
         helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("ab", F32, [5, 2])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", ""], ["y"], body=body)]
    return build_model(nodes, weights, [5, 3], more_constants=[tensor_proto("trips", np.int64(2))])


def swap_branches(converted_model: ir.Model) -> ir.Model:
    """Swap the branches of every If."""
    for node in converted_model.graph.all_nodes():
        if node.op_type == "If":
            then_branch, else_branch = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
            node.attributes["then_branch"] = ir.AttrGraph("then_branch", else_branch)
            node.attributes["else_branch"] = ir.AttrGraph("else_branch", then_branch)
    return converted_model


def with_minus_128(converted_model: ir.Model) -> ir.Model:
    """Set a weight to -128 after the dtypes are assigned."""
    assign_weight_dtypes(converted_model, "auto")
    (value,) = (
        initializer
        for initializer in converted_model.graph.initializers.values()
        if initializer.name is not None and initializer.name.startswith("w")
    )
    weights = OVERFLOWING.copy()
    weights[1, 1] = -128
    value.const_value = ir.tensor(weights, name=value.name)
    return converted_model


def assign_auto(converted_model: ir.Model) -> ir.Model:
    assign_weight_dtypes(converted_model, "auto")
    return converted_model


def products_of_integers(weights: Array) -> ir.Model:
    return build_model([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], weights, [5, 3], I32)


@pytest.mark.parametrize(
    "make_model",
    [
        lambda: build_float_product("MatMul", OVERFLOWING, [5, 3]),
        lambda: build_float_product("Conv", np.full((2, 3, 1), 127, np.int8), [1, 3, 7]),
        lambda: build_float_product("MatMul", None, [5, 3]),
        lambda: products_of_integers(OVERFLOWING),
        lambda: loop_model(OVERFLOWING),
        lambda: swap_branches(assign_auto(build_float_product("MatMul", OVERFLOWING, [5, 3]))),
        lambda: swap_branches(assign_auto(products_of_integers(OVERFLOWING))),
        lambda: with_minus_128(build_float_product("MatMul", OVERFLOWING, [5, 3])),
    ],
    ids=["dense", "convolution", "fed", "integers", "in a loop", "branches swapped", "integers, swapped", "-128"],
)
def test_check_overflow_rejects_products_that_may_overflow(make_model: object) -> None:
    with pytest.raises(TargetRefusal, match=r"operand 1 is int8, and sums overflow"):
        check_overflow(make_model())  # type: ignore[operator]


@pytest.mark.parametrize("option", ["auto", "uint8"])
@pytest.mark.parametrize(
    "make_model",
    [
        lambda: build_float_product("MatMul", OVERFLOWING, [5, 3]),
        lambda: build_float_product("MatMul", None, [5, 3]),
        lambda: products_of_integers(OVERFLOWING),
        lambda: loop_model(OVERFLOWING),
    ],
    ids=["dense", "fed", "integers", "in a loop"],
)
def test_auto_and_uint8_pass_check_overflow(make_model: object, option: str) -> None:
    assigned_model = make_model()  # type: ignore[operator]
    assign_weight_dtypes(assigned_model, option)
    check_overflow(assigned_model)
    assert len(list(int8_operands(assigned_model))) == (
        0 if option == "uint8" or "w" in {v.name for v in assigned_model.graph.inputs} else 1
    )
