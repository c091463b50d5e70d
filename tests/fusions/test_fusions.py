"""A pattern is found where the whole of it is, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.builder import ModelBuilder
from conformance.cases.image.convolution import conv
from onnx_tflite_plugin.api import Call, Context, Fusion, Terminate, fusion, operands
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.fusion import fuse
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

x, w, b = operands("x w b")


def declared(*taken: Any) -> Fusion:
    def lower(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    return fusion("FOUND", pattern=Call("CONV_2D", *taken), inputs=taken, layout=Terminate())(lower)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("taken", [(x,), (x, w), (x, w, b)])
def test_a_call_has_as_many_operands_as_the_operator(taken: tuple[Any, ...], biased: bool) -> None:
    data = conv("found", biased="" if biased else None, absent=not biased).build()
    model: BoundModel = Host(packs="builtin").bind(read(data), TARGETS["generic"], 19)
    done = fuse(model, [("test", declared(*taken))], TARGETS["generic"], opset=19)
    assert bool(done.applied) == (len(taken) == (3 if biased else 2))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_an_operand_that_names_an_output_follows_that_one_alone(first: int, second: int) -> None:
    split = Call("SPLIT", axis := operands("axis")[0], x)
    pattern = Call("CONCATENATION", split[1], split)  # the call alone is its first output

    @fusion("SWAPPED", pattern=pattern, inputs=[x, axis], layout=Terminate())
    def swapped(ctx: Context, *inputs: Any) -> Any:
        raise NotImplementedError

    model = ModelBuilder()
    g = model.main
    whole, halves, y = g.input("x", (2, 6)), [g.tensor(name, (2, 3)) for name in "ab"], g.tensor("y", (2, 6))
    g.operator("SPLIT", [g.constant("axis", 1), whole], halves, {"num_splits": 2})
    g.operator("CONCATENATION", [halves[first], halves[second]], [y], {"axis": 1})
    g.output(y)
    bound: BoundModel = Host(packs="builtin").bind(read(model.build()), TARGETS["generic"], 19)
    done = fuse(bound, [("test", swapped)], TARGETS["generic"], opset=19)
    assert bool(done.applied) == ((first, second) == (1, 0))


def test_an_output_that_cannot_be_is_a_mistake_at_its_line() -> None:
    with pytest.raises(TypeError, match=r"SPLIT\[-1\]: outputs count from 0"):
        Call("SPLIT", x)[-1]
