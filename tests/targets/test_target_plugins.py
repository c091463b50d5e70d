"""Targets are plugins: a pack's target works like a built-in one."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.cli import cli
from onnx_tflite_plugin.errors import HandlerError, UnsupportedOption
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import TARGETS as GROUP
from onnx_tflite_plugin.host.offers import discover
from onnx_tflite_plugin.targets import TARGETS
from tests.helpers.pack_files import install

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
SOURCE = """
from dataclasses import replace

from onnx_tflite_plugin.api import Call, Target, Transparent, builtin_target, fusion, operands

NPU = replace(
    builtin_target("generic"),
    name="npu",
    opsets=(13, 17, 21),
    storage={"int8": ("uint8", 128)},
    missing_operators={"Tanh": "use --outputs"},
)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a pack with the target ``npu``; return its folder."""
    install_targets(tmp_path / "site", "npu-pack", "npu_pack", SOURCE, "npu = npu_pack:NPU")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def install_targets(folder: Path, pack: str, module: str, source: str, entry_points: str) -> None:
    """Install a pack with these entry points of targets."""
    install(folder, pack, module, source, f"[onnx_tflite_plugin.targets]\n{indent(entry_points, '')}\n")


def small_network() -> bytes:
    """Return a model of two int8 ADDs of a constant."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3, 5), "int8", quantization=quant(0.05, 3))
    inner = g.tensor("inner", (3, 5), "int8", quantization=quant(0.04, -7))
    y = g.tensor("y", (3, 5), "int8", quantization=quant(0.05, 3))
    c = g.constant("c", np.arange(5, dtype=np.int8), quantization=quant(0.02, 0))
    g.operator("ADD", [x, c], [inner])
    g.operator("ADD", [inner, c], [y])
    g.output(y)
    return model.build()


def test_built_in_targets_are_entry_points() -> None:
    assert {offer.code for offer in discover() if offer.group == GROUP} >= set(TARGETS)
    assert {name: target for name, pack, target in Host(packs="builtin").targets} == TARGETS


def test_target_of_a_pack_decides_opset_and_dtypes(site: Path) -> None:
    conversion = otp.convert(small_network(), target="npu")
    assert conversion.report.target == "npu"
    assert conversion.report.opset == 17
    assert conversion.report.storage == {"int8 stored as uint8": 4}
    assert otp.convert(small_network(), target="generic").report.storage == {}


def test_target_of_a_pack_is_verified(site: Path) -> None:
    verification = otp.convert(small_network(), target="npu", verify=True).verification
    assert verification is not None
    assert verification.ok


def test_operators_that_the_target_lacks_are_refused(site: Path) -> None:
    model = ModelBuilder()
    x, y = model.main.input("x", (3, 5)), model.main.tensor("y", (3, 5))
    model.main.operator("TANH", [x], [y])
    model.main.output(y)
    with pytest.raises(otp.ConversionError, match=r"Tanh(.|\n)*use outputs"):
        otp.convert(model.build(), target="npu")


CONTRIB = """
from onnx_tflite_plugin.api import Context, NotQuantizable, Transparent, Value, handler

@handler("CUSTOM.Gelu", max_version=1, layout=Transparent(), quantization=NotQuantizable(), types="float32 -> float32")
def gelu(ctx: Context, x: Value) -> Value:
    \"\"\"Emit ONNX Runtime's own Gelu.\"\"\"
    return ctx.ops.domain("com.microsoft").Gelu(x)
"""


@pytest.mark.parametrize("target", ["onnxruntime", "generic", "portable", "npu"])
def test_operators_of_onnx_runtime_are_refused_by_targets_that_lack_them(site: Path, target: str) -> None:
    install(site, "gelu-pack", "gelu_pack", CONTRIB, "[onnx_tflite_plugin.handlers]\nCUSTOM.Gelu = gelu_pack:gelu\n")
    model = ModelBuilder()
    x, y = model.main.input("x", (3, 5)), model.main.tensor("y", (3, 5))
    model.main.operator("CUSTOM.Gelu", [x], [y])
    model.main.output(y)
    if target == "onnxruntime":
        assert otp.convert(model.build(), target=target).report.nodes == {"com.microsoft.Gelu": 1}
        return
    with pytest.raises(
        otp.ConversionError, match=rf"target {target} has no com\.microsoft\.Gelu(.|\n)*block=\['gelu-pack'\]"
    ):
        otp.convert(model.build(), target=target)


def test_command_lists_and_accepts_the_target(site: Path, tmp_path: Path) -> None:
    targets = json.loads(CliRunner().invoke(cli, ["handlers", "--json"]).stdout)["targets"]
    assert {"name": "npu", "pack": "npu-pack", "opsets": [13, 17, 21], "error": ""} in targets
    assert "npu|" in CliRunner().invoke(cli, ["convert", "--help"]).stdout
    output = tmp_path / "digits.onnx"
    result = CliRunner().invoke(cli, ["convert", str(EXAMPLE), str(output), "--target", "npu"])
    assert result.exit_code == 0, result.output
    assert onnx.load(output).opset_import[0].version == 17


def test_unusable_target_is_a_problem_of_its_pack(site: Path) -> None:
    source = "from onnx_tflite_plugin.api import Target\n\ntpu = Target('tpuu', (13, 17, 21))\n"
    install(site, "tpu-pack", "tpu_pack", source, "[onnx_tflite_plugin.targets]\ntpu = tpu_pack:tpu\n")
    listed = CliRunner().invoke(cli, ["handlers", "--pack", "tpu-pack", "--json"])
    (pack,) = json.loads(listed.stdout)["packs"]
    assert [text for text in pack["wrong"] if "its target is named 'tpuu'" in text]
    assert listed.exit_code == 1


def test_unknown_target_names_the_installed_ones(site: Path) -> None:
    with pytest.raises(UnsupportedOption, match=r"only generic, npu, onnxruntime.*; did you mean 'npu'"):
        otp.convert(small_network(), target="npuu")


def test_blocked_pack_provides_no_target(site: Path) -> None:
    with pytest.raises(UnsupportedOption, match="there is no target 'npu'"):
        otp.convert(small_network(), target="npu", block=["npu-pack"])


def test_target_names_ignore_case() -> None:
    assert Host().targets.get("TensorRT").name == "tensorrt"


def test_two_packs_with_one_target_name_need_prefer(site: Path) -> None:
    install_targets(site, "other-pack", "other_pack", SOURCE.replace("17, 21", "18, 21"), "npu = other_pack:NPU")
    with pytest.raises(
        UnsupportedOption, match=r"npu-pack and other-pack each provide a target 'npu'.*prefer=\['npu-pack'\]"
    ):
        otp.convert(small_network(), target="npu")
    assert otp.convert(small_network(), target="npu", prefer=["other-pack"]).report.opset == 18


@pytest.mark.parametrize("name", ["onnxruntime", "generic"])
def test_target_named_like_a_built_in_one_is_skipped_and_reported(site: Path, name: str) -> None:
    thief = f"{SOURCE}\nT = replace(builtin_target({name!r}), opsets=(13, 14, 15))\n"
    install_targets(site, "thief-pack", "thief_pack", thief, f"{name} = thief_pack:T")
    reason = f"{name!r} is a built-in target; name the pack's target and its entry point differently"
    report = otp.convert(small_network(), target=name).report
    assert report.opset == TARGETS[name].opsets[1]
    assert [text for text in report.warnings if "thief-pack" in text] == [
        f"entry point {name} = thief_pack:T of thief-pack is unused: {reason}"
    ]
    assert otp.convert(small_network(), target=name, prefer=["thief-pack"]).report.opset == report.opset
    targets = json.loads(CliRunner().invoke(cli, ["handlers", "--json"]).stdout)["targets"]
    assert reason in [row["error"] for row in targets if row["pack"] == "thief-pack"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("3", "the int 3, not a Target"),
        (
            "fusion('IT', pattern=Call('ABS', (x := operands('x'))[0]), inputs=x, layout=Transparent())(lambda ctx, x: x)",
            "it is a Fusion, not a Target; move the entry point to onnx_tflite_plugin.fusions",
        ),
        (
            "builtin_target('generic')",
            "its target is named 'generic'; the entry point and the target must have the same name",
        ),
        ("replace(builtin_target('generic'), name='npu', opsets=(17, 13, 21))", "lowest, default and highest opset"),
        ("replace(builtin_target('generic'), name='npu', quantizes='int8')", "quantizes"),
        (
            "replace(builtin_target('generic'), name='npu', passes=('fold_with',))",
            "'fold_with'.*did you mean 'fold_width'",
        ),
        ("Target('npu')", "opsets"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_invalid_target_is_refused_with_the_reason(site: Path, target: str, reason: str) -> None:
    (site / "npu_pack.py").write_text(SOURCE + f"NPU = {target}\n")
    with pytest.raises(UnsupportedOption, match=f"target '?npu.*{reason}"):
        otp.convert(small_network(), target="npu")


PASS = """
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

class RenameGraph(InPlacePass):
    def call(self, model):
        model.graph.name = "renamed"
        return PassResult(model, True)

class RenameInput(InPlacePass):
    def call(self, model):
        model.graph.inputs[0].name = "renamed"
        return PassResult(model, True)

class MissAttribute(InPlacePass):
    def call(self, model):
        next(node for node in model.graph if node.op_type == "QuantizeLinear").op_type = "Concat"
        return PassResult(model, True)

class AddGelu(InPlacePass):
    def call(self, model):
        node = next(node for node in model.graph if node.op_type == "QuantizeLinear")
        model.graph.insert_before(node, ir.node("Gelu", [node.inputs[0]], domain="com.microsoft"))
        model.opset_imports["com.microsoft"] = 1
        return PassResult(model, True)

class Failing(InPlacePass):
    def call(self, model):
        raise ZeroDivisionError("no such thing")

NPU = replace(NPU, passes=("widen_constants", "npu_pack:{name}"))
"""


def test_target_can_use_a_pass_of_its_pack(site: Path) -> None:
    (site / "npu_pack.py").write_text(SOURCE + PASS.replace("{name}", "RenameGraph"))
    conversion = otp.convert(small_network(), target="npu")
    assert conversion.proto.graph.name == "renamed"
    assert conversion.report.passes == {"npu_pack:RenameGraph": 1}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Failing", "ZeroDivisionError: no such thing"),
        ("Failign", "npu_pack has no 'Failign'; did you mean 'Failing'?"),
        ("SOURCE", "not an onnx_ir"),
        ("RenameInput", r"it changed the graph's inputs, from 'x' int8 \[3, 5\] to 'renamed' int8 \[3, 5\]"),
        ("AddGelu", r"it added com\.microsoft\.Gelu, which target npu does not have"),
        ("MissAttribute", "it leaves an invalid model: .*Concat"),
    ],
)
def test_pass_that_fails_or_breaks_the_model_is_attributed_to_its_pack(site: Path, name: str, reason: str) -> None:
    (site / "npu_pack.py").write_text(SOURCE + "SOURCE = 3\n" + PASS.replace("{name}", name))
    with pytest.raises(HandlerError, match=rf"pass npu_pack:{name} of npu-pack failed: .*{reason}") as caught:
        otp.convert(small_network(), target="npu")
    assert "report the error to the authors of npu-pack" in str(caught.value)
    assert "bug in the converter" not in str(caught.value)


FINISH = """
import onnx_ir as ir
from onnx_tflite_plugin.api import Context, Transparent, Value, handler, hookimpl

@handler("CUSTOM.Same", max_version=1, layout=Transparent())
def same(ctx: Context, x: Value) -> Value:
    return ctx.ops.Relu(x)

@hookimpl
def finish(model):
    node = next(node for node in model.graph if node.op_type == "Relu")
    node.op_type, node.domain = "Gelu", "com.microsoft"
    model.opset_imports["com.microsoft"] = 1
"""


@pytest.mark.parametrize("code", ["CUSTOM.Same", "RELU"])
def test_finish_must_not_add_operators_that_the_target_lacks(site: Path, code: str) -> None:
    entries = "[onnx_tflite_plugin.hooks]\nfin = fin_pack\n[onnx_tflite_plugin.handlers]\nCUSTOM.Same = fin_pack:same\n"
    install(site, "fin-pack", "fin_pack", FINISH, entries)
    model = ModelBuilder()
    x, y = model.main.input("x", (3, 5)), model.main.tensor("y", (3, 5))
    model.main.operator(code, [x], [y])
    model.main.output(y)
    assert otp.convert(model.build(), target="onnxruntime").report.nodes == {"com.microsoft.Gelu": 1}
    reason = "hook finish of fin-pack failed: it added com.microsoft.Gelu, which target generic does not have"
    if code == "CUSTOM.Same":
        with pytest.raises(HandlerError, match=reason):
            otp.convert(model.build(), target="generic")
        return
    report = otp.convert(model.build(), target="generic").report
    assert report.nodes == {"Relu": 1}
    assert any(reason in text and "the hook is skipped" in text for text in report.warnings)
