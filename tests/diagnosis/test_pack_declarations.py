"""If the converter fails on a pack's declarations, the error names the handler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.api import Attribute, Context, Value, builtin, handler
from onnx_tflite_plugin.binding.consistency import check_consistency
from onnx_tflite_plugin.diagnosis.packs import attribute_to_packs, pack_declarations
from onnx_tflite_plugin.errors import ConversionError, HandlerError, InvalidModel
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS


def test_pack_handler_is_named_with_its_first_operator() -> None:
    model = Net()
    x = model.input(tensor(2, 3))
    for name in ("one", "two"):
        x = model.call("NEG", [model.call("ABS", [x], tensor(2, 3))], tensor(2, 3, name=name))
    model.output(x)
    host = Host(packs="builtin", handlers={"NEG": replace(builtin("NEG"))})
    reported = pack_declarations(host.bind(read(model.build()), TARGETS["generic"], 18))
    assert [facts.label for facts in reported.values()] == ["op 1 NEG v1 'one'"]
    assert [problem.where for problem in attribute_to_packs("here", reported).problems] == ["op 1 NEG v1 'one'"]


@pytest.mark.parametrize(("rank", "error"), [(4, HandlerError), (2, InvalidModel)])
def test_contradiction_of_built_in_handler_is_attributed_to_file(rank: int, error: type[ConversionError]) -> None:
    """A pack's handler uses a float as axis number before a pooling operator.

    The operand of the pooling has four axes, or two.
    """
    shape = tensor(*(2, 3, 5, 7)[-rank:])
    model = Net()
    x = model.call("CUSTOM.Mine", [shape, constant(np.float32(1))], shape)
    window = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1, "padding": "VALID"}
    model.output(model.call("MAX_POOL_2D", [x], shape, **window))

    @handler("CUSTOM.Mine", max_version=1, layout=Attribute(), axis_number_slots={1})
    def lower(ctx: Context, x: Value, axis: Value) -> Value:
        raise NotImplementedError

    bound = Host(packs="builtin", handlers={"CUSTOM.Mine": lower}).bind(read(model.build()), TARGETS["generic"], 18)
    with pytest.raises(ConversionError) as raised:
        check_consistency(bound, TARGETS["generic"], 18)
    assert type(raised.value) is error
    assert any("according to the declarations of handler" in problem.reason for problem in raised.value.problems)
