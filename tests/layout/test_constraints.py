"""Layouts that operators support: slots keep the axis order of the handler."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import Context, Terminate, Value, handler
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import layout_constraint
from onnx_tflite_plugin.layout.shared_axes import LetterPart, RankError
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


@handler("CUSTOM.Steps", max_version=1, layout=Terminate(unordered="n"), axes="n t i, i o -> n t o")
def steps(ctx: Context, x: Value, w: Value) -> Value:
    raise NotImplementedError


@handler("CUSTOM.Batched", max_version=1, layout=Terminate(unordered="n b"), axes="n b t -> n b t")
def lower_batched(ctx: Context, x: Value) -> Value:
    raise NotImplementedError


@pytest.mark.parametrize(("letters", "allowed"), [("nbt", True), ("bnt", True), ("ntb", False), ("tnb", False)])
def test_only_adjacent_unordered_axes_may_be_swapped(letters: str, allowed: bool) -> None:
    model = ModelBuilder()
    g = model.main
    g.operator("CUSTOM.Batched", [g.input("x", (2, 3, 5))], [y := g.tensor("y", (2, 3, 5))])
    g.output(y)
    target = TARGETS["generic"]
    bound = Host(packs="builtin", handlers={"CUSTOM.Batched": lower_batched}).bind(read(model.build()), target, 18)
    (operator,) = resolve(bound, target, 18).operators()
    assert layout_constraint(operator).is_allowed(tuple(LetterPart(letter) for letter in letters)) == allowed


def test_terminate_rejects_layout_visible_only_in_the_output() -> None:
    model = ModelBuilder()
    g = model.main
    w = g.constant("w", np.ones((5, 7), np.float32))
    y = g.tensor("y", (2, 3, 7))
    g.operator("CUSTOM.Steps", [g.input("x", (2, 3, 5)), w], [y])
    g.output(y)
    target = TARGETS["generic"]
    bound = Host(packs="builtin", handlers={"CUSTOM.Steps": steps}).bind(read(model.build()), target, 18)
    (operator,) = resolve(bound, target, 18).operators()
    constraint = layout_constraint(operator)
    assert constraint.shared_axes is not None
    assert constraint.is_allowed(constraint.shared_axes.source)
    assert constraint.is_allowed(tuple(LetterPart(letter) for letter in "ntio"))
    assert not constraint.is_allowed(tuple(LetterPart(letter) for letter in "noti"))


def test_scalar_result_of_larger_operands_is_rejected() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    g.operator("ADD", [x, x], [y := g.tensor("y", ())])
    g.output(y)
    target = TARGETS["generic"]
    (operator,) = resolve(Host(packs="builtin").bind(read(model.build()), target, 18), target, 18).operators()
    with pytest.raises(RankError, match="the file stores no shape for 'y', the result of operands of rank 2"):
        layout_constraint(operator)
