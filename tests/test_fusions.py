"""A pattern is found where the whole of it is, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

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
