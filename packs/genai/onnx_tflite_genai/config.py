"""``genai_config.json`` and ``tokenizer_config.json`` of onnxruntime-genai."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onnx_tflite_genai.bundle import Metadata
from onnx_tflite_genai.graph import Decoder

TYPE = "decoder"
"""The model type of onnxruntime-genai that takes any decoder by the names of its inputs and outputs."""


def make_config(decoder: Decoder, metadata: Metadata, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``genai_config.json``. The caches have a fixed number of slots, which is the greatest length."""
    ids = token_ids(tokenizer)
    stops = [*metadata.stop_ids, *(ids[text] for text in metadata.stop_texts if text in ids)]
    start = [*metadata.start_ids, *([ids[metadata.start_text]] if metadata.start_text in ids else [])]
    ends = list(dict.fromkeys(stops)) or [decoder.vocabulary]
    return {
        "model": {
            "type": TYPE,
            "context_length": decoder.slots,
            "vocab_size": decoder.vocabulary,
            **({"bos_token_id": start[0]} if start else {}),
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": ends[0],
            "decoder": {
                "session_options": {},
                "filename": "model.onnx",
                "head_size": decoder.depth,
                "hidden_size": decoder.heads * decoder.depth,
                "num_attention_heads": decoder.heads,
                "num_key_value_heads": decoder.groups,
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
            "max_length": decoder.slots,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": True,
        },
    }


def make_tokenizer_config(tokenizer: bytes, metadata: Metadata) -> dict[str, Any]:
    """Return ``tokenizer_config.json``, with the chat template of the bundle."""
    texts = {number: text for text, number in token_ids(json.loads(tokenizer)).items()}
    start = metadata.start_text or next((texts[one] for one in metadata.start_ids if one in texts), "")
    stops = [*metadata.stop_texts, *(texts[one] for one in metadata.stop_ids if one in texts)]
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if start:
        config["bos_token"] = start
    if stops:
        config["eos_token"] = stops[0]
    if metadata.template:
        config["chat_template"] = metadata.template
    return config


def token_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of special tokens and words by text."""
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    words = dict(vocabulary) if isinstance(vocabulary, dict) else {word: k for k, (word, _) in enumerate(vocabulary)}
    return {**words, **{one["content"]: one["id"] for one in tokenizer.get("added_tokens", ())}}
