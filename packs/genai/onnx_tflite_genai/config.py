"""``genai_config.json`` and ``tokenizer_config.json`` of onnxruntime-genai."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx_tflite_genai.bundle import Metadata
from onnx_tflite_genai.graph import Decoder
from onnx_tflite_plugin import ConversionError

TYPE = "decoder"
"""The model type of onnxruntime-genai for any decoder, described by the names of its inputs and outputs."""


@dataclass(frozen=True)
class SpecialTokens:
    """Start and stop tokens, each an id with its text."""

    start: tuple[int, str] | None
    stops: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, tokenizer: Mapping[str, Any], metadata: Metadata) -> SpecialTokens:
        """Return the special tokens that the metadata of a bundle names.

        Raises ConversionError if the tokenizer lacks one of these tokens, or if there is no stop token.
        """
        ids = token_ids(tokenizer)
        texts = {number: text for text, number in ids.items()}

        def find(numbers: Sequence[int], names: Sequence[str]) -> list[tuple[int, str]]:
            unknown = [name for name in names if name not in ids]
            if unknown:
                raise ConversionError(f"the tokenizer has no token {unknown[0]!r}; pass one of its tokens")
            tokens = [(number, texts.get(number, "")) for number in (*numbers, *(ids[name] for name in names))]
            return list(dict.fromkeys(tokens))

        stops = find(metadata.stop_ids, metadata.stop_texts)
        if not stops:
            special_texts = ", ".join(token["content"] for token in tokenizer.get("added_tokens", ())[:9]) or "none"
            raise ConversionError(
                f"no stop token is known: pass one with --stop (special tokens of the tokenizer: {special_texts})"
            )
        starts = find(metadata.start_ids, [metadata.start_text] if metadata.start_text else [])
        return cls(starts[0] if starts else None, tuple(stops))


def make_config(decoder: Decoder, special: SpecialTokens) -> dict[str, Any]:
    """Return ``genai_config.json``. Its maximum length is the number of cache slots."""
    stop_ids = [number for number, _ in special.stops]
    return {
        "model": {
            "type": TYPE,
            "context_length": decoder.cache_length,
            "vocab_size": decoder.vocabulary,
            **({"bos_token_id": special.start[0]} if special.start else {}),
            "eos_token_id": stop_ids if len(stop_ids) > 1 else stop_ids[0],
            "pad_token_id": stop_ids[0],
            "decoder": {
                "session_options": {},
                "filename": "model.onnx",
                "head_size": decoder.head_size,
                "hidden_size": decoder.heads * decoder.head_size,
                "num_attention_heads": decoder.heads,
                "num_key_value_heads": decoder.kv_heads,
                "num_hidden_layers": decoder.layers,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "max_length": decoder.cache_length,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": True,
        },
    }


def make_tokenizer_config(special: SpecialTokens, metadata: Metadata) -> dict[str, Any]:
    """Return ``tokenizer_config.json``, with the chat template of the bundle."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({"bos_token": special.start[1]} if special.start else {}),
        "eos_token": special.stops[0][1],
        **({"chat_template": metadata.template} if metadata.template else {}),
    }


def parse_tokenizer(text: bytes) -> dict[str, Any]:
    """Return the content of ``tokenizer.json``.

    Raises ConversionError if the file is not a Hugging Face tokenizer.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConversionError(
            f"the tokenizer is not valid JSON: {error}; pass a tokenizer.json of Hugging Face"
        ) from error
    if not isinstance(content, dict) or "model" not in content:
        raise ConversionError("the tokenizer has no model: pass a tokenizer.json of Hugging Face")
    return content


def token_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return the ids of the vocabulary and the special tokens by text."""
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    words = dict(vocabulary) if isinstance(vocabulary, dict) else {word: k for k, (word, _) in enumerate(vocabulary)}
    return {**words, **{token["content"]: token["id"] for token in tokenizer.get("added_tokens", ())}}
