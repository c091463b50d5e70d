"""Which handlers of packs are named where the converter fails on what they declare, each with the first operator it lowers."""

from __future__ import annotations

from dataclasses import replace

from conformance.models import Net, tensor
from onnx_tflite_plugin.api import builtin
from onnx_tflite_plugin.binding.suspects import accused, suspects
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


def test_a_pack_s_handler_is_named_with_the_first_operator_that_it_lowers() -> None:
    model = Net()
    x = model.input(tensor(2, 3))
    for name in ("one", "two"):
        x = model.call("NEG", [model.call("ABS", [x], tensor(2, 3))], tensor(2, 3, name=name))
    model.output(x)
    host = Host(packs="builtin", handlers={"NEG": replace(builtin("NEG"))})
    told = suspects(host.bind(read(model.build()), TARGETS["generic"], 18))
    assert [where for where, _ in told.values()] == ["op 1 NEG v1 'one'"]
    assert [problem.where for problem in accused("here", told).problems] == ["op 1 NEG v1 'one'"]
