"""Sessions of language models: caches are states, tokens equal LiteRT's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.language_model import Sizes, causal_mask, feeds, language_model
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.source.model import Array

ROWS, COLUMNS = Sizes("rows"), Sizes("columns")
TOKENS = [3, 17, 5, 23, 11, 2, 29]


def session(sizes: Sizes, signature: str, attention: str = "causal", *, logits: str = "all", **options: Any) -> Session:
    model = otp.convert(language_model(sizes), signature=signature, attention=attention, logits=logits)  # type: ignore[arg-type]
    return Session(model, **options)


def litert_tokens(sizes: Sizes, tokens: list[int], count: int) -> list[int]:
    """Return the tokens that LiteRT generates greedily with the decode signature."""
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(model_content=language_model(sizes)).get_signature_runner("decode")
    details = run.get_input_details()
    caches = {name: np.zeros(detail["shape"], np.float32) for name, detail in details.items() if name.startswith("kv")}
    result = list(tokens)
    for position in range(len(tokens) + count - 1):
        step_feeds = {"tokens": np.array([[result[position]]], np.int32)}
        caches = run(**caches, **feeds(sizes, step_feeds, position))
        scores = caches.pop("logits")
        if position >= len(tokens) - 1:
            result.append(int(scores.argmax()))
    return result[len(tokens) :]


@pytest.mark.parametrize("attention", ["file", "causal"])
@pytest.mark.parametrize(
    "sizes",
    [
        ROWS,
        COLUMNS,
        pytest.param(Sizes("rows", window=7), marks=pytest.mark.needs("onnxruntime", "1.24", "windows of attention")),
    ],
    ids=["rows", "columns", "window"],
)
def test_greedy_tokens_match_litert(sizes: Sizes, attention: str) -> None:
    expected = litert_tokens(sizes, TOKENS, 12)
    assert session(sizes, "decode", attention).generate(TOKENS, 12) == expected
    prompt_session = session(sizes, "prefill_5", attention)
    decode = session(sizes, "decode", attention, states_of=prompt_session)
    assert decode.generate(TOKENS, 12, prefill=prompt_session) == expected
    assert decode.generate(TOKENS, 12, prefill=prompt_session) == expected  # old slots are not attended to


def test_prompt_session_of_dynamic_length_runs_the_prompt_once() -> None:
    shapes = {"tokens": (1, "T"), "input_pos": ("T",), "mask": (1, 1, "T", COLUMNS.slots)}
    prompt_session = Session(otp.convert(language_model(COLUMNS), signature="prefill_5", input_shape=shapes))
    decode = session(COLUMNS, "decode", "file", states_of=prompt_session)
    assert decode.generate(TOKENS, 12, prefill=prompt_session) == litert_tokens(COLUMNS, TOKENS, 12)


@pytest.mark.parametrize("logits", ["all", "last"])
@pytest.mark.parametrize("attention", ["file", "causal"])
@pytest.mark.parametrize("sizes", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_joined_signatures_generate_litert_tokens(sizes: Sizes, attention: str, logits: str) -> None:
    joined_session = session(sizes, "all", attention, logits=logits)
    expected = litert_tokens(sizes, TOKENS, 12)
    assert joined_session.generate(TOKENS, 12) == expected
    assert joined_session.generate(TOKENS, 3) == expected[:3]
    assert joined_session.generate(expected[2:4], 8, start=len(TOKENS) + 2) == expected[4:]


def test_caches_keep_their_memory_if_written_in_place() -> None:
    decode = session(ROWS, "decode")
    assert [port.name for port in decode.inputs] == ["tokens", "input_pos"]
    assert [port.name for port in decode.outputs] == ["logits"]
    decode.generate([1], 1)
    before = {name: value.data_ptr() for name, value in decode._states.items()}
    decode.generate([2], 3, start=1)
    assert {name: value.data_ptr() for name, value in decode._states.items()} == before


def test_caches_can_be_saved_restored_and_reset() -> None:
    decode = session(ROWS, "decode")
    expected = litert_tokens(ROWS, TOKENS, 6)
    assert decode.generate(TOKENS, 3) == expected[:3]
    saved_states = decode.save()
    assert decode.generate(expected[2:3], 3, start=len(TOKENS) + 2) == expected[3:]
    second_stream = decode.stream()
    second_stream.restore(saved_states)
    assert second_stream.generate(expected[2:3], 3, start=len(TOKENS) + 2) == expected[3:]
    decode.reset()
    assert not any(array.any() for array in decode.save().values())


def test_streams_do_not_share_caches() -> None:
    decode_session = session(ROWS, "decode")
    decode_session.generate(TOKENS, 1)
    saved_states = decode_session.save()
    decode_session.stream().generate([7, 7, 7], 4)
    for name, array in decode_session.save().items():
        np.testing.assert_array_equal(array, saved_states[name])


def test_stop_token_ends_the_result() -> None:
    expected = litert_tokens(ROWS, TOKENS, 12)
    assert (
        session(ROWS, "decode").generate(TOKENS, 12, stop=[expected[4]]) == expected[: expected.index(expected[4]) + 1]
    )


@pytest.mark.parametrize("start", [0, 5])
def test_rejects_more_tokens_than_cache_slots(start: int) -> None:
    decode = session(ROWS, "decode")
    max_tokens = ROWS.slots - start - len(TOKENS) + 1
    assert len(decode.generate(TOKENS, max_tokens, start=start)) == max_tokens
    with pytest.raises(ValueError, match=f"{max_tokens + 1} generated tokens exceed the 19 slots of the caches"):
        decode.generate(TOKENS, max_tokens + 1, start=start)


def test_generate_rejects_other_models() -> None:
    digits = Session(otp.convert(Path(__file__).parents[2] / "examples" / "digits_int8.tflite"))
    with pytest.raises(ValueError, match=r"a language model, .*; this model's inputs are 'image'"):
        digits.generate([1], 1)
    with pytest.raises(ValueError, match="and scores as its only output"):
        session(ROWS, "prefill_5").generate([1], 1)


def test_rejects_a_prompt_session_with_different_caches() -> None:
    with pytest.raises(ValueError, match="have different caches"):
        session(ROWS, "decode").generate(TOKENS, 1, prefill=session(ROWS, "prefill_5"))


@pytest.mark.parametrize("sizes", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_run_takes_all_inputs_except_caches(sizes: Sizes) -> None:
    mask: dict[str, Array] = {"mask": causal_mask(sizes, 0, 1)} if sizes.cache_layout == "columns" else {}
    outputs = session(sizes, "decode").run({"tokens": [[3]], "input_pos": [0], **mask})
    assert outputs["logits"].shape == (1, 1, sizes.vocabulary)


@pytest.mark.parametrize(
    ("options", "has_hint"),
    [({}, True), ({"attention": "causal"}, False), ({"target": "generic"}, False)],
    ids=["by default", "with the option", "for another target"],
)
def test_hint_suggests_causal_attention(options: dict[str, Any], has_hint: bool) -> None:
    report = otp.convert(language_model(ROWS), signature="decode", **options).report
    assert any("attention='causal' decodes faster" in hint for hint in report.hints) == has_hint
    assert not any("attention='causal'" in warning for warning in report.warnings)


def test_model_without_logits_gets_no_hint_on_decoding() -> None:
    assert not otp.convert(language_model(ROWS), signature="prefill_5").report.hints
