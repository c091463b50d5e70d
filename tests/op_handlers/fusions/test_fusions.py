"""Tests of pattern matching and regions of fusions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from conformance.cases.image.convolution import conv_case
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.api import Call, Context, Fusion, Match, Operator, Refusal, Region, Terminate, fusion, operands
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.fusion import FusedModel, fuse
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

x, w, b = operands("x w b")


def declare(*call_operands: Any) -> Fusion:
    def lower(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    return fusion("FOUND", pattern=Call("CONV_2D", *call_operands), inputs=call_operands, layout=Terminate())(lower)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("call_operands", [(x,), (x, w), (x, w, b)])
def test_a_call_has_as_many_operands_as_the_operator(call_operands: tuple[Any, ...], biased: bool) -> None:
    data = conv_case("found", bias_dtype="" if biased else None, absent=not biased).build()
    model: BoundModel = Host(packs="builtin").bind(read(data), TARGETS["generic"], 19)
    result = fuse(model, [("test", declare(*call_operands))], TARGETS["generic"], opset=19)
    assert bool(result.applied) == (len(call_operands) == (3 if biased else 2))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_indexed_call_matches_only_that_output(first: int, second: int) -> None:
    split = Call("SPLIT", axis := operands("axis")[0], x)
    pattern = Call("CONCATENATION", split[1], split)  # a call without an index is its first output

    @fusion("SWAPPED", pattern=pattern, inputs=[x, axis], layout=Terminate())
    def swap(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    joined, halves, y = g.input("x", (2, 6)), [g.tensor(name, (2, 3)) for name in "ab"], g.tensor("y", (2, 6))
    g.operator("SPLIT", [g.constant("axis", 1), joined], halves, {"num_splits": 2})
    g.operator("CONCATENATION", [halves[first], halves[second]], [y], {"axis": 1})
    g.output(y)
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    result = fuse(bound, [("test", swap)], TARGETS["generic"], opset=19)
    assert bool(result.applied) == ((first, second) == (1, 0))


@pytest.mark.parametrize(("first_code", "second_code"), [("ABS", "ABS"), ("ABS", "NEG")])
@pytest.mark.parametrize("shared", [True, False])
def test_two_calls_match_two_different_operators(first_code: str, second_code: str, shared: bool) -> None:
    """Build a sum of two operators on one operand, or of one operator twice."""
    left, right = Call(first_code, x), Call(second_code, x)

    @fusion("FOUND", pattern=Call("ADD", left, right), inputs=[x], layout=Terminate())
    def find(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = Net()
    operand = model.input(tensor(2, 3))
    first = model.call("ABS", [operand], tensor(2, 3))
    model.output(
        model.call("ADD", [first, first if shared else model.call(second_code, [operand], tensor(2, 3))], tensor(2, 3))
    )
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    assert bool(fuse(bound, [("test", find)], TARGETS["generic"], opset=19).applied) is not shared


@pytest.mark.parametrize("biased", [True, False])
def test_match_constant_returns_the_array_or_none(biased: bool) -> None:
    arrays: list[object] = []

    def check(match: Match) -> dict[str, Any]:
        arrays.extend((match.constant(x), match.constant(w)))
        return {}

    @fusion("FOUND", pattern=Call("ADD", x, w), inputs=[x, w], check=check, layout=Terminate())
    def add(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    second = g.constant("second", np.ones((2, 3), np.float32)) if biased else g.input("second", (2, 3))
    g.operator("ADD", [g.input("x", (2, 3)), second], [y := g.tensor("y", (2, 3))])
    g.output(y)
    fuse(Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19), [("test", add)], TARGETS["generic"])
    assert [array is not None for array in arrays] == [False, biased]


def test_refused_fusion_keeps_its_operators() -> None:
    def check(match: Match) -> dict[str, Any]:
        raise Refusal("its scale is odd")

    @fusion("FOUND", pattern=Call("ABS", x), inputs=[x], check=check, layout=Terminate())
    def find(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    g.operator("ABS", [g.input("x", (2, 3))], [y := g.tensor("y", (2, 3))])
    g.output(y)
    result = fuse(
        Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19), [("test", find)], TARGETS["generic"]
    )
    assert not result.applied
    assert "its scale is odd" in result.declined[0]


@pytest.mark.parametrize("second", ["constant", "other constant", "input"])
def test_repeated_operand_is_one_tensor_or_equal_constants(second: str) -> None:
    @fusion("DOUBLED", pattern=Call("ADD", x, Call("ABS", x)), inputs=[x], layout=Terminate())
    def double(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    first = g.constant("first", np.ones((2, 3), np.float32))
    if second == "input":
        other = g.input("second", (2, 3))
    else:
        other = g.constant("second", np.full((2, 3), 2 if second == "other constant" else 1, np.float32))
    absolute, y = g.tensor("absolute", (2, 3)), g.tensor("y", (2, 3))
    g.operator("ABS", [other], [absolute])
    g.operator("ADD", [first, absolute], [y])
    g.output(y)
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    result = fuse(bound, [("test", double)], TARGETS["generic"], opset=19)
    assert bool(result.applied) == (second == "constant")


def test_negative_output_index_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"SPLIT\[-1\]: the index of an output must be 0 or higher"):
        Call("SPLIT", x)[-1]


# --- regions of ABS, NEG and SQRT; FLOOR also reads the result of ABS -------------------------

RegionFinder = Callable[[Sequence[Operator]], Iterable[Any]]


def fuse_pattern(regions: RegionFinder) -> FusedModel:
    @fusion("FOUND", regions=regions, layout=Terminate())
    def find(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    tensors = [g.input("x", (2, 3)), *(g.tensor(name, (2, 3)) for name in ("abs", "floor", "neg", "sqrt"))]
    for code, source, target in (("ABS", 0, 1), ("FLOOR", 1, 2), ("NEG", 1, 3), ("SQRT", 3, 4)):
        g.operator(code, [tensors[source]], [tensors[target]])
    g.output(tensors[2], tensors[4])
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    return fuse(bound, [("test", find)], TARGETS["generic"], opset=19)


def region(first: int, last: int) -> RegionFinder:
    """Return a function for ``regions=``: the operators from ``first`` to ``last``."""
    return lambda operators: [Region((operators[first][0],), (operators[last][~0],), {"last": last})]


def test_region_becomes_one_operator_and_keeps_shared_operators() -> None:
    result = fuse_pattern(region(0, 2))
    (graph,) = result.model.graphs
    assert result.applied == {"FOUND": 1}
    assert [bound.op.code for bound in graph.operators] == ["ABS", "FLOOR", "FOUND", "SQRT"]
    assert graph.operators[2].op.options.last == 2
    assert [member.code for member in graph.operators[2].members] == ["ABS", "NEG"]


def test_unused_operators_of_a_region_are_removed() -> None:
    (graph,) = fuse_pattern(region(2, 3)).model.graphs
    assert [bound.op.code for bound in graph.operators] == ["ABS", "FLOOR", "FOUND"]


def test_region_is_placed_before_its_first_consumer() -> None:
    """FLOOR uses the first result before NEG, the last operator of the region.

    All operands are available from the start.
    """
    result = fuse_pattern(lambda operators: [Region((operators[0][0],), (operators[0][~0], operators[2][~0]), {})])
    assert [bound.op.code for bound in result.model.graphs[0].operators] == ["FOUND", "FLOOR", "SQRT"]


def test_kept_operators_are_placed_after_the_region() -> None:
    """NEG stays for another operator, between the results ABS and SQRT.

    NEG uses the first result.
    """

    @fusion("FOUND", regions=lambda ops: [Region((ops[0][0],), (ops[0][~0], ops[2][~0]), {})], layout=Terminate())
    def find(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    tensors = [g.input("x", (2, 3)), *(g.tensor(name, (2, 3)) for name in ("abs", "neg", "sqrt", "floor"))]
    for code, source, target in (("ABS", 0, 1), ("NEG", 1, 2), ("SQRT", 2, 3), ("FLOOR", 2, 4)):
        g.operator(code, [tensors[source]], [tensors[target]])
    g.output(*tensors[1:2], *tensors[3:])
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    (graph,) = fuse(bound, [("test", find)], TARGETS["generic"], opset=19).model.graphs
    assert [bound_op.op.code for bound_op in graph.operators] == ["FOUND", "NEG", "FLOOR"]


def test_region_with_a_result_of_another_region_is_declined() -> None:
    """Both regions have the result of ABS; the first also has that of FLOOR."""

    def overlapping(operators: Sequence[Operator]) -> Iterable[Region]:
        return [Region((operators[0][0],), (operators[0][~0], operators[k][~0]), {}) for k in (1, 2)]

    result = fuse_pattern(overlapping)
    assert [bound.op.code for bound in result.model.graphs[0].operators] == ["FOUND", "NEG", "SQRT"]
    assert (
        "the last operator of the region has a result that is used but is not an output of the region"
        in result.declined[0]
    )


def test_region_needed_before_its_operands_is_declined() -> None:
    def needs_later_result(operators: Sequence[Operator]) -> Iterable[Region]:
        return [Region((operators[0][0], operators[3][~0]), (operators[1][~0], operators[2][~0]), {})]

    result = fuse_pattern(needs_later_result)
    assert not result.applied
    assert "before all operands of the region are computed" in result.declined[0]


@pytest.mark.parametrize(
    ("finder", "text"),
    [
        (lambda operators: 1 / 0, "regions of fusion FOUND of test failed: ZeroDivisionError"),
        (lambda operators: ["all"], "it returned the str 'all', not a Region"),
        (
            lambda operators: [Region((), (operators[1][~0],), {})],
            "'x' is not an operand of the matched operators, and no operator computes it",
        ),
    ],
)
def test_fusion_without_regions_does_not_apply(finder: RegionFinder, text: str) -> None:
    result = fuse_pattern(finder)
    assert text in str(result.failed["FOUND"])
    assert [bound.op.code for graph in result.model.graphs for bound in graph.operators] == [
        "ABS",
        "FLOOR",
        "NEG",
        "SQRT",
    ]


@pytest.mark.parametrize("arguments", [{}, {"pattern": Call("ABS", x), "inputs": (x,), "regions": region(0, 1)}])
def test_fusion_needs_a_pattern_or_regions(arguments: Any) -> None:
    with pytest.raises(TypeError, match="needs either a pattern or a function that finds regions"):
        fusion("FOUND", layout=Terminate(), **arguments)


@pytest.mark.parametrize(
    ("offered", "first"),
    [
        (["rounding", "plain"], "plain"),
        (["rounding region", "plain"], "plain"),
        (["plain", "region"], "region"),
        (["rounding", "rounding region"], "rounding region"),
        (["plain", "other"], "plain"),
        (["other", "plain"], "other"),
    ],
)
def test_exact_fusions_apply_first_then_regions(offered: list[str], first: str) -> None:
    """Each fusion matches the only operator; of equal priorities the first applies."""

    def make_fusion(name: str) -> Fusion:
        arguments: dict[str, Any] = {"pattern": Call("ABS", x), "inputs": (x,)}
        if "region" in name:
            arguments = {"regions": lambda ops: [Region((ops[0][0],), (ops[0][~0],), {})]}
        return fusion(name, exact="rounding" not in name, layout=Terminate(), **arguments)(lambda ctx, x: None)

    model = Net()
    model.output(model.call("ABS", [tensor(3, 5)], tensor(3, 5)))
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    result = fuse(bound, [("test", make_fusion(name)) for name in offered], TARGETS["generic"], opset=19, inexact=True)
    assert next(iter(result.applied)) == first


# --- failing fusions --------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["axes", "lowering", "result"])
@pytest.mark.usefixtures("allow_skipped_fusions")
def test_fusion_is_skipped_if_its_operator_does_not_convert(fails: str) -> None:
    @fusion(
        "ALMOST",
        pattern=Call("ABS", x),
        inputs=(x,),
        layout=Terminate(),
        axes="a b c -> a b c" if fails == "axes" else "... -> ...",
    )
    def failing_fusion(ctx: Context, x: Any) -> Any:
        return ctx.ops.Log(x).missing if fails == "lowering" else ctx.ops.Unsqueeze(ctx.ops.Abs(x), [0])

    model = Net()
    model.output(model.call("ABS", [tensor(3, 5)], tensor(3, 5)))
    host = Host(packs="builtin")
    host.fusions = lambda present=None: [("test", failing_fusion)]  # type: ignore[method-assign]
    report = convert(model.build(), host=host).report
    (warning,) = report.warnings
    assert report.nodes == {"Abs": 1}
    assert "without fusions, because the conversion fails with ALMOST: " in warning


@pytest.mark.parametrize("roots", [1, 2])
@pytest.mark.parametrize("is_output", [True, False])
def test_operators_that_a_shared_operator_needs_are_kept(is_output: bool, roots: int) -> None:
    """The SUM of squares is the shared operator; the SQUARE feeds only the SUM."""
    total = Call("SUM", Call("SQUARE", x), w, shared=True)

    @fusion("NORM", pattern=Call("SQRT", total), inputs=[x], layout=Terminate())
    def norm(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = Net()
    squares = model.call("SQUARE", [model.input(tensor(2, 3))], tensor(2, 3))
    sums = model.call("SUM", [squares, constant(np.int32([1]))], tensor(2), keep_dims=False)
    norms = [model.call("SQRT", [sums], tensor(2)) for _ in range(roots)]
    model.output(*norms, *([sums] if is_output else []))
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    result = fuse(bound, [("test", norm)], TARGETS["generic"], opset=19)
    kept = ["SQUARE", "SUM"] if is_output else []
    assert [op.handler.code for op in result.model.main.operators] == [*kept, *["NORM"] * roots]


def test_match_names_the_way_to_the_operator_of_a_call() -> None:
    (absent,) = operands("absent")
    absolute = Call("ABS", x)
    match = Match({}, {})
    with pytest.raises(
        TypeError, match=r"takes an operand, not the call ABS of the pattern; match.calls\[...\] is the"
    ):
        match[absolute]  # type: ignore[index]
    with pytest.raises(TypeError, match="takes an operand of the pattern, not the str 'x'"):
        match["x"]  # type: ignore[index]
    with pytest.raises(KeyError, match="the pattern has no operand 'absent'"):
        match.constant(absent)
