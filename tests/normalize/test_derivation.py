"""Shapes derived from graph inputs, and operators with fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, quant
from onnx_tflite_plugin.api import Context, Instance, Transparent, Value, handler
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.derivation import ShapeDerivation
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Dims
from onnx_tflite_plugin.targets import TARGETS

Draw = Callable[[GraphBuilder], None]


def derived_shapes(draw: Draw, host: Host | None = None, **input_shapes: Dims) -> Mapping[str, Dims]:
    """Return the derived shapes of tensors by name."""
    builder = ModelBuilder()
    draw(builder.main)
    model = read(builder.build())
    inputs = {tensor.name: tensor for tensor in model.main.inputs}
    derivation = ShapeDerivation(
        model, host or Host(packs="builtin"), TARGETS["generic"], "shapes that cannot be derived:"
    )
    return {
        tensor.name: dims
        for tensor, dims in derivation.propagate({inputs[name]: dims for name, dims in input_shapes.items()}).items()
    }


def ints(g: GraphBuilder, *numbers: int) -> int:
    return g.constant("", np.asarray(numbers, np.int32))


def test_independent_tensors_keep_their_shape() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("ABS", [g.input("x", (2, 3))], [a := g.tensor("a", (2, 3))])
        g.operator("ABS", [g.input("z", (2, 3))], [b := g.tensor("b", (2, 3))])
        g.operator("CONCATENATION", [a, b], [c := g.tensor("c", (4, 3))], {"axis": 0})
        g.output(c)

    assert derived_shapes(draw, x=(5, 3)) == {"x": (5, 3), "a": (5, 3), "c": (7, 3)}


@pytest.mark.parametrize(("stored", "changed"), [((2, 3), {}), ((3, 2), {"y": (2, 3)})])
def test_shape_computed_from_constants_is_used(stored: tuple[int, int], changed: Mapping[str, Dims]) -> None:
    """If the shape equals the stored one, nothing has changed."""

    def draw(g: GraphBuilder) -> None:
        sides = [g.constant("rows", np.int32(2)), g.constant("columns", np.int32(3))]
        g.operator("PACK", sides, [shape := g.tensor("shape", (2,), "int32")], {"values_count": 2, "axis": 0})
        g.operator("RESHAPE", [g.input("z", (6,)), shape], [y := g.tensor("y", stored)])
        g.output(y)

    assert derived_shapes(draw, z=(6,)) == {"z": (6,), "y": (2, 3)}

    def draw_with_second_input(g: GraphBuilder) -> None:
        draw(g)
        g.operator("ABS", [g.input("x", (5,))], [w := g.tensor("w", (5,))])
        g.output(w)

    assert derived_shapes(draw_with_second_input, x=(7,)) == {"x": (7,), "w": (7,), **changed}


def test_sizes_are_computed_through_arithmetic() -> None:
    def draw(g: GraphBuilder) -> None:
        x = g.input("x", (2, 3))
        g.operator("SHAPE", [x], [s := g.tensor("s", (2,), "int32")], {"out_type": "INT32"})
        g.operator("MUL", [s, ints(g, 1, 2)], [d := g.tensor("d", (2,), "int32")])
        g.operator("BROADCAST_TO", [g.input("z", (1, 1)), d], [y := g.tensor("y", (2, 6))])
        g.output(y)

    assert derived_shapes(draw, x=(5, 7)) == {"x": (5, 7), "s": (2,), "d": (2,), "y": (5, 14)}


def test_derived_rank_replaces_the_stored_rank_downstream() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("RESHAPE", [g.input("x", (2, 15)), ints(g, 2, 3, 5)], [a := g.tensor("a", (6, 5))])
        g.operator("ABS", [a], [b := g.tensor("b", (6, 5))])
        g.output(b)

    assert derived_shapes(draw, x=(2, 15)) == {"x": (2, 15), "a": (2, 3, 5), "b": (2, 3, 5)}


@pytest.mark.parametrize("stored", [(2,), (2, 3, 1)])
def test_impossible_rank_is_corrected_by_one(stored: tuple[int, ...]) -> None:
    def draw(g: GraphBuilder) -> None:
        w = g.constant("w", np.ones((3, 5), np.float32))
        g.operator("FULLY_CONNECTED", [g.input("x", (2, 5)), w, None], [y := g.tensor("y", stored)])
        g.output(y)

    assert derived_shapes(draw, x=(7, 5)) == {"x": (7, 5), "y": (7, 3)}


@pytest.mark.parametrize("stored", [(2, 5), (2, 5, 7), (2, 5, 7, 3, 1)])
def test_image_has_rank_4_despite_the_stored_rank(stored: tuple[int, ...]) -> None:
    def draw(g: GraphBuilder) -> None:
        window = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 3}
        g.operator("MAX_POOL_2D", [g.input("x", (2, 5, 7, 3))], [y := g.tensor("y", stored)], window)
        g.output(y)

    assert derived_shapes(draw, x=(11, 5, 7, 3)) == {"x": (11, 5, 7, 3), "y": (11, 4, 5, 3)}


def test_rank_off_by_more_than_one_is_refused() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("SPACE_TO_DEPTH", [g.input("x", (2, 6, 10, 3))], [y := g.tensor("y", (2, 5))], {"block_size": 2})
        g.output(y)

    with pytest.raises(UnsupportedOperator, match="do not fit a tensor of rank 2"):
        derived_shapes(draw, x=(11, 6, 10, 3))


@pytest.mark.parametrize(
    ("code", "dtype", "index"),
    [("PAD", "float32", (2, 2)), ("TILE", "float32", (2,)), ("SUM", "float32", (1,)), ("REVERSE_V2", "float32", (1,))],
)
def test_per_axis_operands_cannot_be_resized(code: str, dtype: str, index: tuple[int, ...]) -> None:
    def draw(g: GraphBuilder) -> None:
        x, entries = g.input("x", (2, 3), dtype), g.input("entries", index, "int32")
        g.operator(
            code, [x, entries], [y := g.tensor("y", (2, 3), dtype)], {"keep_dims": True} if code == "SUM" else None
        )
        g.output(y)

    with pytest.raises(UnsupportedOperator, match=f"op 0 {code} .*operand 1 has an entry per axis of another operand"):
        derived_shapes(draw, entries=(index[0] + 1, *index[1:]))


def reverse_per_channel(g: GraphBuilder) -> None:
    scales = quant([0.5, 0.25, 0.125], [0, 0, 0], axis=1)
    x, y = g.input("x", (2, 3), "int8", quantization=scales), g.tensor("y", (2, 3), "int8", quantization=scales)
    g.operator("REVERSE_V2", [x, ints(g, 0)], [y])
    g.output(y)


def test_axis_with_scales_cannot_be_resized() -> None:
    assert derived_shapes(reverse_per_channel, x=(5, 3)) == {"x": (5, 3), "y": (5, 3)}
    with pytest.raises(UnsupportedOperator, match="'y' has 3 scales along axis 1"):
        derived_shapes(reverse_per_channel, x=(2, 5))


def test_stateful_operators_cannot_be_resized() -> None:
    def draw(g: GraphBuilder) -> None:
        constants = [
            g.constant(name, np.ones(shape, np.float32)) for name, shape in (("w", (5, 3)), ("r", (5, 5)), ("b", (5,)))
        ]
        state = g.tensor("state", (2, 5), variable=True)
        g.operator("RNN", [g.input("x", (2, 3)), *constants, state], [y := g.tensor("y", (2, 5))])
        g.output(y)

    with pytest.raises(UnsupportedOperator, match="state 'state' has shape"):
        derived_shapes(draw, x=(7, 3))


def test_operator_without_derived_shapes_is_named() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("ABS", [g.input("x", (2, 3))], [a := g.tensor("a", (2, 3))])
        g.operator("CUSTOM.Unknown", [a], [b := g.tensor("b", (2, 3))])
        g.operator("CUSTOM.Unknown", [g.input("z", (2, 3))], [c := g.tensor("c", (2,), "int32")])
        g.output(b, c)

    with pytest.raises(
        UnsupportedOperator, match=r"op 1 CUSTOM.Unknown v1 'b': no installed pack has a handler"
    ) as caught:
        derived_shapes(draw, x=(5, 3))
    assert len(caught.value.problems) == 1
    assert derived_shapes(draw) == {}


def test_contradicting_shapes_are_reported_without_consequences() -> None:
    def draw(g: GraphBuilder) -> None:
        operands = [g.input("x", (7, 3)), g.constant("c", np.ones((7, 3), np.float32))]
        g.operator("ADD", operands, [y := g.tensor("y", (7, 3))], {"fused_activation_function": "RELU6"})
        g.output(y)

    with pytest.raises(UnsupportedOperator) as caught:
        derived_shapes(draw, x=(5, 3))
    (problem,) = caught.value.problems
    assert (problem.where, problem.reason) == (
        "op 0 ADD v1 'y'",
        "the operands of shapes [5, 3] and [7, 3] do not broadcast",
    )
    assert problem.hint == "keep the stored size, or leave the operator out with --outputs TENSOR"


def test_state_fixes_the_batch() -> None:
    model = ModelBuilder()
    g = model.main
    x, state = g.input("x", (1, 5)), g.tensor("h", (1, 7), variable=True)
    constants = [
        g.constant(name, np.ones(shape, np.float32)) for name, shape in {"w": (7, 5), "r": (7, 7), "b": 7}.items()
    ]
    g.operator("RNN", [x, *constants, state], [y := g.tensor("y", (1, 7))], {"fused_activation_function": "TANH"})
    g.output(y)
    with pytest.raises(UnsupportedOperator, match=r"state 'h' of shape \[1, 7\] fixes the batch at 1") as caught:
        otp.convert(model.build(), dynamic_batch=True)
    assert caught.value.problems[0].hint == "keep the stored batch: omit dynamic_batch=True"


def test_operand_read_from_a_state_fixes_the_batch() -> None:
    model = ModelBuilder()
    g = model.main
    x, handle = g.input("x", (1, 5)), g.tensor("h", (), "resource")
    g.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "h"})
    g.operator("READ_VARIABLE", [handle], [state := g.tensor("state", (1, 5))])
    g.operator("NEG", [state], [old := g.tensor("old", (1, 5))])
    g.operator("CONCATENATION", [old, x], [y := g.tensor("y", (1, 10))], {"axis": 1})
    g.operator("ASSIGN_VARIABLE", [handle, x], [])
    g.output(y)
    reason = r"operand 'old' of shape \[1, 5\] is read from state 'h', which fixes the batch at 1"
    with pytest.raises(UnsupportedOperator, match=reason) as caught:
        otp.convert(model.build(), dynamic_batch=True)
    assert caught.value.problems[0].hint == "keep the stored batch: omit dynamic_batch=True"


def test_failing_handler_is_named_with_its_function() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("CUSTOM.Mine", [g.input("x", (2, 3))], [y := g.tensor("y", (2, 3))])
        g.output(y)

    def axes(at: Instance) -> str:
        return {2: "a b -> a b"}[at.op[0].dims[0]]  # type: ignore[index]

    @handler("CUSTOM.Mine", max_version=1, layout=Transparent(), axes=axes)
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Abs(x)

    host = Host(packs="builtin", handlers={"CUSTOM.Mine": lower})
    assert derived_shapes(draw, host, x=(2, 3))["y"] == (2, 3)
    with pytest.raises(
        UnsupportedOperator, match=r"op 0 CUSTOM.Mine v1 'y': axes declared by handler .* failed: KeyError: 5"
    ):
        derived_shapes(draw, host, x=(5, 3))
