"""Opsets below 13 give the results of opset 13, or an error with the opset."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.models import Net, between_convolutions, tensor
from conformance.runner import CaseTrial, Runs
from conformance.variants import Variant
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host

OLDEST = 11
EVERY = 40
"""The suite runs one of this many cases; the first one differs by target."""

CASES = [case for case in builtin_cases() if case.expects_success and not {"opset", "target"} & case.options.keys()]


def is_equal(first: Runs, second: Runs) -> bool:
    return all(
        np.array_equal(array, other_array, equal_nan=array.dtype.kind in "fc")
        for run, other_run in zip(first, second, strict=True)
        for array, other_array in zip(run, other_run, strict=True)
    )


def check_older_opset(case: Case, target: str, host: Host) -> str:
    """Return the difference from the results of opset 13.

    It is empty if the results are equal, or if one of the two opsets is refused.
    """
    trial = CaseTrial(case, host)
    try:
        newer = trial.convert(Variant(target, 13, "least"))
    except ConversionError:
        return ""
    try:
        older = trial.convert(Variant(target, OLDEST, "least"))
    except ConversionError as error:
        return "" if "needs opset 1" in str(error) else str(error)
    opsets = {opset_import.domain: opset_import.version for opset_import in older.proto.opset_import}
    if opsets[""] != OLDEST or older.proto.ir_version != 6:
        return f"opset {opsets['']}, IR version {older.proto.ir_version}"
    if has_double_clip(older.proto):
        return ""
    return "" if is_equal(trial.run(older), trial.run(newer)) else "other results than with opset 13"


def has_double_clip(proto: onnx.ModelProto) -> bool:
    """True for a Clip of float64, which ONNX Runtime runs only from opset 12 on."""
    inferred_graph = onnx.shape_inference.infer_shapes(proto).graph
    doubles = {
        value.name for value in inferred_graph.value_info if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    }
    doubles |= {
        value.name for value in inferred_graph.input if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    }
    return any(node.op_type == "Clip" and node.input[0] in doubles for node in inferred_graph.node)


@pytest.mark.parametrize(("target", "first"), [("generic", 7), ("portable", 23)])
def test_oldest_opset_has_the_results_of_opset_13(target: str, first: int, thorough: bool) -> None:
    host = Host(packs="builtin")
    selected = CASES if thorough else CASES[first::EVERY]
    wrong = {case.id: text for case in selected if (text := check_older_opset(case, target, host))}
    assert wrong == {}


def test_softmax_before_opset_13_uses_the_last_axis() -> None:
    """Before opset 13, Softmax flattens its axis with all later ones.

    Between convolutions, the channel axis is not the last axis.
    """
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
    with pytest.raises(ConversionError, match=r"op 0 MINIMUM(.|\n)*Min of int32 needs opset 12(.|\n)*opset=12"):
        convert(net.build(), target="portable", opset=OLDEST)
    assert convert(net.build(), target="portable", opset=12).model.opset_imports[""] == 12
