"""Test opsets below 13: the results of opset 13, or an error with the operator and the required opset."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from conformance.case import Case
from conformance.cases import builtin
from conformance.models import Net, between_convolutions, tensor
from conformance.runner import CaseTrial, Runs
from conformance.variants import Variant
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host

OLDEST = 11
EVERY = 40
"""Cases of which the suite tries one; the first of them differs by target."""

CASES = [case for case in builtin() if case.counts and not {"opset", "target"} & case.options.keys()]


def is_equal(some: Runs, others: Runs) -> bool:
    return all(
        np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
        for run, other_run in zip(some, others, strict=True)
        for one, other in zip(run, other_run, strict=True)
    )


def check_older_opset(case: Case, target: str, host: Host) -> str:
    """Return the difference from opset 13; empty if there is none, or if opset 13 or the older one is refused."""
    trial = CaseTrial(case, host)
    try:
        wanted = trial.convert(Variant(target, 13, "least"))
    except ConversionError:
        return ""
    try:
        found = trial.convert(Variant(target, OLDEST, "least"))
    except ConversionError as error:
        return "" if "needs opset 1" in str(error) else str(error)
    opsets = {one.domain: one.version for one in found.proto.opset_import}
    if opsets[""] != OLDEST or found.proto.ir_version != 6:
        return f"opset {opsets['']}, IR version {found.proto.ir_version}"
    if has_double_clip(found.proto):
        return ""
    return "" if is_equal(trial.run(found), trial.run(wanted)) else "other results than with opset 13"


def has_double_clip(proto: onnx.ModelProto) -> bool:
    """Return True for a Clip of float64, of which ONNX Runtime has a kernel only from opset 12 on."""
    kept = onnx.shape_inference.infer_shapes(proto).graph
    doubles = {value.name for value in kept.value_info if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE}
    doubles |= {value.name for value in kept.input if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE}
    return any(node.op_type == "Clip" and node.input[0] in doubles for node in kept.node)


@pytest.mark.parametrize(("target", "first"), [("generic", 7), ("portable", 23)])
def test_oldest_opset_has_the_results_of_opset_13(target: str, first: int, thorough: bool) -> None:
    host = Host(packs="builtin")
    chosen = CASES if thorough else CASES[first::EVERY]
    wrong = {case.id: text for case in chosen if (text := check_older_opset(case, target, host))}
    assert wrong == {}


def test_softmax_before_opset_13_uses_the_last_axis() -> None:
    """Before opset 13, Softmax flattens its axis and all later ones; between convolutions, channels are not last."""
    for op in ("SOFTMAX", "LOG_SOFTMAX"):
        case = between_convolutions(op, "inner axis", [tensor(2, 5, 7, 3)], tensor(2, 5, 7, 3))
        trial = CaseTrial(case, Host(packs="builtin"))
        old, new = (trial.convert(Variant("generic", opset, "least")) for opset in (OLDEST, 13))
        assert is_equal(trial.run(old), trial.run(new))
        inner = [node.attributes["axis"].as_int() for node in new.model.graph if node.op_type.endswith("Softmax")]
        assert inner == [1]


def test_names_an_operator_of_a_newer_opset() -> None:
    net = Net()
    x = tensor(2, 3, dtype="int32")
    net.output(net.call("MINIMUM", [x, x], tensor(2, 3, dtype="int32")))
    with pytest.raises(ConversionError, match=r"op 0 MINIMUM(.|\n)*Min of int32 needs opset 12(.|\n)*--opset 12"):
        convert(net.build(), target="portable", opset=OLDEST)
    assert convert(net.build(), target="portable", opset=12).model.opset_imports[""] == 12
