"""Attention over caches as one operator: models, layouts, and LiteRT's tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.language_model import Sizes, feeds, language_model
from onnx_tflite_plugin import VerifyOptions, convert
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT

SIZES = [Sizes("rows"), Sizes("columns"), Sizes("rows", window=7)]
NAMES = ["rows", "columns", "window"]
RUN_SIZES = [*SIZES[:2], pytest.param(SIZES[2], marks=pytest.mark.needs("onnxruntime", "1.24", "windows of attention"))]


def convert_model(sizes: Sizes, signature: str, **options: Any) -> Conversion:
    return convert(language_model(sizes), signature=signature, **{"attention": "causal", **options})


@pytest.mark.parametrize("signature", ["prefill_5", "decode"])
@pytest.mark.parametrize("sizes", RUN_SIZES, ids=NAMES)
def test_verify_gives_consecutive_positions_and_causal_masks(sizes: Sizes, signature: str) -> None:
    conversion = convert_model(sizes, signature, verify=VerifyOptions(runs=3))
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert conversion.report.fused["CACHED_ATTENTION"] == (2 if signature == "decode" else 1)


@pytest.mark.parametrize("sizes", SIZES, ids=NAMES)
def test_greedy_tokens_equal_litert(sizes: Sizes) -> None:
    data = language_model(sizes)
    prompt_tokens = np.array([[3, 17, 5, 23, 11]], np.int32)

    def generate(run: Any) -> list[int]:
        caches = run("prefill_5", feeds(sizes, {"tokens": prompt_tokens}, 0), {})
        token, tokens = prompt_tokens[:, -1:], []
        for position in range(sizes.length - 1, sizes.slots - 1):
            caches = run("decode", feeds(sizes, {"tokens": token}, position), caches)
            token = caches.pop("logits").argmax(axis=-1).astype(np.int32)
            tokens.append(int(token.item()))
        return tokens

    def litert(signature: str, inputs: dict[str, Array], caches: dict[str, Array]) -> dict[str, Array]:
        model = LiteRT(data, signature=signature)
        shapes = zip(model.entry.input_names, model.entry.inputs, strict=True)
        zeros = {name: np.zeros(x.shape, np.float32) for name, x in shapes if name.startswith("kv")}
        return dict(zip(model.entry.output_names, model.run({**zeros, **caches, **inputs}), strict=True))

    def onnx(signature: str, inputs: dict[str, Array], caches: dict[str, Array]) -> dict[str, Array]:
        model = OnnxRuntime(convert_model(sizes, signature).proto)
        zeros = {
            x.name: np.zeros([n.dim_value for n in x.type.tensor_type.shape.dim], np.float32)
            for x in model.inputs
            if x.name.startswith("kv")
        }
        results = model.run({**zeros, **caches, **inputs})
        return {x.name.removesuffix(":next"): y for x, y in zip(model.outputs, results, strict=True)}

    assert generate(onnx) == generate(litert)


@pytest.mark.parametrize("sizes", SIZES, ids=NAMES)
def test_caches_of_all_signatures_need_no_transpose(sizes: Sizes) -> None:
    for signature in ("prefill_5", "decode"):
        report = convert_model(sizes, signature).report
        shapes = {tuple(x.shape) for x in (*report.inputs, *report.outputs) if x.name.startswith("kv")}
        assert shapes == {(1, sizes.groups, sizes.slots, sizes.depth)}
        if signature == "decode":
            assert "Transpose" not in report.nodes


def test_attention_of_the_file_is_the_default() -> None:
    report = convert(language_model(SIZES[0]), signature="decode").report
    assert "CACHED_ATTENTION" not in report.fused
    assert {tuple(x.shape) for x in report.inputs if x.name.startswith("kv")} == {(1, 19, 2, 8)}


def test_sliding_window_becomes_an_attribute() -> None:
    nodes = [n for n in convert_model(SIZES[2], "decode").proto.graph.node if n.op_type == "GroupQueryAttention"]
    assert [a.i for n in nodes for a in n.attribute if a.name == "local_window_size"] == [7, 7]


@pytest.mark.parametrize(("sizes", "warned"), [(SIZES[0], False), (SIZES[2], True)], ids=["all", "window"])
def test_window_that_needs_a_newer_onnx_runtime_causes_warning(sizes: Sizes, warned: bool) -> None:
    warnings = convert_model(sizes, "decode").report.warnings
    assert any("needs ONNX Runtime 1.24" in warning for warning in warnings) == warned


@pytest.mark.parametrize(
    ("sizes", "options", "reason"),
    [
        (replace(SIZES[0], depth=12), {}, "the head size, 12, is not a multiple of 8"),
        (SIZES[0], {"target": "generic", "opset": 19}, "needs opset 24"),
    ],
    ids=["heads", "opset"],
)
def test_unreplaced_attention_is_reported_with_the_reason(sizes: Sizes, options: Any, reason: str) -> None:
    conversion = convert_model(sizes, "decode", **options)
    assert any(reason in warning for warning in conversion.report.warnings)
    assert {tuple(x.shape) for x in conversion.report.inputs if x.name.startswith("kv")} == {(1, 19, 2, sizes.depth)}


def test_model_without_attention_over_caches_is_reported() -> None:
    data = language_model(replace(SIZES[0], layers=0))
    warnings = convert(data, signature="decode", attention="causal").report.warnings
    assert any("no attention over a cache was recognized" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("options", "opset"),
    [({}, 24), pytest.param({"opset": 26}, 26, marks=pytest.mark.needs("onnx", "1.21", "opset 26"))],
    ids=["default", "26"],
)
def test_report_says_why_standard_operators_raise_the_opset(options: Any, opset: int) -> None:
    report = convert_model(SIZES[0], "decode", target="generic", **options).report
    assert report.opset == opset
    assert any(f"opset {opset}, because attention over a cache needs TensorScatter" in x for x in report.warnings)
    assert convert(language_model(SIZES[0]), signature="decode", target="generic").report.opset == 19


@pytest.mark.needs("onnxruntime", "1.25", "TensorScatter")
@pytest.mark.parametrize("signature", ["prefill_5", "decode", "all"])
@pytest.mark.parametrize("sizes", SIZES, ids=NAMES)
def test_standard_operators_agree_with_litert(sizes: Sizes, signature: str) -> None:
    conversion = convert_model(sizes, signature, target="generic", verify=VerifyOptions(runs=3))
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert conversion.report.nodes["Attention"] == (1 if signature == "prefill_5" else 2)


@pytest.mark.needs("onnxruntime", "1.25", "TensorScatter")
def test_sessions_generate_the_same_tokens_with_either_operator() -> None:
    prompt_tokens = [3, 17, 5, 23, 11]
    com_microsoft, standard = (
        Session(convert_model(SIZES[1], "all", target=name)) for name in ("onnxruntime", "generic")
    )
    assert standard.generate(prompt_tokens, 8) == com_microsoft.generate(prompt_tokens, 8)


@pytest.mark.parametrize("target", ["portable", "openvino"])
def test_target_without_the_operator_is_refused(target: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"target {target} has no operator for attention over a cache"):
        convert_model(SIZES[0], "decode", target=target)
