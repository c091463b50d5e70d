"""Options are checked before conversion and change the target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import onnx_tflite_plugin as otp
import onnx_tflite_plugin.verify
from conformance.models import Net, tensor
from onnx_tflite_plugin.api import Instance, builtin
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.target_options import target_of
from onnx_tflite_plugin.targets import TARGETS, Target
from tests.helpers.pack_files import unary_model


def resolve_target(**options: Any) -> Target:
    return target_of(ConvertOptions(**options), Host())


@pytest.mark.parametrize("name", TARGETS)
def test_target_accepts_opsets_within_its_range(name: str) -> None:
    low, _, high = TARGETS[name].opsets
    assert resolve_target(target=name, opset=low).opsets == resolve_target(target=name, opset=high).opsets
    for opset in (low - 1, high + 1):
        with pytest.raises(UnsupportedOption, match=f"--opset {opset}: target {name} supports opsets {low} to {high}"):
            resolve_target(target=name, opset=opset)


@pytest.mark.parametrize("shape", [[1, "n", 3], (2, 5), ["batch"]])
def test_dimension_is_a_number_or_a_name(shape: Any) -> None:
    assert resolve_target(input_shape={"x": shape}) == resolve_target()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_weights_dtype_needs_a_target_that_saturates(dtype: str) -> None:
    for name, target in TARGETS.items():
        if target.may_saturate:
            assert resolve_target(target=name, weights_dtype=dtype).name == name
        else:
            with pytest.raises(UnsupportedOption, match="has one dtype for weights"):
                resolve_target(target=name, weights_dtype=dtype)


def test_keep_converts_only_int2_weights() -> None:
    assert {*resolve_target().weights} > {"int2"}
    assert {*resolve_target(weights_dtype="keep").weights} == {"int2"}


@pytest.mark.parametrize(
    ("options", "rounds", "dynamic"),
    [
        ({}, True, True),
        ({"optimize": "none"}, True, True),
        ({"optimize": "speed"}, False, True),
        ({"weights": "fold"}, False, False),
        ({"quantization": "float"}, False, False),
    ],
)
def test_activations_are_rounded_unless_speed_or_float_is_requested(
    options: dict[str, Any], rounds: bool, dynamic: bool
) -> None:
    target = resolve_target(**options)
    assert (target.rounds_activations, target.fast_dynamic_quantization) == (rounds, dynamic)


@pytest.mark.parametrize("opset", [13, 17, None])
def test_handlers_get_requested_opset_or_targets_newest(opset: int | None) -> None:
    opsets: list[int] = []

    def record_opset(at: Instance) -> None:
        opsets.append(at.opset)

    net = Net()
    net.output(net.call("NEG", [tensor(2, 3)], tensor(2, 3)))
    host = Host(packs="builtin", handlers={"NEG": replace(builtin("NEG"), accepts=record_opset)})
    convert(net.build(), host=host, opset=opset)
    assert {*opsets} == {opset or TARGETS["generic"].opsets[2]}


def test_verification_uses_the_packs_of_the_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[Host] = []
    verify = onnx_tflite_plugin.verify.verify

    def record_host(*models: Any, host: Host, **options: Any) -> Any:
        hosts.append(host)
        return verify(*models, host=host, **options)

    monkeypatch.setattr(onnx_tflite_plugin.verify, "verify", record_host)
    otp.convert(unary_model("ABS"), packs="builtin", verify=True)
    otp.convert(unary_model("ABS"), block=["a-pack"], verify=True)
    assert [host.allowed_packs for host in hosts] == [{BUILTIN}, None]
    assert [host.block for host in hosts] == [set(), {"a-pack"}]
