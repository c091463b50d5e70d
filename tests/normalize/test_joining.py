"""Joining the signatures of a prompt and of a token, and what prevents it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from conformance.language_model import Sizes, causal_mask, feeds, language_model
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.errors import SignaturesDiffer, UnsupportedOption
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT

VARIANTS = [
    Sizes("rows"),
    Sizes("columns"),
    Sizes("rows", simplify_decode=True, layers=3),
    Sizes("columns", simplify_decode=True, layers=3),
]
NAMES = ["rows", "columns", "simplified rows", "simplified columns"]


@cache
def join(sizes: Sizes, **options: Any) -> Conversion:
    return convert(language_model(sizes), signature="all", **options)


def litert_scores(sizes: Sizes, tokens: list[int]) -> Array:
    """Return the scores of LiteRT's decode signature after each token."""
    model = LiteRT(language_model(sizes), signature="decode")
    shapes = zip(model.entry.input_names, model.entry.inputs, strict=True)
    caches = {name: np.zeros(x.shape, np.float32) for name, x in shapes if name.startswith("kv")}
    scores = []
    for position, token in enumerate(tokens):
        inputs = feeds(sizes, {"tokens": np.array([[token]], np.int32)}, position)
        caches = dict(zip(model.entry.output_names, model.run({**caches, **inputs}), strict=True))
        scores.append(caches.pop("logits").reshape(-1))
    return np.stack(scores)


@pytest.mark.parametrize("attention", ["file", "causal"])
@pytest.mark.parametrize("sizes", VARIANTS, ids=NAMES)
def test_scores_equal_litert_at_every_position_and_length(sizes: Sizes, attention: str) -> None:
    tokens = [3, 17, 5, 23, 11, 2, 29, 8, 0, 30, 4]
    expected = litert_scores(sizes, tokens)
    model = OnnxRuntime(join(sizes, attention=attention).proto)
    caches = {
        x.name: np.zeros([n.dim_value for n in x.type.tensor_type.shape.dim], np.float32)
        for x in model.inputs
        if x.name.startswith("kv")
    }
    start = 0
    for count in (3, 1, 1, 6):
        inputs = feeds(sizes, {"tokens": np.array([tokens[start : start + count]], np.int32)}, start)
        results = dict(zip([x.name for x in model.outputs], model.run({**caches, **inputs}), strict=True))
        np.testing.assert_allclose(results.pop("logits")[0], expected[start : start + count], rtol=1e-4, atol=1e-5)
        caches = {name.removesuffix(":next"): value for name, value in results.items()}
        start += count


@pytest.mark.parametrize("sizes", VARIANTS, ids=NAMES)
def test_verify_compares_both_signatures(sizes: Sizes) -> None:
    model = language_model(sizes)
    conversion = convert(model, signature="all", attention="causal", verify=VerifyOptions(runs=2))
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert conversion.verification.runs == 4
    names = {comparison.name.partition(" ")[0] for comparison in conversion.verification.comparisons}
    assert names == {"prefill_5", "decode"}
    assert "decode logits" in {comparison.name for comparison in conversion.verification.comparisons}


@pytest.mark.parametrize("sizes", VARIANTS, ids=NAMES)
def test_attention_of_all_layers_is_one_operator_each(sizes: Sizes) -> None:
    report = join(sizes, attention="causal").report
    assert report.fused["CACHED_ATTENTION"] == sizes.layers
    assert "Transpose" not in report.nodes
    assert report.signature_lengths == {"prefill_5": 5, "decode": 1}
    assert not report.other_signatures


def test_sequence_dimension_is_named_in_inputs_and_outputs() -> None:
    for attention in ("file", "causal"):
        report = join(VARIANTS[3], attention=attention).report
        shapes = {x.name: x.shape for x in (*report.inputs, *report.outputs)}
        assert shapes["tokens"] == (1, "sequence")
        assert shapes["input_pos"] == ("sequence",)
        assert shapes["mask"] == (1, 1, "sequence", 19)
        assert shapes["logits"] == (1, "sequence", 31)


def two_signatures(first: str, second: str, *, rows: tuple[int, int] = (1, 5)) -> bytes:
    """Return a model with the signatures ``decode`` and ``prefill``.

    Both have these operators between x and y; ``decode`` has one row by default.
    """
    model = ModelBuilder()
    for key, code, count in (("decode", first, rows[0]), ("prefill", second, rows[1])):
        g = model.main if key == "decode" else model.subgraph(key)
        x, y = g.input(f"{key}_x", (1, count, 4)), g.tensor(f"{key}_y", (1, count, 4))
        g.operator(code, [x], [y])
        g.output(y)
        model.signature(key, {"x": x}, {"y": y}, g.index)
    return model.build()


def mean_in_two_forms() -> bytes:
    """Return a model with two signatures that divide by a mean.

    Only the decode signature keeps the unit axis of the mean.
    """
    model = ModelBuilder()
    for key, count in (("decode", 1), ("prefill", 5)):
        g = model.main if key == "decode" else model.subgraph(key)
        x, y = g.input(f"{key}_x", (1, count, 7)), g.tensor(f"{key}_y", (1, count, 7))
        column = g.tensor(f"{key}_column", (1, count, 1))
        axes = g.constant(f"{key}_axes", np.array([2], np.int32))
        if key == "decode":
            g.operator("MEAN", [x, axes], [column], {"keep_dims": True})
        else:
            mean = g.tensor(f"{key}_mean", (1, count))
            g.operator("MEAN", [x, axes], [mean], {"keep_dims": False})
            g.operator("RESHAPE", [mean, g.constant(f"{key}_shape", np.array([1, count, 1], np.int32))], [column])
        g.operator("SUB", [x, column], [y])
        g.output(y)
        model.signature(key, {"x": x}, {"y": y}, g.index)
    return model.build()


def test_reductions_that_keep_an_axis_in_one_signature_are_joined() -> None:
    source = mean_in_two_forms()
    joined = OnnxRuntime(convert(source, signature="all").proto)
    for key, count in (("decode", 1), ("prefill", 5)):
        x = np.random.default_rng(count).normal(size=(1, count, 7)).astype(np.float32)
        (expected,), (result,) = LiteRT(source, signature=key).run({"x": x}), joined.run({"x": x})
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            two_signatures("NEG", "EXP"),
            "op 0 NEG v1 'decode_y': the corresponding operator in 'prefill' is subgraph 1 op 0 EXP v1 'prefill_y'",
        ),
        (two_signatures("NEG", "NEG", rows=(2, 5)), "only the signatures of a language model can be joined"),
        (two_signatures("NEG", "NEG", rows=(5, 5)), "only the signatures of a language model can be joined"),
    ],
    ids=["another operator", "two tokens", "equal sizes"],
)
def test_first_difference_is_reported(model: bytes, reason: str) -> None:
    with pytest.raises(SignaturesDiffer, match="convert each signature by its key") as raised:
        convert(model, signature="all")
    assert reason in str(raised.value)


def test_different_constants_prevent_joining() -> None:
    model = ModelBuilder()
    for key, count, added in (("decode", 1, 2.0), ("prefill", 5, 3.0)):
        g = model.main if key == "decode" else model.subgraph(key)
        x, y = g.input(f"{key}_x", (1, count, 4)), g.tensor(f"{key}_y", (1, count, 4))
        g.operator("ADD", [x, g.constant(f"{key}_added", np.array([added], np.float32))], [y])
        g.output(y)
        model.signature(key, {"x": x}, {"y": y}, g.index)
    with pytest.raises(SignaturesDiffer, match=r"operand 1, a constant, is \[2.0\], but \[3.0\] in"):
        convert(model.build(), signature="all")


@pytest.mark.parametrize(
    "options", [{"input_shape": {"tokens": [1, 4]}}, {"dynamic_batch": True}, {"outputs": ["logits"]}]
)
def test_options_for_one_signature_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SignaturesDiffer, match="applies to a single signature only"):
        convert(language_model(VARIANTS[0]), signature="all", **options)


def test_mask_input_has_one_row_per_token() -> None:
    model = OnnxRuntime(join(VARIANTS[1]).proto)
    mask = next(x for x in model.inputs if x.name == "mask")
    assert mask.type.tensor_type.shape.dim[2].dim_param == "sequence"
    assert causal_mask(VARIANTS[1], 0, 3).shape == (1, 1, 3, VARIANTS[1].slots)


@pytest.mark.parametrize("attention", ["file", "causal"])
@pytest.mark.parametrize("sizes", VARIANTS, ids=NAMES)
def test_logits_last_equals_the_last_row_of_logits_all(sizes: Sizes, attention: str) -> None:
    all_logits, last_logits = join(sizes, attention=attention), join(sizes, attention=attention, logits="last")
    assert next(x.shape for x in last_logits.report.outputs if x.name == "logits") == (1, 1, sizes.vocabulary)
    inputs = feeds(sizes, {"tokens": np.array([[3, 17, 5, 23]], np.int32)}, 0)
    results = []
    for conversion in (all_logits, last_logits):
        model = OnnxRuntime(conversion.proto)
        caches = {
            x.name: np.zeros([n.dim_value for n in x.type.tensor_type.shape.dim], np.float32)
            for x in model.inputs
            if x.name.startswith("kv")
        }
        outputs = dict(zip([x.name for x in model.outputs], model.run({**caches, **inputs}), strict=True))
        results.append(outputs["logits"])
    np.testing.assert_allclose(results[1], results[0][:, -1:], rtol=1e-5, atol=1e-6)


def test_logits_last_requires_signature_all() -> None:
    with pytest.raises(UnsupportedOption, match="add signature='all'"):
        convert(language_model(VARIANTS[0]), signature="decode", logits="last")


def test_joining_needs_two_signatures() -> None:
    model = ModelBuilder()
    x = model.main.input("x", (2, 3))
    model.main.operator("EXP", [x], [y := model.main.tensor("y", (2, 3))])
    model.main.output(y)
    with pytest.raises(UnsupportedOption, match="signature='all': the file has 0 signatures; leave the option out"):
        convert(model.build(), signature="all")
