"""Tests of pattern matching, calls and operand selection on handmade graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.api import Call, Dequantized, Handler, Raw, SameScale, Terminate, Transparent, operands
from onnx_tflite_plugin.api.patterns import Operand
from onnx_tflite_plugin.binding import inlining, states
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph
from onnx_tflite_plugin.binding.consistency import check_arity, has_empty_tensors
from onnx_tflite_plugin.binding.dtypes import find_invalid_dtypes, stale_dtypes
from onnx_tflite_plugin.binding.matching import Finder
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.source.model import ArrayData, Operator, Options, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.targets import target_named


def tensor(index: int, dtype: str = "float32", scale: float = 0.0, constant: Any = None, **fields: Any) -> Tensor:
    quantization = Quantization((scale,), (0,)) if scale else None
    data = None if constant is None else ArrayData(np.asarray(constant))
    fields = {"quantization": quantization, "data": data, **fields}
    return Tensor(0, index, f"t{index}", dtype, (2, 3), (2, 3), **fields)


def bind_operator(
    index: int,
    code: str,
    inputs: Sequence[Tensor | None],
    *outputs: Tensor | None,
    options: Any = None,
    **declared: Any,
) -> Bound:
    lower = declared.pop("lower", lambda ctx, *values: values[0])
    op = Operator(0, index, code, code, 1, Options(code, options or {}), tuple(inputs), outputs)
    layout = declared.pop("layout", Transparent())
    return Bound(op, Handler(code, lower, 1, layout, **declared), BUILTIN, (op,))


class TestPatterns:
    """Patterns on the graph B(A(x), constant)."""

    x, a, b, second_output, c = (tensor(k, constant=3.0 if k == 4 else None) for k in range(5))
    X, C = Operand("x"), Operand("c", constant=True)

    def match_tensors(
        self, pattern: Call, *further_operators: Bound, outputs: tuple[Tensor, ...] = (), last: Bound | None = None
    ) -> dict[str, int] | None:
        """Return the tensors of the match that ends in B, by operand name."""
        last = last or bind_operator(1, "B", [self.a, self.c], self.b)
        operators = (bind_operator(0, "A", [self.x], self.a, options={"n": 2}), last, *further_operators)
        graph = BoundGraph(Subgraph(0, "", (), (self.x,), outputs or (self.b,), ()), operators)
        match = Finder(graph, ()).find(pattern, last, set())
        return None if match is None else {operand.name: t.index for operand, t in match.tensors.items()}

    def test_chain_matches_with_its_outer_operands(self) -> None:
        assert self.match_tensors(Call("B", Call("A", self.X), self.C)) == {"x": 0, "c": 4}
        assert self.match_tensors(Call("B", Call("C", self.X), self.C)) is None
        assert self.match_tensors(Call("B", Call("A", self.X))) is None
        assert self.match_tensors(Call("B", self.C, Call("A", self.X))) is None

    def test_commutative_operands_match_in_either_order(self) -> None:
        assert self.match_tensors(Call("B", self.C, Call("A", self.X), commutes=True)) == {"x": 0, "c": 4}

    def test_result_used_elsewhere_matches_only_if_shared(self) -> None:
        user = bind_operator(2, "D", [None, self.a], self.second_output)
        assert self.match_tensors(Call("B", Call("A", self.X), self.C), user) is None
        assert self.match_tensors(Call("B", Call("A", self.X), self.C), outputs=(self.a, self.b)) is None
        assert self.match_tensors(Call("B", Call("A", self.X, shared=True), self.C), user) == {"x": 0, "c": 4}

    def test_options_and_constants_must_match_the_pattern(self) -> None:
        assert self.match_tensors(Call("B", Call("A", self.X, n=2), self.C))
        assert self.match_tensors(Call("B", Call("A", self.X, n=3), self.C)) is None
        assert self.match_tensors(Call("B", Call("A", Operand("x", constant=True)), self.C)) is None

    def test_repeated_operand_matches_one_tensor_or_equal_constants(self) -> None:
        def repeats(first: Tensor, second: Tensor, operand: Operand) -> bool:
            last = bind_operator(1, "B", [first, second], self.b)
            return self.match_tensors(Call("B", operand, operand), last=last) is not None

        equal_constant = tensor(7, constant=3.0)
        (x,) = operands("x")
        assert repeats(self.x, self.x, x)
        assert not repeats(self.x, self.second_output, x)
        assert repeats(self.c, equal_constant, self.C)
        assert not repeats(self.c, tensor(7, constant=4.0), self.C)
        assert not repeats(self.c, tensor(7, "float64", constant=3.0), self.C)
        assert not repeats(self.c, tensor(7, "int32", constant=np.array([0, 16392], np.int32)), self.C)

    def test_pattern_distinguishes_outputs_of_an_operator(self) -> None:
        split = bind_operator(0, "A", [self.x], self.second_output, self.a)
        last = bind_operator(1, "B", [self.a], self.b)
        graph = BoundGraph(Subgraph(0, "", (), (self.x,), (self.b,), ()), (split, last))
        call = Call("A", self.X)
        assert [Finder(graph, ()).find(Call("B", call[k]), last, set()) is not None for k in (0, 1)] == [False, True]


class TestSiblings:
    """Placement of an operator fused from the independent operators A, B and C."""

    x, a, b, c = (tensor(k) for k in range(4))

    def place(self, *operators: Bound, used_index: int | None = None) -> int | None:
        """Return the index of the fused operator, or None without a match.

        The operator at ``used_index`` belongs to another match.
        """
        x, y, z = operands("x y z")
        pattern = Call("A", x, siblings=(Call("B", y), Call("C", z)))
        finder = Finder(BoundGraph(Subgraph(0, "", (), (self.x,), (self.a,), ()), operators), ())
        first_operator = next(operator for operator in operators if operator.op.code == "A")
        match = finder.find(pattern, first_operator, set() if used_index is None else {operators[used_index]})
        return None if match is None else finder.insertion_index(pattern, match)

    def test_fused_siblings_are_placed_at_the_last_sibling(self) -> None:
        a, b, c = (
            bind_operator(0, "A", [self.x], self.a),
            bind_operator(1, "B", [self.x], self.b),
            bind_operator(2, "C", [self.x], self.c),
        )
        assert self.place(a, b, c) == 2
        assert self.place(c, b, a) == 2

    def test_fused_operator_is_placed_between_producers_and_consumers(self) -> None:
        produced, consumed = tensor(4), tensor(5)
        a, c = bind_operator(0, "A", [self.x], self.a), bind_operator(3, "C", [self.x], self.c)
        producer, user = bind_operator(1, "D", [self.x], produced), bind_operator(4, "E", [self.b], consumed)
        b = bind_operator(2, "B", [self.x], self.b)
        assert self.place(a, producer, b, user, c) == 2
        assert self.place(a, bind_operator(1, "E", [self.a], consumed), b, c) == 0
        assert (
            self.place(a, bind_operator(1, "E", [self.a], produced), bind_operator(2, "B", [produced], self.b), c)
            is None
        )

    def test_siblings_must_not_depend_on_each_other(self) -> None:
        b, c = bind_operator(0, "B", [self.x], self.b), bind_operator(1, "C", [self.x], self.c)
        assert self.place(b, c, bind_operator(2, "A", [self.x], self.a)) == 2
        assert self.place(b, c, bind_operator(2, "A", [self.b], self.a)) is None

    def test_operator_of_another_match_is_not_matched_again(self) -> None:
        a, b, c = (
            bind_operator(0, "A", [self.x], self.a),
            bind_operator(1, "B", [self.x], self.b),
            bind_operator(2, "C", [self.x], self.c),
        )
        assert [self.place(a, b, c, used_index=k) for k in (0, 1, 2, None)] == [None, None, None, 2]


# --- operands ---------------------------------------------------------------------------------


def takes_two(ctx: Any, x: Any, y: Any) -> Any: ...
def takes_optional(ctx: Any, x: Any, y: Any | None, _z: Any = None) -> Any: ...
def takes_one_or_more(ctx: Any, x: Any, *rest: Tensor) -> Any: ...
def takes_any_number(ctx: Any, *rest: Tensor | None) -> Any: ...
def takes_unannotated(ctx: Any, *rest) -> Any: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("lower", "operand_marks", "reason"),
    [
        (takes_two, "xx", ""),
        (takes_two, "x", "1 operands, but X requires 2"),
        (takes_two, "xxx", "3 operands, but X requires 2"),
        (takes_two, "x-", "absent"),
        (takes_optional, "x-", ""),
        (takes_optional, "x", ""),
        (takes_optional, "xx-", ""),
        (takes_optional, "-x", "absent"),
        (takes_optional, "xxxx", "4 operands, but X requires 2 to 3"),
        (takes_one_or_more, "x", ""),
        (takes_one_or_more, "", "0 operands, but X requires 1 or more"),
        (takes_one_or_more, "xx-", "absent"),
        (takes_any_number, "--", ""),
        (takes_unannotated, "x-", ""),
        (max, "x-x", ""),  # a built-in without a signature
    ],
)
def test_check_arity_compares_operands_with_the_parameters(lower: Any, operand_marks: str, reason: str) -> None:
    bound = bind_operator(
        0, "X", [tensor(k) if mark == "x" else None for k, mark in enumerate(operand_marks)], tensor(9), lower=lower
    )
    decline = check_arity(bound.handler, bound.op)
    assert (decline is None) if not reason else decline is not None and reason in decline.reason


# --- dtypes and scales ------------------------------------------------------------------------

TARGET = target_named("onnxruntime")


def invalid_dtype_fields(inputs: Sequence[Tensor | None], result: Tensor | None, **declared: Any) -> list[str]:
    declared = {"quantization": Dequantized(), **declared}
    return [field for field, _ in find_invalid_dtypes(bind_operator(0, "X", inputs, result, **declared), TARGET, 21)]


INT8, FLOAT, UNSCALED_INT8 = tensor(0, "int8", 0.5), tensor(1), tensor(2, "int8")


def test_float_and_quantized_tensors_mix_only_if_declared() -> None:
    assert invalid_dtype_fields([FLOAT], FLOAT) == invalid_dtype_fields([INT8], INT8) == []
    assert invalid_dtype_fields([FLOAT], INT8) == invalid_dtype_fields([INT8], FLOAT) == ["outputs[0]"]
    assert invalid_dtype_fields([INT8], FLOAT, result_dtypes={"int8": ("float32",)}) == []
    assert invalid_dtype_fields([None], FLOAT) == invalid_dtype_fields([INT8], None) == []


def test_weights_do_not_decide_the_result_dtype() -> None:
    weight = tensor(3, "int8", 0.5, constant=[1])
    assert invalid_dtype_fields([weight, FLOAT], FLOAT, quantization=Dequantized(weights=(0,))) == []
    assert invalid_dtype_fields([weight, INT8], FLOAT, quantization=Dequantized(weights=(0,))) == ["outputs[0]"]


def test_constants_determine_result_dtype_only_without_other_operands() -> None:
    assert invalid_dtype_fields([tensor(3, constant=[1.0]), INT8], INT8) == []
    assert invalid_dtype_fields([tensor(3, constant=[1.0]), INT8], FLOAT) == ["outputs[0]"]


def test_integers_without_scale_are_invalid_for_quantized_kernels() -> None:
    assert invalid_dtype_fields([UNSCALED_INT8], INT8) == ["inputs[0]"]
    assert invalid_dtype_fields([UNSCALED_INT8], INT8, quantization=Raw()) == []
    assert invalid_dtype_fields([tensor(3, "int64")], INT8) == ["outputs[0]"]


def test_per_axis_scale_is_valid_only_for_weights() -> None:
    per_axis = tensor(4, "int8", quantization=Quantization((0.5, 0.25), (0, 0), 0))
    assert invalid_dtype_fields([INT8], per_axis) == ["outputs[0]"]
    assert invalid_dtype_fields([per_axis], INT8) == ["inputs[0]"]
    constant = replace(per_axis, data=ArrayData(np.ones(2)))
    assert invalid_dtype_fields([constant, INT8], INT8, layout=Terminate()) == []
    assert invalid_dtype_fields([constant, INT8], INT8, layout=Transparent()) == ["inputs[0]"]
    assert invalid_dtype_fields([FLOAT], per_axis, result_dtypes={"*": ("*",)}) == []


def test_scale_of_0_is_invalid_for_quantized_kernels() -> None:
    zero_scale = tensor(4, "int8", quantization=Quantization((0.0,), (0,)))
    assert invalid_dtype_fields([zero_scale], INT8) == ["inputs[0]"]
    assert invalid_dtype_fields([INT8], zero_scale) == ["outputs[0]"]
    assert invalid_dtype_fields([zero_scale], zero_scale, quantization=Raw()) == []
    assert invalid_dtype_fields([replace(zero_scale, data=ArrayData(np.ones(2))), INT8], INT8) == []


def test_activation_bounds_of_unscaled_integers_are_invalid() -> None:
    def scale_reasons(activation: str, result: Tensor, **declared: Any) -> list[str]:
        bound = bind_operator(
            0, "X", [UNSCALED_INT8], result, options={"act": activation}, activation="act", **declared
        )
        return [reason for _, reason in find_invalid_dtypes(bound, TARGET, 21) if "need a scale" in reason]

    assert scale_reasons("RELU6", UNSCALED_INT8, quantization=SameScale())
    assert scale_reasons("RELU6", UNSCALED_INT8, quantization=Raw())
    assert not scale_reasons("NONE", UNSCALED_INT8, quantization=Raw())
    assert not scale_reasons("RELU6", INT8, quantization=Raw())
    assert not scale_reasons("RELU6", UNSCALED_INT8, quantization=Dequantized())


def test_float_results_with_a_scale_follow_the_operand_dtype() -> None:
    def stale_result_dtypes(operand: Tensor, zero_point: int = 3, **declared: Any) -> list[tuple[tuple[int, int], str]]:
        result = tensor(5, ignored_quantization=Quantization((0.5,), (zero_point,)))
        return list(
            stale_dtypes(bind_operator(0, "X", [operand], result, quantization=Dequantized(), **declared), TARGET, 21)
        )

    assert stale_result_dtypes(INT8) == [((0, 5), "int8")]
    assert stale_result_dtypes(INT8, 127)
    assert not stale_result_dtypes(INT8, 128)
    assert not stale_result_dtypes(FLOAT)
    assert not stale_result_dtypes(INT8, result_dtypes={"int8": ("float32",)})


# --- calls ------------------------------------------------------------------------------------


class TestCalls:
    inner = tuple(tensor(k) for k in range(3))
    outer = tuple(replace(tensor(k), subgraph=1) for k in (5, 6))

    def boundary_pairs(
        self, call: Bound | None = None, outputs: Sequence[int] = (2,), inputs: Sequence[int] = (0,)
    ) -> Any:
        operators = (
            bind_operator(0, "A", [self.inner[0]], self.inner[1]).op,
            bind_operator(1, "B", [self.inner[1]], self.inner[2]).op,
        )
        interface = tuple(self.inner[k] for k in inputs), tuple(self.inner[k] for k in outputs)
        call = call or bind_operator(0, "CALL", [self.outer[0]], self.outer[1])
        graph = Subgraph(0, "", self.inner, *interface, operators)
        return inlining._pair_boundary(call.op, graph) if inlining._is_expandable(graph) else None

    def test_call_operands_replace_subgraph_tensors(self) -> None:
        assert self.boundary_pairs() == {self.inner[0]: self.outer[0], self.inner[2]: self.outer[1]}

    def test_call_is_kept_if_tensors_do_not_match_one_to_one(self) -> None:
        assert self.boundary_pairs(outputs=(2, 2)) is None
        assert self.boundary_pairs(outputs=(0,)) is None
        assert self.boundary_pairs(inputs=(0, 0)) is None
        assert self.boundary_pairs(bind_operator(0, "CALL", self.outer[:1] * 2, self.outer[1])) is None
        assert self.boundary_pairs(bind_operator(0, "CALL", [None], self.outer[1])) is None

    @pytest.mark.parametrize(
        "changed_field",
        [{"dtype": "int32"}, {"dims": (None, 3)}, {"quantization": Quantization((1.0,), (0,))}, {"is_variable": True}],
    )
    def test_call_is_kept_if_an_operand_differs(self, changed_field: dict[str, Any]) -> None:
        assert (
            self.boundary_pairs(bind_operator(0, "CALL", [replace(self.outer[0], **changed_field)], self.outer[1]))
            is None
        )


def test_state_slot_is_the_value_not_the_resource() -> None:
    handle, value = tensor(0, "resource"), tensor(1)
    assert states.state_slot(bind_operator(0, "READ", [handle], value)) == ~0
    assert states.state_slot(bind_operator(0, "ASSIGN", [handle, value])) == 1
    with pytest.raises(LookupError):
        states.state_slot(bind_operator(0, "HANDLE", [], handle))


@pytest.mark.parametrize(
    ("operand_shape", "result_shape", "expected"),
    [((0, 3), (2, 3), True), ((2, 3), (2, 0), True), ((2, 3), (2, 3), False)],
)
def test_operand_or_result_of_size_0_is_an_empty_tensor(
    operand_shape: tuple[int, ...], result_shape: tuple[int, ...], expected: bool
) -> None:
    x, y = (replace(tensor(k), shape=shape) for k, shape in enumerate((operand_shape, result_shape)))
    op = bind_operator(0, "A", [x], y).op
    assert has_empty_tensors(SimpleNamespace(main=SimpleNamespace(operators=(op,)))) is expected  # type: ignore[arg-type]
