"""The model, the tokenizer and the metadata of a LiteRT-LM bundle."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from onnx_tflite_plugin import ConversionError


class Part(Protocol):
    """A part of a bundle, as ``bundle_parts`` lists them.

    ``load`` returns the argument for ``convert``.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    def read(self) -> bytes: ...
    def load(self) -> Any: ...


MODEL, TOKENIZER, SENTENCEPIECE, METADATA = (
    "model",
    "tokenizer (Hugging Face)",
    "SentencePiece tokenizer",
    "LLM metadata",
)
_START, _STOP, _TEMPLATE = 1, 2, 7  # fields of LlmMetadata, runtime/proto/llm_metadata.proto of LiteRT-LM
_IDS, _TEXT = 1, 2  # fields of TokenUnion; TokenIds has the ids in field 1, runtime/proto/token.proto
_MAX_TOKENIZER_BYTES = 1 << 28


@dataclass(frozen=True)
class Metadata:
    """Start and stop tokens of a bundle, as ids or as texts.

    ``template``: a chat template in Jinja, or empty.
    """

    start_ids: tuple[int, ...] = ()
    start_text: str = ""
    stop_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()
    template: str = ""


def load_model(parts: Sequence[Part]) -> Any:
    """Load the language model of a bundle.

    Raises ConversionError unless the bundle has exactly one.
    """
    models = [part for part in parts if part.kind == MODEL]
    language_models = [part for part in models if "prefill" in part.name] or models
    if len(language_models) != 1:
        names = ", ".join(part.name for part in language_models) or "none"
        raise ConversionError(f"the bundle has {len(language_models)} language models ({names}); it must have one")
    return language_models[0].load()


def read_tokenizer(parts: Sequence[Part]) -> bytes:
    """Return ``tokenizer.json``.

    Raises ConversionError if the bundle has none, or if it is damaged.
    """
    part = next((part for part in parts if part.kind == TOKENIZER), None)
    if part is None:
        alternative = " but a SentencePiece model" if any(part.kind == SENTENCEPIECE for part in parts) else ""
        raise ConversionError(
            f"the bundle has no tokenizer.json{alternative}: save one with transformers (AutoTokenizer(...).save_pretrained) and"
            " pass it with --tokenizer"
        )
    content = part.read()  # the size in 8 bytes, then the compressed text
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(content[8:], _MAX_TOKENIZER_BYTES)
    except zlib.error as error:
        raise ConversionError(f"the tokenizer in {part.name} is damaged: {error}") from error
    if len(text) != int.from_bytes(content[:8], "little"):
        raise ConversionError(f"the tokenizer in {part.name} is damaged: it has {len(text)} bytes")
    return text


def read_metadata(parts: Sequence[Part]) -> Metadata:
    """Return the metadata of a bundle, empty if it has none.

    Raises ConversionError if the metadata is damaged.
    """
    part = next((part for part in parts if part.kind == METADATA), None)
    if part is None:
        return Metadata()
    start: tuple[tuple[int, ...], str] = (), ""
    stops: list[tuple[tuple[int, ...], str]] = []
    template = ""
    for number, value in _fields(part.read()):
        if isinstance(value, bytes) and number == _START:
            start = _read_token(value)
        elif isinstance(value, bytes) and number == _STOP:
            stops.append(_read_token(value))
        elif isinstance(value, bytes) and number == _TEMPLATE:
            template = value.decode(errors="replace")
    # onnxruntime-genai stops at single tokens, not at sequences of tokens.
    stop_ids = tuple(token_ids[0] for token_ids, _ in stops if len(token_ids) == 1)
    return Metadata(*start, stop_ids, tuple(text for _, text in stops if text), template)


def _read_token(union: bytes) -> tuple[tuple[int, ...], str]:
    """Return the ids of a token, or its text."""
    ids: list[int] = []
    text = ""
    for number, value in _fields(union):
        if number == _IDS and isinstance(value, bytes):
            for inner_number, token_id in _fields(value):
                if inner_number == 1:
                    ids += [token_id] if isinstance(token_id, int) else _varints(token_id)
        elif number == _TEXT and isinstance(value, bytes):
            text = value.decode(errors="replace")
    return tuple(ids), text


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message.

    Raises ConversionError if the message is damaged.
    """
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        wire_type = tag & 7
        if wire_type == 0:
            value, offset = _varint(message, offset)
            yield tag >> 3, value
            continue
        size, offset = _varint(message, offset) if wire_type == 2 else ({1: 8, 5: 4}.get(wire_type, -1), offset)
        if size < 0 or offset + size > len(message):
            raise ConversionError("the metadata of the bundle is damaged: a field extends beyond its end")
        yield tag >> 3, message[offset : offset + size]
        offset += size


def _varints(data: bytes) -> list[int]:
    numbers, offset = [], 0
    while offset < len(data):
        number, offset = _varint(data, offset)
        numbers.append(number)
    return numbers


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return an integer of variable length, and the position after it."""
    value = shift = 0
    while offset < len(data) and shift < 64:
        value |= (data[offset] & 127) << shift
        offset, shift = offset + 1, shift + 7
        if not data[offset - 1] & 128:
            return value, offset
    raise ConversionError("the metadata of the bundle is damaged: an integer does not end")
