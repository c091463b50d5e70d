"""Operators that a target lacks, and int8 moves that do not load."""

from __future__ import annotations

from contextlib import nullcontext

import onnx
import onnx_ir as ir
import pytest

from onnx_tflite_plugin.errors import TargetRefusal
from onnx_tflite_plugin.rewrite.target_check import check_model
from onnx_tflite_plugin.targets import Target

TARGET = Target("test", (13, 18, 26), no_int8_moves=frozenset({"Transpose", "Reshape"}), no_int8_moves_opset=21)
DQ, Q = "DequantizeLinear (x, s, z)", "QuantizeLinear (b, s, z)"


def model(*nodes: str, dtype: str = "int8") -> ir.Model:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> graph ({dtype}[2, 3] x) => ({dtype}[3, 2] y)
        <float s = {{0.5}}, {dtype} z = {{0}}, float c = {{2}}, int64[2] n = {{3, 2}}, {dtype}[2, 3] k = {{1, 2, 3, 4, 5, 6}}>
        {{ {" ".join(nodes)} }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


REFUSED = [
    (f"a = {DQ}", "b = Reshape (a, n)", f"y = {Q}"),
    (f"a = {DQ}", "t = Transpose (a)", "b = Mul (t, c)", f"y = {Q}"),
    (f"a = {DQ}", "m = Mul (a, c)", "b = Transpose (m)", f"y = {Q}"),
]
ACCEPTED = [
    (f"a = {DQ}", "b = Transpose (a)", f"y = {Q}"),
    (f"a = {DQ}", "t = Transpose (a)", "r = Relu (t)", "b = Relu (r)", f"y = {Q}"),
    (f"a = {DQ}", "r = Relu (a)", "t = Reshape (r, n)", "b = Relu (t)", f"y = {Q}"),
    (f"a = {DQ}", "r = Relu (a)", "m = Mul (r, c)", "b = Transpose (m)", f"y = {Q}"),
    ("a = DequantizeLinear (k, s, z)", "t = Transpose (a)", "r = Relu (t)", "b = Relu (r)", f"y = {Q}"),
]


@pytest.mark.parametrize("nodes", REFUSED, ids=range(len(REFUSED)))
def test_int8_moved_next_to_a_computation_is_refused_from_opset_21(nodes: tuple[str, ...]) -> None:
    with pytest.raises(TargetRefusal, match=r"ONNX Runtime does not load int8 .* at opset 21"):
        check_model(model(*nodes), TARGET, 21)
    check_model(model(*nodes), TARGET, 20)
    check_model(model(*nodes, dtype="uint8"), TARGET, 21)


@pytest.mark.parametrize("nodes", ACCEPTED, ids=range(len(ACCEPTED)))
def test_int8_moved_elsewhere_is_accepted(nodes: tuple[str, ...]) -> None:
    check_model(model(*nodes), TARGET, 21)


@pytest.mark.parametrize(
    ("between", "refused"),
    [
        (("m = MatMul (c2, a)", "b = Add (m, c)"), True),
        (("m = MatMul (c2, a)", "b = Relu (m)"), False),
        (("r = Relu (a)", "m = MatMul (c2, r)", "b = Add (m, c)"), False),
    ],
)
def test_int8_matmul_followed_by_add_is_refused(between: tuple[str, ...], refused: bool) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> graph (int8[2, 3] x, float[3, 2] c2) => (int8[3, 3] y)
        <float s = {{0.5}}, int8 z = {{0}}, float c = {{2}}> {{ a = {DQ} {" ".join(between)} y = {Q} }}"""
    )
    with pytest.raises(TargetRefusal, match="int8 MatMul and Add") if refused else nullcontext():
        check_model(ir.from_proto(proto), TARGET, 21)


def test_wildcard_excludes_a_dtype_for_all_operators() -> None:
    target = Target("test", (13, 18, 26), no_integer_kernel={"*": frozenset({"int4"}), "Pad": frozenset({"int16"})})
    kernels = [
        target.has_kernel(*row) for row in (("Add", "int4"), ("Pad", "int4"), ("Pad", "int16"), ("Add", "int16"))
    ]
    assert kernels == [False, False, False, True]


def test_missing_operator_is_refused_with_its_remedy() -> None:
    target = Target("test", (13, 18, 26), missing_operators={"Relu": "leave it out"})
    with pytest.raises(TargetRefusal, match=r"target test has no Relu \(leave it out\)"):
        check_model(model(f"a = {DQ}", "r = Relu (a)", "b = Reshape (r, n)", f"y = {Q}"), target, 18)


def test_operator_of_another_domain_is_not_refused() -> None:
    target = Target("test", (13, 18, 26), missing_operators={"Relu": "leave it out"})
    text = """<ir_version: 10, opset_import: ["" : 21, "elsewhere" : 1]> graph (float[3] x) => (float[3] y)
        { y = elsewhere.Relu (x) }"""
    check_model(ir.from_proto(onnx.parser.parse_model(text)), target, 18)
