"""Verification of models with operators that no kernel computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.cases.control.branches import if_case, pass_through
from conformance.cases.custom import lists
from conformance.models import Net, tensor
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.times.bench import bench
from tests.helpers.command import Run
from tests.helpers.shrink_models import CODE, network, shrink_handler, verify_model


@pytest.mark.parametrize("partial", [False, True])
def test_missing_kernel_makes_the_verdict_inconclusive(partial: bool) -> None:
    result = verify_model(network(), shrink_handler(kernel=None), partial=partial)
    assert (result.verdict, result.ok) == ("inconclusive", partial)
    assert len(result.comparisons) == 2
    assert result.text.startswith(f"inconclusive: LiteRT has no kernel for {CODE} (1), and no op pack declares one")
    assert "lower of inline declares no reference kernel; write the operator in NumPy" in result.text


def test_compares_operators_after_the_missing_kernel() -> None:
    data = network(has_earlier_output=False)
    host = Host(handlers={CODE: shrink_handler(kernel=None)})
    proto = otp.convert(data, host=host, weights="keep").proto
    last = max(k for k, node in enumerate(proto.graph.node) if node.op_type == "Conv")
    weights = next(w for w in proto.graph.initializer if w.name == proto.graph.node[last].input[1])
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * 2, weights.name))
    assert not otp.verify(data, proto, host=host, partial=True).ok


def test_verdict_is_inconclusive_if_nothing_can_be_compared() -> None:
    result = verify_model(network(is_output=True, has_earlier_output=False), shrink_handler(kernel=None))
    assert (result.verdict, result.comparisons) == ("inconclusive", ())
    assert "no operator remains to compare" in result.text


def test_skips_operators_up_to_the_next_known_value() -> None:
    data, host = network(), Host(handlers={CODE: shrink_handler(kernel=None)})
    proto = otp.convert(data, host=host).proto
    (missing_operator,) = (op for op in structure.read(data).main.operators if op.code == CODE)
    infos = {read_tensor(info.name, props(info.metadata_props)): info for info in proto.graph.value_info}
    (info,) = (
        info for value, info in infos.items() if value is not None and value.tensor == missing_operator.outputs[0].index
    )
    del info.metadata_props[:]
    result = otp.verify(data, proto, host=host)
    assert result.verdict == "inconclusive"
    assert f"no kernel for {CODE} (1)" in result.text
    assert len(result.comparisons) == 1


def test_omits_outputs_that_are_not_compared() -> None:
    result = verify_model(network(is_output=True), shrink_handler(kernel=None), partial=True)
    assert [comparison.name for comparison in result.comparisons] == ["y0"]


def test_convert_accepts_partial() -> None:
    host = Host(handlers={CODE: shrink_handler(kernel=None)})
    conversion = otp.convert(network(), host=host, verify=VerifyOptions(partial=True))
    assert conversion.verification is not None
    assert conversion.verification.ok


def test_command_accepts_verify_partial(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "known.tflite"
    net = Net()
    net.output(net.call("NEG", [tensor(2, 3)], tensor(2, 3)))
    path.write_bytes(net.build())
    assert run("convert", path, "--verify=partial").code == 0
    assert run("convert", "--verify=partial", path).code == 0
    assert run("convert", "--verify=half", path).code == 2
    assert run("verify", path, path.with_suffix(".onnx"), "--partial").code == 0


def test_reports_a_missing_kernel_in_a_called_subgraph() -> None:
    def add_shrink(graph: Any, refs: Any) -> list[Any]:
        result = graph.tensor("shrink_array", (2, 3))
        graph.operator(CODE, [refs[0]], [result], custom_options={"by": 0.25})
        return [result]

    case = if_case("shrink_array", [tensor(2, 3)], [add_shrink, pass_through])
    result = verify_model(case.build(), shrink_handler())
    assert result.verdict == "inconclusive"
    assert "LiteRT has no kernel for IF (1), and no op pack declares one" in result.text


def test_benchmark_without_a_reference_is_an_error() -> None:
    with pytest.raises(
        VerificationError, match=rf"^LiteRT has no kernel for {CODE}, so there is no reference to compare with"
    ):
        bench(network(), otp.convert(network(), host=Host(handlers={CODE: shrink_handler()})).proto)


def test_operator_with_only_a_tensorflow_kernel_is_inconclusive() -> None:
    """LiteRT has its own message for such an operator, about linking TensorFlow."""
    case = next(case for case in lists.cases() if case.id == "CUSTOM.FlexTensorListReserve-two_elements_of_(2,_3)")
    data = case.build()
    assert otp.convert(data)
    verification = otp.convert(data, verify=True).verification
    assert verification is not None
    assert verification.verdict == "inconclusive"
    assert "no kernel for CUSTOM.FlexTensorListReserve (1)" in verification.text
