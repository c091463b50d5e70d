"""Shapes of results that a file does not store but that can be derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.derivation import ShapeDerivation
from onnx_tflite_plugin.normalize.ranks import complete_shapes
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Dims, Model

Shape = Sequence[int | None] | None


def build_model(draw: Callable[[GraphBuilder], None]) -> Model:
    model = ModelBuilder()
    draw(model.main)
    return read(model.build())


def derive_shape(
    code: str, operands: Sequence[Any], stored: Shape, options: dict[str, Any] | None = None
) -> Dims | None:
    """Return the shape that is derived for an output with a stored shape.

    Operands given as arrays are constants; operands given as shapes are graph inputs.
    """

    def draw(g: GraphBuilder) -> None:
        refs = [
            g.constant(f"c{k}", operand) if isinstance(operand, np.ndarray) else g.input(f"x{k}", operand)
            for k, operand in enumerate(operands)
        ]
        y = g.tensor("y", stored)
        g.operator(code, refs, [y], options)
        g.output(y)

    (result,) = complete_shapes(build_model(draw), Host(packs="builtin")).main.outputs
    return result.dims if result.has_rank else None


ROWS = np.ones((2, 1), np.float32)


@pytest.mark.parametrize(
    ("code", "operands", "stored", "dims"),
    [
        ("ABS", [(2, 3)], None, (2, 3)),
        ("ABS", [()], None, ()),
        ("ADD", [(5, 2, 3), (2, 1)], None, (5, 2, 3)),
        ("ADD", [(2, 1), (5, 1, 3)], None, (5, 2, 3)),
        ("ADD", [(1, 3), (1, 3)], None, (1, 3)),
        ("ADD", [(0, 3), (1, 3)], None, (0, 3)),
        ("ADD", [(None, 3), (1, 3)], None, (None, 3)),
        ("ADD", [(None, 3), ROWS], None, (2, 3)),
        ("ADD", [(None, 3), (None, 3)], (1, 3), (None, 3)),
        ("ADD", [(None, 3), ROWS], (2, 3), (2, 3)),
        ("ADD", [(None, 3), (5, None, 3)], (5, 7, 3), (5, 7, 3)),  # unlike the stored sizes of the operands
        ("ADD", [(None, 3), (1, 3)], (5, 1, 3), (5, 1, 3)),
        ("ADD", [(2, 3), (2, 3)], (2, 3), (2, 3)),
        ("TRANSPOSE", [(2, 3, 5), np.asarray([2, 0, 1], np.int32)], None, (5, 2, 3)),
        ("TRANSPOSE", [(None, 3), np.asarray([1, 0], np.int32)], (3, 1), (3, None)),
        ("TRANSPOSE", [(None, 3), np.asarray([1, 0], np.int32)], (7, 1), (7, None)),  # only the dynamic axis is derived
        ("EXPAND_DIMS", [(2, 3), np.asarray(0, np.int32)], None, (1, 2, 3)),
        ("SUM", [(2, 3, 5), np.asarray([1], np.int32)], None, (2, 5)),
        ("RESHAPE", [(2, 15), np.asarray([6, 5], np.int32)], None, (6, 5)),
        ("SQUEEZE", [(1, 3, 1)], None, (3,)),
        ("EXPAND_DIMS", [(1, 5, 1, 2, 3), np.asarray(0, np.int32)], None, (1, 1, 5, 1, 2, 3)),
        ("EXPAND_DIMS", [(None, 3), np.asarray(0, np.int32)], (1, 3), (1, 3)),  # the stored rank is wrong
        ("CUSTOM.Unknown", [(2, 3)], None, None),
        ("SUM", [(2, 3), np.asarray([0, 1], np.int32)], None, ()),
    ],
)
def test_missing_ranks_and_dynamic_sizes_are_derived(
    code: str, operands: Sequence[Any], stored: Shape, dims: Dims | None
) -> None:
    assert derive_shape(code, operands, stored) == dims


def test_derived_shapes_propagate_to_the_next_operator() -> None:
    """Values are propagated too, such as the shape operand of a RESHAPE."""

    def draw(g: GraphBuilder) -> None:
        x = g.input("x", (2, 3, 5))
        g.operator("ABS", [x], [a := g.tensor("a", None)])
        g.operator("SHAPE", [a], [b := g.tensor("b", None, "int32")], {"out_type": "INT32"})
        g.operator("RESHAPE", [g.input("z", (5, 6)), b], [c := g.tensor("c", None)])
        g.operator("ADD", [c, a], [d := g.tensor("d", None)])
        g.output(b, c, d)

    main = complete_shapes(build_model(draw), Host(packs="builtin")).main
    assert [tensor.dims for tensor in main.outputs] == [(3,), (2, 3, 5), (2, 3, 5)]


def test_shapes_are_derived_with_absent_operands() -> None:
    def draw(g: GraphBuilder) -> None:
        halves = [g.tensor("a", (1, 3)), g.tensor("b", None)]
        g.operator("SPLIT", [g.constant("axis", np.int32(0)), g.input("x", (2, 3))], halves, {"num_splits": 2})
        w = g.constant("w", np.ones((5, 3), np.float32))
        g.operator("FULLY_CONNECTED", [g.input("y", (2, 3)), w, None], [c := g.tensor("c", None)])
        g.output(*halves, c)

    main = complete_shapes(build_model(draw), Host(packs="builtin")).main
    assert [tensor.dims for tensor in main.outputs] == [(1, 3), (1, 3), (2, 5)]


def test_complete_model_is_unchanged_without_lowering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def draw(g: GraphBuilder) -> None:
        x = g.input("x", (None, 3))
        axes = g.constant("axes", np.asarray([1, 0], np.int32))
        g.operator("ABS", [x], [a := g.tensor("a", (None, 3))])
        g.operator("TRANSPOSE", [x, axes], [b := g.tensor("b", (3, None))])
        g.operator("TRANSPOSE", [g.input("y", (2, 3)), axes], [c := g.tensor("c", (3, 2))])
        g.operator("SUM", [x, axes], [d := g.tensor("d", ())])
        g.output(a, b, c, d)

    monkeypatch.setattr(ShapeDerivation, "bind", lambda derivation, op: pytest.fail("bound"))
    model = build_model(draw)
    assert complete_shapes(model, Host(packs="builtin")) is model


def test_model_without_derivable_shapes_is_unchanged() -> None:
    def draw(g: GraphBuilder) -> None:
        g.operator("ADD", [g.input("x", (None, 3)), g.constant("c", ROWS)], [y := g.tensor("y", (2, 3))])
        g.output(y)

    model = build_model(draw)
    assert complete_shapes(model, Host(packs="builtin")) is model
