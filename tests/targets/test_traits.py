"""Tests of the consequences of a target's traits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_tflite_plugin as otp
from conformance.lstms import INPUTS, TIME, Lstm
from conformance.models import Net
from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.targets import Target
from onnx_tflite_plugin.verify import LiteRT


def target(**traits: Any) -> Target:
    return Target("t", (13, 17, 21), **traits)


@pytest.mark.parametrize(("size", "block"), [(32, 32), (96, 32), (8, 0), (16, 16), (24, 0), (512, 256), (256, 256)])
def test_block_is_the_largest_fused_power_of_two(size: int, block: int) -> None:
    assert target(fused_blocks=(16, 256)).fused_block_size(size) == block
    assert target().fused_block_size(size) == size


def test_target_price_precedes_operator_price() -> None:
    target_price, operator_price = Price(last=2, inner=3), Price(last=5, inner=7)
    axis_price: Any = SimpleNamespace(price_key="Softmax", price=operator_price)
    assert [target(prices={"Softmax": target_price}).price(axis_price, last, 10) for last in (True, False)] == [20, 30]
    assert [target(prices={"Gather": target_price}).price(axis_price, last, 10) for last in (True, False)] == [50, 70]
    unpriced: Any = SimpleNamespace(price_key="Softmax", price=None)
    assert target().price(unpriced, True, 10) == int(Price().last * 10)


def test_wildcard_excludes_a_dtype_for_all_operators() -> None:
    npu = target(no_integer_kernel={"Conv": frozenset({"int8"}), "*": frozenset({"int16"})})
    assert [npu.has_kernel(onnx, dtype) for onnx in ("Conv", "Add") for dtype in ("int8", "int16", "uint8")] == [
        False, False, True, True, False, True,
    ]  # fmt: skip
    assert npu.moves_integers
    assert not target(no_integer_kernel={"*": frozenset({"int8"})}).moves_integers


def test_wider_dtype_is_used_only_without_a_kernel() -> None:
    npu = target(wider_dtypes={"Add": {"int8": "int32"}})
    assert [npu.wider_dtype(*key) for key in (("Add", "int8"), ("Add", "int32"), ("Mul", "int8"))] == [
        "int32",
        None,
        None,
    ]


def test_integers_that_q_and_dq_do_not_support_are_refused_by_rule() -> None:
    npu = target(quantizes=frozenset({"int8", "uint8"}), symmetric=True)
    assert npu.unsupported_reason("int16", [0]) == "target t quantizes to int8, uint8, not to int16"
    assert npu.unsupported_reason("int8", [0, 3]) == "target t supports only zero points of 0"
    assert not npu.unsupported_reason("int8", [0, 0])
    assert not target(quantizes=frozenset({"int8"})).unsupported_reason("int8", [3])


@pytest.mark.needs("onnx", "1.21", "its evaluator does not find values that a Loop captures")
def test_integer_lstms_of_one_batch_run_in_the_reference_evaluator() -> None:
    """Its GatherElements fails for one row of indices."""
    net = Net()
    Lstm(dtype="int8", weights="int8", batch=1).build(net)
    x = np.random.default_rng(0).integers(-128, 128, (1, TIME, INPUTS)).astype(np.int8)
    proto = otp.convert(net.build(), target="generic", state="reset").proto
    (expected,) = LiteRT(net.build(), "builtin").run([x])
    (computed,) = ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: x})
    np.testing.assert_array_equal(computed, expected)
    default = otp.convert(net.build(), state="reset").model
    assert "GatherElements" in {node.op_type for node in default.graph.all_nodes()}
